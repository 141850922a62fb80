"""Images that do not fit into memory, decoded once to a file in the cache folder (ARELU_META_CACHE).

A file is `images/KEY.npy` (`data.files.decoded_file`). The key holds which files they are (names, sizes, times of
change), what was done with them, and the version of this code. A process that asks for the same images while another
makes their file waits and shares it.
"""

import hashlib
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from filelock import FileLock, Timeout
from torch import Tensor

from arelu_meta.console import progress
from arelu_meta.data.files import FOLDER, cache_folder
from arelu_meta.data.files.decoded_file import (
    DecodedImages,
    HandedLock,
    being_stored,
    keep_part,
    not_kept,
    write_part,
)
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.rows import AT_ONCE, ImageRows
from arelu_meta.runtime.hardware import image_memory

VERSION = 1  # to be raised when the same files give other pixels


def keep_decoded(parts: Mapping[str, ImageSet], bar: progress.Bar = progress.silent) -> dict[str, ImageSet]:
    """Decode what some sets have not read yet: into memory where it fits, else to the cache folder, once.

    Args:
        parts: sets by name; parts of one set share a file.
        bar: shows the progress.

    Returns:
        The sets, with images that are in memory, or in a file.

    Raises:
        InputError: a file that cannot be decoded, or a cache folder that cannot be written.
    """
    undecoded: dict[str, dict[str, ImageRows]] = {}  # by source, then by set
    for name, part in parts.items():
        if isinstance(part.images, ImageRows) and not part.images.source.ready:
            undecoded.setdefault(part.images.source.digest, {})[name] = part.images
    kept = dict(parts)
    for rows in undecoded.values():
        first, numbers = next(iter(rows)), torch.cat([some.numbers for some in rows.values()])
        chosen, places = torch.unique(numbers, return_inverse=True)
        whole = ImageRows(rows[first].source, chosen)
        if whole.nbytes <= image_memory():
            pixels: Tensor | ImageRows = _read_all(whole, bar)
        else:
            pixels = ImageRows(_on_disk(whole, parts[first].name, bar), torch.arange(len(whole)))
        for name, some in zip(rows, places.split([len(some) for some in rows.values()]), strict=True):
            images = pixels.select(some) if isinstance(pixels, ImageRows) else pixels[some]
            kept[name] = replace(parts[name], images=images.to(rows[name].device))
    return kept


def _read_all(rows: ImageRows, bar: progress.Bar) -> Tensor:
    """Decode all rows into memory."""
    images, done = torch.empty(rows.shape, dtype=torch.uint8), 0
    for some in _decoded(rows, bar):
        images[done : done + len(some)] = some
        done += len(some)
    return images


def _decoded(rows: ImageRows, bar: progress.Bar) -> Iterator[Tensor]:
    """Go through rows in order, (n, C, H, W) at a time, showing how far it is."""
    done = 0
    with bar("decode", -(-len(rows) // AT_ONCE)) as advance:
        for images in rows.chunks():
            yield images
            done += len(images)
            advance(f"{done:,} of {len(rows):,} images")


def _on_disk(rows: ImageRows, name: str, bar: progress.Bar) -> DecodedImages:
    """Open the file of these rows, or make it."""
    count, channels, height, width = rows.shape
    digest = hashlib.sha256(f"{VERSION} {rows.digest} {list(rows.shape)}".encode()).hexdigest()
    readable = re.sub(r"[^\w.-]+", "_", name.partition("/")[0])[:40].strip(".")
    path = cache_folder() / FOLDER / f"{readable}-{digest[:32]}.npy"
    opened = partial(DecodedImages, path, (count, channels, height, width), digest)
    for images in being_stored():
        if images.path == path:
            return images
    with suppress(OSError, ValueError):  # none yet, or a damaged one
        found = opened()
        os.utime(path)  # when it was used last
        return found
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path) as lock:
            with suppress(OSError, ValueError):
                return opened()  # made by another process meanwhile
            return keep_part(write_part(path, rows.shape, _decoded(rows, bar)), opened, lock)
    except OSError as error:
        raise not_kept(path, rows.nbytes, error) from error


@contextmanager
def _locked(path: Path) -> Iterator[HandedLock]:
    """Hold the lock of a file, or wait for it and say so; it is released in the end unless it was handed on."""
    lock = HandedLock(path.with_suffix(".lock"))
    try:
        lock.acquire(timeout=1)
    except Timeout:
        progress.say(f"another process decodes the same images to {path}; waiting for it")
        lock.acquire()
    try:
        yield lock
    finally:
        if not lock.handed_on:
            lock.release()


@dataclass(frozen=True)
class CachedFile:
    """A file of decoded images: its path, bytes, and when it was used last, in seconds since the epoch."""

    path: Path
    size: int
    used: float


def cached_files() -> list[CachedFile]:
    """List the files of decoded images, and what was left of some that were never finished, latest first."""
    found = []
    for path in (cache_folder() / FOLDER).glob("*"):
        if path.suffix in (".npy", ".npz", ".part"):
            with suppress(OSError):  # removed meanwhile
                status = path.stat()
                found.append(CachedFile(path, status.st_size, status.st_mtime))
    return sorted(found, key=lambda file: -file.used)


def remove_cached(*, unused_days: float = 0) -> list[CachedFile]:
    """Remove files of decoded images that were not used for so many days; a run that has one open keeps it."""
    before, removed = time.time() - 86400 * unused_days, []
    for file in cached_files():
        if file.used > before:
            continue
        with suppress(Timeout), FileLock(file.path.with_suffix(".lock"), timeout=0):  # else: it is being made
            file.path.unlink(missing_ok=True)
            removed.append(file)
    return removed
