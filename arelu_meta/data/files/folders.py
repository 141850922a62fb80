"""Image sets from folders: a subfolder per class, or a CSV that names files, labels and splits."""

import csv
from collections.abc import Iterable
from pathlib import Path

import torch

from arelu_meta.data.files import tree_sha256
from arelu_meta.data.files.image_files import SUFFIXES, read_images
from arelu_meta.data.imageset import ImageSet, Provenance
from arelu_meta.errors import InputError, unknown

PARTS = {"train": "train", "validation": "validation", "valid": "validation", "val": "validation", "test": "test"}
COLUMNS = ("filename", "label", "split")

Row = tuple[Path, str, str]  # image file, class, part ("" if there are none)


def read_folder(folder: Path, *, image_size: int | None = None) -> ImageSet:
    """Read a folder with a CSV of splits if it has one, else a folder of class folders."""
    table = find_table(folder)
    rows = read_table(folder, table) if table else read_class_folders(folder)
    files = [file for file, _, _ in rows]
    classes = sorted({label for _, label, _ in rows})
    number = {label: index for index, label in enumerate(classes)}
    parts = {part for _, _, part in rows} - {""}
    return ImageSet(
        name=folder.resolve().name,
        images=read_images(files, image_size=image_size),
        labels=torch.tensor([number[label] for _, label, _ in rows]),
        class_names=tuple(classes),
        parts={part: torch.tensor([i for i, row in enumerate(rows) if row[2] == part]) for part in sorted(parts)},
        provenance=Provenance(str(folder), False, {folder.resolve().name: tree_sha256(folder, files)}),
    )


def read_class_folders(folder: Path) -> list[Row]:
    """List `CLASS/*.png`, or `train/CLASS/*.png` beside `validation` (or `val`) and `test`."""
    tops = _subfolders(folder)
    if any(top.name == "train" for top in tops) and all(top.name in PARTS for top in tops):
        return [row for top in tops for row in _classes(top, PARTS[top.name])]
    return _classes(folder, "")


def _classes(folder: Path, part: str) -> list[Row]:
    classes = _subfolders(folder)
    tables = sorted(folder.glob("*.csv"))
    if not classes and tables:
        found = ", ".join(_read_csv(tables[0])[0]) or "nothing"
        raise InputError(f"the first line of {tables[0]} has {found}; it must have {','.join(COLUMNS)}")
    if not classes:
        raise InputError(f"{folder} holds no class folders; put the images of each class into a folder of its own")
    rows = []
    for label in classes:
        files = sorted(file for file in label.iterdir() if file.suffix.lower() in SUFFIXES and file.is_file())
        if not files:
            raise InputError(f"class folder {label} holds no images; remove it or fill it")
        rows += [(file, label.name, part) for file in files]
    return rows


def _subfolders(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith((".", "__")))


def find_table(folder: Path) -> Path | None:
    """Find the CSV with the columns filename, label and split; two of them are one too many."""
    tables = [path for path in sorted(folder.glob("*.csv")) if set(COLUMNS) <= set(_read_csv(path)[0])]
    if len(tables) > 1:
        raise InputError(f"{folder}: both {tables[0].name} and {tables[1].name} list files; keep one of them")
    return tables[0] if tables else None


def read_table(folder: Path, table: Path) -> list[Row]:
    """List the images that a CSV names, relative to its folder or to `images/` in it."""
    rows, seen = [], set()
    header, lines = _read_csv(table)
    columns = [header.index(column) for column in COLUMNS]
    for number, line in enumerate(lines, start=2):
        if len(line) != len(header):
            raise InputError(f"{table} line {number} has {len(line)} fields, not {len(header)}; mend the line")
        filename, label, split = (line[column].strip() for column in columns)
        if not label:
            raise InputError(f"{table} line {number} has no label; give the class of {filename!r}")
        if split not in PARTS:
            raise unknown(f"split in {table} line {number}", split, PARTS)
        if filename in seen:
            raise InputError(f"{table} line {number} names {filename!r} a second time; an image is in one split only")
        seen.add(filename)
        rows.append((_locate(folder, filename), label, PARTS[split]))
    if not rows:
        raise InputError(f"{table} names no images; add lines of {','.join(COLUMNS)}")
    _refuse_missing(table, [file for file, _, _ in rows if not file.is_file()])
    return rows


def _locate(folder: Path, filename: str) -> Path:
    inner = folder / "images" / filename
    return inner if inner.is_file() else folder / filename


def _refuse_missing(table: Path, missing: list[Path]) -> None:
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(f"{table} names {missing[0]}{more}, which is not there; add the file or drop the line")


def _read_csv(path: Path) -> tuple[list[str], Iterable[list[str]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            lines = [line for line in csv.reader(stream) if line]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is not a readable CSV ({error}); save it as UTF-8") from error
    return ([column.strip() for column in lines[0]], lines[1:]) if lines else ([], [])
