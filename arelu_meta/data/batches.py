"""Plain batches of an image set: no worker processes, and nothing to wait for where it lies on the training device."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from arelu_meta.data.augment import Augment, random_affine, transform_pairs
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.mixing import Mixing
from arelu_meta.data.rectangles import crop_resized, draw_crops
from arelu_meta.data.rows import ImageRows
from arelu_meta.errors import InputError


class Batches:
    """One pass over a set per iteration, in a new random order each time; the last batch may be smaller.

    Iterating yields pixels (n, C, H, W) float32, augmented and normalised, and labels (n,), both on the set's device.

    Args:
        images: the set to pass over.
        batch_size: images per batch.
        random: generator on the CPU of the order and of the augmentation.
        augment: function of a uint8 batch and the generator, see `data.augment`; None leaves images as they are.
        mixing: function of pixels, labels and the generator that mixes the images of a batch, see `data.mixing`; the
            labels are then shares of the classes (n, classes).

    Example:
        >>> from arelu_meta import data
        >>> batches = Batches(data.load("digits"), 128, torch.Generator().manual_seed(0))
        >>> len(batches), sum(len(y) for _, y in batches)
        (15, 1797)
    """

    def __init__(
        self,
        images: ImageSet,
        batch_size: int,
        random: torch.Generator,
        *,
        augment: Augment | None = None,
        mixing: Mixing | None = None,
    ) -> None:
        self.images, self.batch_size, self.random = images, batch_size, random
        self.augment, self.mixing = augment, mixing

    def __len__(self) -> int:
        return -(-len(self.images) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        yield from self.passed(list(self.orders()))

    def orders(self) -> Iterator[Tensor]:
        """Image numbers of each batch of one pass, in a new random order."""
        yield from torch.randperm(len(self.images), generator=self.random).split(self.batch_size)

    def passed(self, orders: Sequence[Tensor], share: slice = slice(None)) -> Iterator[tuple[Tensor, Tensor]]:
        """Gather batches of some orders in turn; images that do not lie on the device are read ahead."""
        if not isinstance(self.images.images, ImageRows):
            yield from (self.gather(numbers, share) for numbers in orders)
            return
        read = self.images.images.ahead(self._read(numbers, share) for numbers in orders)
        for numbers, images in zip(orders, read, strict=True):
            yield self.gather(numbers, share, images)

    def _read(self, numbers: Tensor, share: slice) -> Tensor:
        """Image numbers that `gather` reads for a share of some images."""
        return numbers[share] if self.augment is None and self.mixing is None else numbers

    def gather(
        self, numbers: Tensor, share: slice = slice(None), images: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Augmented, normalised pixels and labels of a share of some images.

        All of them are augmented, so that the random numbers do not depend on the share. `images` are those that it
        would read, where they were read ahead.
        """
        read, chosen = (part.to(self.images.device) for part in (self._read(numbers, share), numbers[share]))
        images = self.images.images[read] if images is None else images
        if self.augment is not None:
            images = self.augment(images, self.random)
        if self.mixing is not None:
            x, y = self.mixing(self.images.normalise(images), self.images.labels[read], self.random)
            return x[share], y[share]
        images = images[share] if self.augment is not None else images
        return self.images.normalise(images), self.images.labels[chosen]


class MaskBatches(Batches):
    """One pass over a segmentation set per iteration: pixels (n, C, H, W) and masks (n, 1, H, W) as float32.

    Args:
        images: a set with masks.
        batch_size: images per batch.
        random: generator on the CPU of the order and of the augmentation.
        affine: scale each pair by up to 5 %, turn it by up to 15 degrees and mirror half of them, as Buda et al. 2019.
        crop_scale: smallest and largest share of the area; then a rectangle is cut out of each pair, resampled to the
            size of the image and mirrored or not, before `affine`. Empty: none.
        weights: (N,) probability of each image; then as many as there are are drawn with replacement, see
            `data.volumes.slice_weights`. None: each image once.

    Raises:
        InputError: the set has no masks.

    Example:
        >>> from arelu_meta import data
        >>> x, masks = next(iter(MaskBatches(data.load("phantom"), 4, torch.Generator(), affine=True)))
        >>> x.shape, masks.shape
        (torch.Size([4, 3, 64, 64]), torch.Size([4, 1, 64, 64]))
    """

    def __init__(
        self,
        images: ImageSet,
        batch_size: int,
        random: torch.Generator,
        *,
        affine: bool = False,
        crop_scale: Sequence[float] = (),
        weights: Tensor | None = None,
    ) -> None:
        super().__init__(images, batch_size, random)
        if images.masks is None:
            raise InputError(f"{images.name} has no masks; segmentation needs a set with masks, such as phantom or lgg")
        self.masks, self.affine, self.crop_scale, self.weights = images.masks, affine, tuple(crop_scale), weights

    def orders(self) -> Iterator[Tensor]:
        """Image numbers of each batch of one pass: each once in a new random order, or drawn by the weights."""
        if self.weights is None:
            yield from super().orders()
        else:
            drawn = torch.multinomial(self.weights, len(self.images), replacement=True, generator=self.random)
            yield from drawn.split(self.batch_size)

    def gather(
        self, numbers: Tensor, share: slice = slice(None), images: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Normalised pixels and masks of a share of some images, transformed together."""
        size, crops = self.images.image_size, None
        if self.crop_scale:
            crops = draw_crops(len(numbers), size, self.random, scale=(self.crop_scale[0], self.crop_scale[1]))[share]
        matrices = random_affine(len(numbers), self.random)[share] if self.affine else None
        numbers = numbers[share].to(self.images.device)
        images, masks = self.images.images[numbers] if images is None else images, self.masks[numbers]
        if crops is not None:
            images, masks = crop_resized(images, crops), crop_resized(masks, crops, nearest=True)
        pixels, masks = self.images.pixels(numbers, images), masks.float()
        if matrices is None or not len(numbers):
            return pixels, masks
        return transform_pairs(pixels, masks, matrices)
