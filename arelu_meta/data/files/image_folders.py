"""Image files (PNG, JPEG, TIFF, ...) as tensors, and folders of them: one per class, or a CSV of files and labels."""

import csv
import io
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from arelu_meta.data.files import tree_sha256
from arelu_meta.data.imageset import ImageSet, Provenance
from arelu_meta.errors import InputError, first_line, unknown
from arelu_meta.reading import check_inside, check_size, open_regular, parsing, read_text, shown, skips_broken
from arelu_meta.runtime.hardware import available_memory

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
MOST_CSV = 256 << 20  # bytes
GREY_MODES = frozenset({"1", "L"})
SUBSETS = {"train": "train", "validation": "validation", "valid": "validation", "val": "validation", "test": "test"}
FORMATS = ("PNG", "JPEG", "TIFF", "BMP", "GIF", "WEBP", "PPM")  # Pillow's names; by content
ORIENTATION = 0x0112  # the EXIF tag; 5 to 8 are turned by a quarter
NO_IMAGES = frozenset({"Thumbs.db", "desktop.ini", "Desktop.ini"})  # that systems put beside images
SHOWN = 5  # files that a warning names
COLUMNS = ("filename", "label", "split")


class BrokenImageError(InputError):
    """An image file that cannot be decoded."""


Convert = Callable[[Image.Image], Image.Image]
Row = tuple[Path, str, str]  # image file, class, subset ("" if there are none)


def read_image(source: Path | BytesIO, name: str, convert: Convert) -> Tensor:
    """Decode one image file and return what `convert` makes of it, (C, H, W) uint8."""
    with open_image(source, name) as image:
        pixels = np.array(convert(ImageOps.exif_transpose(image)), dtype=np.uint8)  # (H, W) or (H, W, C)
    return torch.from_numpy(pixels).unsqueeze(0) if pixels.ndim == 2 else torch.from_numpy(pixels).permute(2, 0, 1)


def read_images(paths: Sequence[Path], *, image_size: int | None = None) -> Tensor:
    """Decode image files of one size: (N, 1, H, W) if all of them are grey, else (N, 3, H, W).

    With `image_size` each is resized to that many pixels square; without it, unequal sizes are an error.
    """
    first: tuple[Path, tuple[int, int]] | None = None
    grey = True
    for path in paths:
        with open_image(path, str(path)) as image:
            size, mode = upright_size(image), image.mode
        if mode.startswith(("I", "F")):
            raise InputError(f"{path} has more than 8 bits per channel (mode {mode}); convert it to 8-bit grey or RGB")
        first = first or (path, size)
        grey = grey and mode in GREY_MODES
        if image_size is None and size != first[1]:
            raise InputError(
                f"images differ in size: {first[0].name} is {first[1][0]}x{first[1][1]}, {path.name} is "
                f"{size[0]}x{size[1]}; set `image_size`, for example to {min(*size, *first[1])}"
            )
    if first is None:
        raise InputError("no image files to read; check the folder")
    width, height = first[1] if image_size is None else (image_size, image_size)
    needed = len(paths) * (1 if grey else 3) * height * width
    if needed > available_memory():
        raise InputError(
            f"{len(paths)} images of {width}x{height} take {needed >> 30} GiB, more than this machine has; "
            "lower `image_size`, or take fewer images"
        )
    images = torch.empty(len(paths), 1 if grey else 3, height, width, dtype=torch.uint8)

    def convert(image: Image.Image) -> Image.Image:
        image = image.convert("L" if grey else "RGB")
        return image if image.size == (width, height) else image.resize((width, height), Image.Resampling.LANCZOS)

    for row, path in zip(images, paths, strict=True):
        row.copy_(read_image(path, str(path), convert))
    return images


@contextmanager
def open_image(source: Path | BytesIO, name: str) -> Iterator[Image.Image]:
    """Open an image of one of our formats, whatever its name says: others may start programs of their own.

    `name` is for messages. Whatever goes wrong while it is open is said of the image; Pillow's warnings are about
    camera notes, or an error follows.
    """
    remedy = "replace or remove it"
    try:
        with open_regular(source) if isinstance(source, Path) else nullcontext(source) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with Image.open(file, formats=FORMATS) as image:
                    check_size(name, 8 * image.width * image.height, size, what="to decode and convert")
                    yield image
    except InputError:
        raise  # of what was done with the open image
    except UnidentifiedImageError as error:  # whose message shows Python's file
        raise BrokenImageError(f"{shown(name)} is not a readable image (of no format known here); {remedy}") from error
    except Exception as error:  # a damaged file can lead Pillow anywhere
        reason = shown(first_line(error))
        raise BrokenImageError(f"{shown(name)} is not a readable image ({reason}); {remedy}") from error


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Width and height of an image as viewers show it: cameras store how they were held (EXIF), not turned pixels."""
    stored = "exif" in image.info or image.format == "TIFF"  # asking others would decode them
    turned = stored and image.getexif().get(ORIENTATION, 1) > 4
    return (image.height, image.width) if turned else image.size


def hidden(name: str) -> bool:
    """Whether a file or folder is none of the user's making, such as `._a.png` and `__MACOSX`."""
    return name.startswith((".", "__"))


def read_folder(folder: Path, *, image_size: int | None = None, mixed_size: int | None = None) -> ImageSet:
    """Read a folder with a CSV of splits if it has one, else of class folders `CLASS/*.png`, with or without
    `train`, `validation` (or `val`) and `test` above them.

    With `image_size` all files are resampled to that side when they are read, with `mixed_size` where they differ in
    size. Files that cannot be read are an error, or left out (`reading.skipping_broken`).
    """
    try:
        with parsing(folder, what="not readable", remedy="check it and its permissions"):
            return _read_folder(folder, image_size, mixed_size)
    except BrokenImageError as error:
        raise InputError(f"{error}; or leave such files out by `skip_broken`") from error


def _read_folder(folder: Path, image_size: int | None, mixed_size: int | None) -> ImageSet:
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
    _check_files(folder, rows)
    rows = _readable(folder, rows) if skips_broken() else rows
    files = [file for file, _, _ in rows]
    if image_size is None and mixed_size and (seen := _different_sizes(files)):
        image_size = mixed_size
        warnings.warn(
            f"images of {shown(folder)} differ in size ({seen}); all are resampled to {mixed_size}x{mixed_size}, "
            "`image_size` sets another",
            stacklevel=2,
        )
    classes = sorted({label for _, label, _ in rows})
    number = {label: index for index, label in enumerate(classes)}
    subsets = {subset for _, _, subset in rows} - {""}
    return ImageSet(
        name=folder.resolve().name,
        images=read_images(files, image_size=image_size),
        labels=torch.tensor([number[label] for _, label, _ in rows]),
        class_names=tuple(classes),
        subsets={name: torch.tensor([i for i, row in enumerate(rows) if row[2] == name]) for name in sorted(subsets)},
        provenance=Provenance(
            str(folder), False, {folder.resolve().name: tree_sha256(folder, files)}, read_size=image_size or 0
        ),
    )


def _readable(folder: Path, rows: Sequence[Row]) -> list[Row]:
    """Leave out files that cannot be decoded, and name them in a warning."""
    kept, broken = [], []
    for row in rows:
        try:
            with open_image(row[0], str(row[0])) as image:
                if image.mode.startswith(("I", "F")):
                    raise InputError(f"{row[0]} has more than 8 bits per channel (mode {image.mode})")
                image.load()
            kept.append(row)
        except InputError as error:
            broken.append(str(error).removesuffix("; replace or remove it"))
    if not kept:
        raise InputError(f"none of the {len(rows)} image files of {shown(folder)} can be read; {broken[0]}")
    if broken:
        named = "; ".join(broken[:SHOWN]) + ("; ..." if len(broken) > SHOWN else "")
        warnings.warn(f"left out, {len(broken)} of {len(rows)} image files: {named}", stacklevel=2)
    return kept


def _different_sizes(files: Sequence[Path]) -> str:
    """Name two sizes of images that differ, as "40x60, 41x60"; empty where all are of one size."""
    first: tuple[int, int] | None = None
    for file in files:
        with open_image(file, str(file)) as image:
            size = upright_size(image)
        if first is not None and size != first:
            return f"{first[0]}x{first[1]}, {size[0]}x{size[1]}, ..."
        first = size
    return ""


def _check_files(folder: Path, rows: Sequence[Row]) -> None:
    """Refuse files outside of the folder, and one file in two subsets, by whatever names."""
    subset_of: dict[tuple[int, int], Row] = {}
    for row in rows:
        check_inside(row[0], folder)
        if row[2]:
            status = row[0].stat()
            first = subset_of.setdefault((status.st_dev, status.st_ino), row)
            if first[2] != row[2]:
                raise InputError(
                    f"{shown(first[0])} in {first[2]} and {shown(row[0])} in {row[2]} are one file; "
                    "an image is in one split only"
                )


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
        inside = sorted(file for file in label.iterdir() if file.is_file() and not hidden(file.name))
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


def _subfolders(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not hidden(entry.name))


def _listed_files(folder: Path, table: Path) -> list[Row]:
    """List the images that a CSV names, relative to its folder or to `images/` in it."""
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
