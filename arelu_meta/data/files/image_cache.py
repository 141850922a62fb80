"""Images that do not fit into memory, decoded once to a file in the cache folder (ARELU_META_CACHE).

A file is `images/KEY.npy`, (N, H, W, C) uint8, as `numpy.load(..., mmap_mode="r")` opens it. The key holds which files
they are (names, sizes, times of change), what was done with them, and the version of this code. It grows as `KEY.part`
under a lock and takes its name when it is on the disk: a process that is killed leaves a part that the next one
overwrites, and one that asks for the same images meanwhile waits and shares them.
"""

import errno
import hashlib
import math
import os
import re
import shutil
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import Tensor

from arelu_meta.console import progress
from arelu_meta.data.files import FOLDER, cache_folder
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.rows import AT_ONCE, ImageRows
from arelu_meta.errors import InputError
from arelu_meta.runtime.hardware import image_memory

VERSION = 1  # to be raised when the same files give other pixels
REMEDY = "free some space, set ARELU_META_CACHE to a folder on another disk, or lower `image_size`"


class DecodedImages:
    """Images of a file, read when they are asked for: a source of rows that holds none of them.

    The file is not mapped into memory: the system maps it in pieces of megabytes, and counts all of them as ours.
    """

    ready = True

    def __init__(self, path: Path, shape: tuple[int, int, int, int], digest: str) -> None:
        self.path, self.shape, self.digest = path, shape, digest
        self._file = path.open("rb", buffering=0)
        weakref.finalize(self, self._file.close)
        self._lock = threading.Lock()  # between seeking and reading
        self._start = _data_start(self._file, shape)

    @property
    def place(self) -> str:
        """Where the images are, in words."""
        return f"{self.path}, decoded"

    def read(self, numbers: Tensor) -> Tensor:
        """Read images by number.

        Raises:
            InputError: the file has become shorter.
        """
        _, channels, height, width = self.shape
        images = np.empty((len(numbers), height, width, channels), np.uint8)
        size = height * width * channels
        with self._lock:
            for number, image in zip(numbers.tolist(), images, strict=True):
                self._file.seek(self._start + number * size)
                if self._file.readinto(image.data) != size:
                    raise InputError(f"{self.path} was cut off while it was in use; run it again, which decodes anew")
        return torch.from_numpy(images).permute(0, 3, 1, 2)


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
    with suppress(OSError, ValueError):  # none yet, or a damaged one
        found = opened()
        os.utime(path)  # when it was used last
        return found
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            with suppress(OSError, ValueError):
                return opened()  # made by another process meanwhile
            _make(rows, path, bar)
        return opened()
    except OSError as error:
        size = f"{rows.nbytes / 1e9:.1f} GB of decoded images"
        raise InputError(f"cannot keep {size} in {path.parent}: {error.strerror or error}; {REMEDY}") from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, or wait for it and say so."""
    lock = FileLock(path.with_suffix(".lock"))
    try:
        lock.acquire(timeout=1)
    except Timeout:
        progress.say(f"another process decodes the same images to {path}; waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _make(rows: ImageRows, path: Path, bar: progress.Bar) -> None:
    """Decode rows to a file, which appears whole or not at all; the disk writes while the next are decoded."""
    part = path.with_suffix(".part")
    free = shutil.disk_usage(path.parent).free
    if rows.nbytes > free:
        raise OSError(errno.ENOSPC, f"{free / 1e9:.1f} GB are free")
    try:
        with part.open("wb") as file, ThreadPoolExecutor(1) as writer:
            count, channels, height, width = rows.shape
            head = {"descr": "|u1", "fortran_order": False, "shape": (count, height, width, channels)}
            np.lib.format.write_array_header_1_0(file, head)
            written: Future[None] | None = None
            for images in _decoded(rows, bar):
                file.write(images.permute(0, 2, 3, 1).contiguous().numpy().data)
                if written is None or written.done():
                    file.flush()
                    written = writer.submit(os.fsync, file.fileno())
            file.flush()
            writer.submit(os.fsync, file.fileno()).result()
        os.replace(part, path)
    except BaseException:  # a disk that is full gets its space back
        with suppress(OSError):
            part.unlink()
        raise


def _data_start(file: BinaryIO, shape: Sequence[int]) -> int:
    """Where the pixels begin in a file of this shape; ValueError if it is none."""
    count, channels, height, width = shape
    version = np.lib.format.read_magic(file)
    found = np.lib.format.read_array_header_1_0(file) if version == (1, 0) else None
    start, size = file.tell(), os.fstat(file.fileno()).st_size
    if found != ((count, height, width, channels), False, np.dtype(np.uint8)) or size != start + math.prod(shape):
        raise ValueError(f"{file.name} is not of the shape {tuple(shape)}")
    return start


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
