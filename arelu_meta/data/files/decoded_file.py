"""A file of decoded images, (N, H, W, C) uint8 as `numpy.save` writes it: written part by part, kept, and read.

It grows as `KEY.part` under a lock and takes its name, `KEY.npy`, when it is on the disk: a process that is killed
leaves a part that the next one overwrites. The process that made it does not wait for the disk: it reads the part from
the system's memory while a thread brings it to the disk, and a run waits for that thread at its end (`finish_storing`).
"""

import errno
import math
import os
import shutil
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from arelu_meta.console import progress
from arelu_meta.errors import InputError

REMEDY = "free some space, set ARELU_META_CACHE to a folder on another disk, or lower `image_size`"


class DecodedImages:
    """Images of a file, read when they are asked for: a source of rows that holds none of them.

    The file is not mapped into memory: the system maps it in pieces of megabytes, and counts all of them as ours.
    """

    ready = True

    def __init__(self, path: Path, shape: tuple[int, int, int, int], digest: str, *, part: Path | None = None) -> None:
        self.path, self.shape, self.digest = path, shape, digest
        self.trouble: OSError | None = None  # of a disk that did not take what was written
        self._file = (part or path).open("rb", buffering=0)
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
            InputError: the file has become shorter, or the disk has not taken it.
        """
        if self.trouble:
            raise not_kept(self.path, math.prod(self.shape), self.trouble)
        _, channels, height, width = self.shape
        images = np.empty((len(numbers), height, width, channels), np.uint8)
        size = height * width * channels
        with self._lock:
            for number, image in zip(numbers.tolist(), images, strict=True):
                self._file.seek(self._start + number * size)
                if self._file.readinto(image.data) != size:
                    raise InputError(f"{self.path} was cut off while it was in use; run it again, which decodes anew")
        return torch.from_numpy(images).permute(0, 3, 1, 2)


def not_kept(path: Path, size: int, error: OSError) -> InputError:
    """Say what could not be kept, and why."""
    what = f"{size / 1e9:.1f} GB of decoded images"
    return InputError(f"cannot keep {what} in {path.parent}: {error.strerror or error}; {REMEDY}")


class HandedLock(FileLock):
    """A lock that another thread may release."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, thread_local=False)
        self.handed_on = False


def keep_part(part: Path, opened: Callable[..., DecodedImages], lock: HandedLock) -> DecodedImages:
    """Open a part that is whole, while a thread brings it to the disk, gives it its name and releases its lock."""
    if os.name == "nt":  # where an open file keeps its name
        _store(part, part.with_suffix(".npy"))
        return opened()
    images = opened(part=part)

    def store() -> None:
        try:
            _store(part, images.path)
        except OSError as error:
            images.trouble = error
        finally:
            lock.release()

    # No thread that the end of Python waits for: an interrupted command is not to wait for the disk.
    thread = threading.Thread(target=store, name=f"store {images.path.name}", daemon=True)
    lock.handed_on = True
    thread.start()
    _storing[:] = [(thread, images), *(other for other in _storing if other[0].is_alive())]
    return images


_storing: list[tuple[threading.Thread, DecodedImages]] = []


def being_stored() -> list[DecodedImages]:
    """Files that this process made and that are not on the disk yet."""
    return [images for _, images in _storing if not images.trouble]


def finish_storing() -> None:
    """Wait until images that this process decoded are on the disk, under their names, or say that they are not."""
    for pair in list(_storing):
        thread, images = pair
        thread.join(1)
        if thread.is_alive():
            progress.say(f"the disk is still writing {images.path}")
            thread.join()
        with suppress(ValueError):  # another thread has waited for it too
            _storing.remove(pair)
        if images.trouble:  # what was read of them was right; the next run decodes them anew
            progress.say(f"warning: {not_kept(images.path, math.prod(images.shape), images.trouble)}")


def _store(part: Path, path: Path) -> None:
    """Wait for the disk, then give a part its name; one that is not taken is removed."""
    try:
        with part.open("r+b") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise


def write_part(path: Path, shape: Sequence[int], images: Iterable[Tensor]) -> Path:
    """Write images, (n, C, H, W) at a time, to the part of a file, and give it when it is whole; else it is removed.

    Raises:
        OSError: there is too little space, or the disk fails.
    """
    part = path.with_suffix(".part")
    free = shutil.disk_usage(path.parent).free
    if math.prod(shape) > free:
        raise OSError(errno.ENOSPC, f"{free / 1e9:.1f} GB are free")
    try:
        with part.open("wb") as file:
            count, channels, height, width = shape
            head = {"descr": "|u1", "fortran_order": False, "shape": (count, height, width, channels)}
            np.lib.format.write_array_header_1_0(file, head)
            for some in images:
                file.write(some.permute(0, 2, 3, 1).contiguous().numpy().data)
    except BaseException:  # a disk that is full gets its space back
        with suppress(OSError):
            part.unlink()
        raise
    return part


def _data_start(file: BinaryIO, shape: Sequence[int]) -> int:
    """Where the pixels begin in a file of this shape; ValueError if it is none."""
    count, channels, height, width = shape
    version = np.lib.format.read_magic(file)
    found = np.lib.format.read_array_header_1_0(file) if version == (1, 0) else None
    start, size = file.tell(), os.fstat(file.fileno()).st_size
    if found != ((count, height, width, channels), False, np.dtype(np.uint8)) or size != start + math.prod(shape):
        raise ValueError(f"{file.name} is not of the shape {tuple(shape)}")
    return start
