"""Plain batches of an image set that lies on the training device: no worker processes, no images waiting."""

from collections.abc import Iterator

import torch
from torch import Tensor

from arelu_meta.data.augment import Augment
from arelu_meta.data.imageset import ImageSet


class Batches:
    """One pass over a set per iteration, in a new random order each time; the last batch may be smaller.

    >>> from arelu_meta import data
    >>> batches = Batches(data.load("digits"), 128, torch.Generator().manual_seed(0))
    >>> len(batches), sum(len(y) for _, y in batches)
    (15, 1797)
    """

    def __init__(
        self, images: ImageSet, batch_size: int, random: torch.Generator, *, augment: Augment | None = None
    ) -> None:
        self.images, self.batch_size, self.random, self.augment = images, batch_size, random, augment

    def __len__(self) -> int:
        return -(-len(self.images) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for numbers in self.orders():
            yield self.gather(numbers)

    def orders(self) -> Iterator[Tensor]:
        """Image numbers of each batch of one pass, in a new random order."""
        yield from torch.randperm(len(self.images), generator=self.random).split(self.batch_size)

    def gather(self, numbers: Tensor, share: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Augmented, normalised pixels and labels of a share of some images.

        All of them are augmented, so that the random numbers do not depend on the share.
        """
        numbers = numbers.to(self.images.device)
        if self.augment is None:
            numbers = numbers[share]
            return self.images.normalise(self.images.images[numbers]), self.images.labels[numbers]
        images = self.augment(self.images.images[numbers], self.random)
        return self.images.normalise(images[share]), self.images.labels[numbers[share]]
