"""Images that are not all in memory, or not on the training device: rows of a source that is asked for some at a time.

In place of the tensor of an `ImageSet`, `rows[index]` gives the images as the tensor would, on the set's device.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Protocol

import torch
from torch import Tensor

AT_ONCE = 128  # images that are asked for at once when all are gone through
AHEAD = 2  # batches
Convert = Callable[[Tensor], Tensor]


class Source(Protocol):
    """Where rows come from: images of one shape, by number."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Images, channels, height, width."""

    @property
    def digest(self) -> str:
        """What tells this content from any other, without reading it all."""

    @property
    def place(self) -> str:
        """Where the images are, in words."""

    @property
    def ready(self) -> bool:
        """Whether reading is a copy, and not the work of decoding."""

    def read(self, numbers: Tensor) -> Tensor:
        """Read images by number, (n,) on the CPU: (n, C, H, W) uint8 in host memory."""


@dataclass(frozen=True, eq=False)
class HostImages:
    """Images (N, C, H, W) uint8 in host memory; `digest` is that of their set."""

    images: Tensor
    digest: str
    place: str = "host memory"
    ready: bool = True

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Images, channels, height, width."""
        count, channels, height, width = self.images.shape
        return count, channels, height, width

    def read(self, numbers: Tensor) -> Tensor:
        """Copy images by number."""
        return self.images[numbers]


@dataclass(frozen=True, eq=False)
class ConvertedImages:
    """Images of a source, converted when they are read; the `repr` of `convert` says how, `shape` what comes of it."""

    source: Source
    convert: Convert
    shape: tuple[int, int, int, int]
    place: str
    ready: bool = False

    @property
    def digest(self) -> str:
        """Digest of the source and of what is done with it."""
        return hashlib.sha256(f"{self.source.digest} {self.convert!r}".encode()).hexdigest()

    def read(self, numbers: Tensor) -> Tensor:
        """Read images by number and convert them."""
        parts = [self.convert(self.source.read(some)) for some in numbers.split(AT_ONCE)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)


@dataclass(frozen=True, eq=False)
class ImageRows:
    """Some images of a source, read when they are indexed and given on a device.

    Args:
        source: where they are.
        numbers: (n,) int64 on the CPU, which images of the source these are, in order.
        device: where they are given.

    Example:
        >>> pixels = torch.arange(4, dtype=torch.uint8).view(4, 1, 1, 1)
        >>> rows = ImageRows(HostImages(pixels, "four"), torch.tensor([3, 1, 0]))
        >>> len(rows), rows[torch.tensor([0, 2])].flatten().tolist()
        (3, [3, 0])
    """

    source: Source
    numbers: Tensor
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    dtype = torch.uint8

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def shape(self) -> torch.Size:
        """Images, channels, height, width."""
        return torch.Size((len(self.numbers), *self.source.shape[1:]))

    @property
    def nbytes(self) -> int:
        """Bytes of all images, were they in memory."""
        return self.shape.numel()

    @property
    def digest(self) -> str:
        """Digest of the source and of which of its images these are."""
        sha = hashlib.sha256(self.source.digest.encode())
        sha.update(self.numbers.contiguous().numpy().data)
        return sha.hexdigest()

    def __getitem__(self, index: Tensor | int) -> Tensor:
        """Read images by number, of any shape of numbers: (*index.shape, C, H, W)."""
        index = torch.as_tensor(index)
        images = self.source.read(self.numbers[index.reshape(-1).cpu()])
        if self.device.type == "cuda":
            images = images.pin_memory()  # from where the copy need not be waited for
        return images.to(self.device, non_blocking=True).reshape(*index.shape, *self.shape[1:])

    def chunks(self) -> Iterator[Tensor]:
        """Go through all images in order, some at a time."""
        return self.ahead(torch.arange(len(self)).split(AT_ONCE))

    def ahead(self, orders: Iterable[Tensor]) -> Iterator[Tensor]:
        """Give the images of each of some orders (n,) in turn, and read the next ones meanwhile.

        A thread reads and copies; to a GPU on a stream of its own, which the computation waits for only where it gets
        there first.
        """
        stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None

        def read(index: Tensor) -> Tensor:
            with torch.cuda.stream(stream):  # None: as it is
                return self[index]

        with ThreadPoolExecutor(1) as reader:
            left = iter(orders)
            waiting: list[Future[Tensor]] = [reader.submit(read, index) for index in islice(left, AHEAD)]
            try:
                for index in chain(left, [None] * len(waiting)):
                    images = waiting.pop(0).result()
                    if index is not None:
                        waiting.append(reader.submit(read, index))
                    if stream is not None:
                        torch.cuda.current_stream(self.device).wait_stream(stream)
                        images.record_stream(torch.cuda.current_stream(self.device))
                    yield images
            finally:
                reader.shutdown(cancel_futures=True)

    def select(self, index: Tensor) -> "ImageRows":
        """Take some rows without reading them."""
        return replace(self, numbers=self.numbers[index.cpu()])

    def converted(self, convert: Convert, shape: tuple[int, int, int]) -> "ImageRows":
        """Convert the images when they are read, to a number of channels, height and width."""
        source = ConvertedImages(self.source, convert, (self.source.shape[0], *shape), self.source.place)
        return replace(self, source=source)

    def to(self, device: torch.device | str) -> "ImageRows":
        """Give images on another device; where they are stays."""
        return replace(self, device=torch.device(device))
