"""Image files for a stored network: found in folders, read and answered some at a time, broken ones named."""

import os
from collections.abc import Callable, Iterable, Sequence, Sized
from pathlib import Path

import torch
from torch import Tensor

from arelu_meta.console import progress
from arelu_meta.data.files.image_folders import SUFFIXES, hidden
from arelu_meta.data.inputs import Inputs
from arelu_meta.data.raw_images import prepare_images
from arelu_meta.errors import InputError
from arelu_meta.runtime.hardware import keep_freed_memory

AT_ONCE = 64  # images


def find_images(places: Iterable[str | Path]) -> list[Path]:
    """List image files: those named, and those in folders and what is below them, in the order of their names.

    Raises:
        InputError: a place that is not there, or a folder without images.
    """
    files: list[Path] = []
    for place in (Path(each).expanduser() for each in places):
        if place.is_dir():
            below = [file for file in place.rglob("*") if not any(map(hidden, file.relative_to(place).parts))]
            inside = sorted(file for file in below if file.suffix.lower() in SUFFIXES and file.is_file())
            if not inside:
                raise InputError(f"{place} holds no images ({', '.join(sorted(SUFFIXES))}); name another folder")
            files += inside
        elif place.is_file():
            files.append(place)
        else:
            raise InputError(f"no file or folder {str(place)!r}; check the path")
    return files


def check_any(images: Sized) -> None:
    """Refuse to answer nothing."""
    if not len(images):
        raise InputError("there are no images to answer; give one at least")


def printable(file: Path) -> str:
    """The path as text that can be written anywhere: bytes that are no UTF-8 become question marks."""
    return os.fsencode(file).decode(errors="replace")


def answer_files(
    files: Sequence[Path],
    inputs: Inputs,
    answer: Callable[[Tensor], Tensor],
    *,
    skip_broken: bool = False,
    together: bool = False,
    bar: progress.Bar = progress.silent,
) -> tuple[list[Path], Tensor, list[tuple[Path, str]]]:
    """Read image files and answer them, some at a time.

    Args:
        files: the files
        inputs: what images the network takes
        answer: gives N answers for N images as the network takes them
        skip_broken: leave files out that cannot be read; else they are an error
        together: answer all at once
        bar: shows the progress, where it is not done at once

    Returns:
        The files that were answered, their answers, and those that could not be read with the reason.

    Raises:
        InputError: a file that cannot be read, or none of them can.
    """
    check_any(files)
    answered, broken, parts = list[Path](), list[tuple[Path, str]](), list[Tensor]()
    step = len(files) if together else AT_ONCE
    starts = range(0, len(files), step)
    shown = bar if len(starts) > 1 else progress.silent
    with keep_freed_memory(), shown("answer", len(starts)) as advance:
        for first in starts:
            pixels = []
            for file in files[first : first + step]:
                try:
                    pixels.append(prepare_images([file], inputs))
                    answered.append(file)
                except InputError as error:
                    if not skip_broken:
                        raise InputError(f"{error}; or leave such files out by `skip_broken`") from error
                    broken.append((file, str(error)))
            if pixels:
                parts.append(answer(torch.cat(pixels)))
            advance(f"{min(first + step, len(files)):,} of {len(files):,} images")
    if not parts:
        raise InputError(f"none of {len(files)} files is a readable image; {broken[0][1]}")
    return answered, torch.cat(parts), broken
