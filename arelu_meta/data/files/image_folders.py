"""Folders of image files: one folder per class, or a CSV of files and labels."""

import csv
import io
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from arelu_meta.data.files import tree_sha256
from arelu_meta.data.files.image_files import REMEDY, BrokenImageError, ImageFiles, find_shape, why_broken
from arelu_meta.data.imageset import ImageSet, Provenance
from arelu_meta.data.rows import AT_ONCE, ImageRows
from arelu_meta.data.squares import Resize
from arelu_meta.errors import InputError, first_line, unknown
from arelu_meta.reading import check_inside, parsing, read_text, shown, skips_broken
from arelu_meta.runtime.hardware import image_memory

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
MOST_CSV = 256 << 20  # bytes
SUBSETS = {"train": "train", "validation": "validation", "valid": "validation", "val": "validation", "test": "test"}
NO_IMAGES = frozenset({"Thumbs.db", "desktop.ini", "Desktop.ini"})  # that systems put beside images
SHOWN = 5  # files that a warning names
COLUMNS = ("filename", "label", "split")

Row = tuple[Path, str, str]  # image file, class, subset ("" if there are none)


def hidden(name: str) -> bool:
    """Whether a file or folder is none of the user's making, such as `._a.png` and `__MACOSX`."""
    return name.startswith((".", "__"))


def read_folder(
    folder: Path, *, image_size: int | None = None, mixed_size: int | None = None, resize: Resize = "scale"
) -> ImageSet:
    """Read a folder with a CSV of splits if it has one, else of class folders `CLASS/*.png`, with or without
    `train`, `validation` (or `val`) and `test` above them.

    With `image_size` all files are made squares of that side when they are read, with `mixed_size` where they differ in
    size; `resize` says how. Files that cannot be read are an error, or left out (`reading.skipping_broken`).
    """
    try:
        with parsing(folder, what="not readable", remedy="check it and its permissions"):
            return _read_folder(folder, image_size, mixed_size, resize)
    except BrokenImageError as error:
        raise InputError(f"{error}; or leave such files out by `skip_broken`") from error


def _read_folder(folder: Path, image_size: int | None, mixed_size: int | None, resize: Resize) -> ImageSet:
    tables = [path for path in sorted(folder.glob("*.csv")) if set(COLUMNS) <= set(_read_csv(path)[0])]
    if len(tables) > 1:
        raise InputError(f"{folder}: both {tables[0].name} and {tables[1].name} list files; keep one of them")
    tops = _subfolders(folder)
    if tables:
        rows = _listed_files(folder, tables[0])
    elif any(top.name == "train" for top in tops) and all(top.name in SUBSETS for top in tops):
        rows = [row for top in tops for row in files_by_class(top, SUBSETS[top.name])]
    else:
        rows = files_by_class(folder)
    stamps = _check_files(folder, rows)
    if skips_broken():
        rows, stamps = _readable(folder, rows, stamps)
    paths = [file for file, _, _ in rows]
    source = find_shape(paths, stamps, image_size=image_size, mixed_size=mixed_size, resize=resize)
    images, sha = _read_files(folder, source)
    classes = sorted({label for _, label, _ in rows})
    number = {label: index for index, label in enumerate(classes)}
    subsets = {subset for _, _, subset in rows} - {""}
    return ImageSet(
        name=folder.resolve().name,
        images=images,
        labels=torch.tensor([number[label] for _, label, _ in rows]),
        class_names=tuple(classes),
        subsets={name: torch.tensor([i for i, row in enumerate(rows) if row[2] == name]) for name in sorted(subsets)},
        provenance=Provenance(str(folder), False, {folder.resolve().name: sha}, source.read_size, resize),
    )


def _readable(
    folder: Path, rows: Sequence[Row], stamps: Sequence[tuple[int, int]]
) -> tuple[list[Row], list[tuple[int, int]]]:
    """Leave out files that cannot be decoded, and name them in a warning."""
    reasons = why_broken([file for file, _, _ in rows])
    broken = [reason for reason in reasons if reason]
    if len(broken) == len(rows):
        raise InputError(f"none of the {len(rows)} image files of {shown(folder)} can be read; {broken[0]}")
    if broken:
        named = "; ".join(broken[:SHOWN]) + ("; ..." if len(broken) > SHOWN else "")
        warnings.warn(f"left out, {len(broken)} of {len(rows)} image files: {named}", stacklevel=2)
    whole = [number for number, reason in enumerate(reasons) if not reason]
    return [rows[number] for number in whole], [stamps[number] for number in whole]


def _read_files(folder: Path, source: ImageFiles) -> tuple[Tensor | ImageRows, str]:
    """Decode all files, or, where they take more memory than images may, leave them to be read when they are used.

    Also gives what the run records: the SHA-256 of all files, or else of their names, sizes and times of change.
    """
    rows = ImageRows(source, torch.arange(len(source.paths)))
    if rows.nbytes > image_memory():
        return rows, source.digest
    images = torch.empty(source.shape, dtype=torch.uint8)
    for numbers in rows.numbers.split(AT_ONCE):
        images[numbers[0] : numbers[-1] + 1] = source.read(numbers)
    return images, tree_sha256(folder, source.paths)


def _check_files(folder: Path, rows: Sequence[Row]) -> list[tuple[int, int]]:
    """Refuse files outside of the folder, and one file in two subsets, by whatever names.

    Gives the size of each file and the time of its last change.
    """
    subset_of: dict[tuple[int, int], Row] = {}
    stamps, inside = [], set[Path]()
    for row in rows:
        file = row[0]
        if file.parent not in inside or file.is_symlink():
            check_inside(file, folder)
            inside.add(file.parent)
        status = file.stat()
        stamps.append((status.st_size, status.st_mtime_ns))
        if row[2]:
            first = subset_of.setdefault((status.st_dev, status.st_ino), row)
            if first[2] != row[2]:
                raise InputError(
                    f"{shown(first[0])} in {first[2]} and {shown(file)} in {row[2]} are one file; "
                    "an image is in one split only"
                )
    return stamps


def files_by_class(folder: Path, subset: str = "") -> list[Row]:
    """List the image files of class folders `CLASS/*.png`, each with its class and the subset."""
    classes = _subfolders(folder)
    tables = sorted(folder.glob("*.csv"))
    if not classes and tables:
        columns = ", ".join(_read_csv(tables[0])[0]) or "nothing"
        raise InputError(f"the first line of {tables[0]} has {columns}; it must have {','.join(COLUMNS)}")
    if not classes:
        raise InputError(f"{folder} holds no class folders; put the images of each class into a folder of its own")
    rows: list[Row] = []
    others: list[Path] = []
    for label in classes:
        inside = _files_in(label)
        files = [file for file in inside if file.suffix.lower() in SUFFIXES]
        if not files:
            raise InputError(f"class folder {label} holds no images ({', '.join(sorted(SUFFIXES))}); remove or fill it")
        rows += [(file, label.name, subset) for file in files]
        others += [file for file in inside if file.suffix.lower() not in SUFFIXES and file.name not in NO_IMAGES]
    if others:
        named = ", ".join(str(file.relative_to(folder)) for file in others[:SHOWN])
        more = ", ..." if len(others) > SHOWN else ""
        warnings.warn(f"not read as images in {shown(folder)}: {named}{more} ({len(others)} in all)", stacklevel=2)
    return rows


def _files_in(folder: Path) -> list[Path]:
    """List the files of a class folder; images behind a link to nowhere are not missed in silence.

    Raises:
        BrokenImageError: what is called an image is a pipe, a device, or a link to what is not there.
    """
    inside, others = list[Path](), list[Path]()
    for entry in folder.iterdir():
        if not hidden(entry.name):
            (inside if entry.is_file() else others).append(entry)
    for entry in sorted(others):
        if entry.suffix.lower() in SUFFIXES and not entry.is_dir():
            what = f"is a link to {shown(entry.readlink())}, which is not there" if entry.is_symlink() else "is no file"
            if not skips_broken():
                raise BrokenImageError(f"{shown(entry)} {what}; {REMEDY}")
            warnings.warn(f"left out: {shown(entry)} {what}", stacklevel=2)
    return sorted(inside)


def _subfolders(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not hidden(entry.name))


def _listed_files(folder: Path, table: Path) -> list[Row]:
    """List the images that a CSV names, relative to its folder or to `images/` in it."""
    check_inside(table, folder)
    rows: list[Row] = []
    seen: set[str] = set()
    header, lines = _read_csv(table)
    columns = [header.index(column) for column in COLUMNS]
    for number, line in enumerate(lines, start=2):
        if len(line) != len(header):
            raise InputError(f"{table} line {number} has {len(line)} fields, not {len(header)}; correct the line")
        filename, label, split = (line[column].strip() for column in columns)
        if not label:
            raise InputError(f"{table} line {number} has no label; give the class of {filename!r}")
        if split not in SUBSETS:
            raise unknown(f"split in {table} line {number}", split, SUBSETS)
        if filename in seen:
            raise InputError(f"{table} line {number} names {filename!r} a second time; an image is in one split only")
        seen.add(filename)
        inner = folder / "images" / filename
        rows.append((inner if inner.is_file() else folder / filename, label, SUBSETS[split]))
    if not rows:
        raise InputError(f"{table} names no images; add lines of {','.join(COLUMNS)}")
    missing = [file for file, _, _ in rows if not file.is_file()]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(f"{table} names {missing[0]}{more}, which is not there; add the file or drop the line")
    return rows


def _read_csv(path: Path) -> tuple[list[str], Iterable[list[str]]]:
    """Header and lines of a CSV, without empty lines."""
    try:
        text = read_text(path, most=MOST_CSV).removeprefix("\ufeff")
        lines = [line for line in csv.reader(io.StringIO(text, newline="")) if line]
    except (InputError, csv.Error) as error:
        raise InputError(
            f"{shown(path)} is not a readable CSV ({shown(first_line(error))}); save it as UTF-8"
        ) from error
    return ([column.strip() for column in lines[0]], lines[1:]) if lines else ([], [])
