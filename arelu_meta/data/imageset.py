"""`ImageSet`: labelled images or vectors in memory, the one type every reader returns and every loop draws from."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from arelu_meta.data.files import FOLDER, cached_arrays
from arelu_meta.data.rows import HostImages, ImageRows
from arelu_meta.data.squares import Resize
from arelu_meta.errors import InputError
from arelu_meta.runtime.sharing import share_out

NORMALISED_AT_ONCE = 1 << 18  # values that a thread is given at a time; a channel of them stays in a core's cache


@dataclass(frozen=True)
class Provenance:
    """Where the images came from, and whether every file matched the publisher's checksum."""

    source: str = "memory"
    verified: bool = False
    files: Mapping[str, str] = field(default_factory=dict)  # file name -> SHA-256 of what was read
    read_size: int = 0  # side of the squares that image files were read as; 0: read as they are
    read_resize: Resize = "scale"  # how they were made squares


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Labelled images in memory, at rest as uint8; `pixels` normalises those that are asked for.

    Vectors of D features are images of D channels and one pixel, at rest as float32.

    Args:
        name: shown in messages and reports.
        images: (N, C, H, W) uint8, or vectors (N, D, 1, 1) float32; or rows of a source that is read when it is
            indexed (`data.rows`).
        labels: (N,) int64, numbers of class names.
        class_names: one per class; a class may be without images.
        subsets: the publisher's own division as image numbers (n,), if there is one: `train`, `test` (and
            `validation`), or `background` and `evaluation`.
        masks: (N, 1, H, W) uint8 of 0 and 1; makes it a segmentation set.
        targets: (N, 1) float32; makes it a regression set, whose classes are functions and whose images are points.
        groups: (N,) int64, the patient or writer an image belongs to, a number of `group_names`.
        group_names: one per group.
        provenance: where the images came from.
        mean: per channel, of pixels in [0, 1] or of features; empty: no normalisation.
        std: standard deviation per channel.
        volume_statistics: (groups, 2, C) mean and deviation of each group's own images, for `pixels` in place of these.

    Raises:
        InputError: shapes or types that do not fit together, or a label without a class name.

    Example:
        >>> tiny = ImageSet("tiny", torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 0, 1, 1]), ("a", "b"))
        >>> tiny.counts().tolist(), tiny.pixels(torch.tensor([0])).shape
        ([2, 2], torch.Size([1, 1, 8, 8]))
    """

    name: str
    images: Tensor | ImageRows
    labels: Tensor
    class_names: tuple[str, ...]
    subsets: Mapping[str, Tensor] = field(default_factory=dict)
    masks: Tensor | None = None
    groups: Tensor | None = None
    group_names: tuple[str, ...] = ()
    provenance: Provenance = field(default_factory=Provenance)
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    volume_statistics: Tensor | None = None
    targets: Tensor | None = None

    def __post_init__(self) -> None:
        dtype, shape = self.images.dtype, tuple(self.images.shape)
        is_vectors = dtype == torch.float32 and shape[2:] == (1, 1)
        if len(shape) != 4 or not (dtype == torch.uint8 or is_vectors):
            wanted = "uint8 (N, C, H, W), or vectors float32 (N, D, 1, 1)"
            raise InputError(f"{self.name}: images must be {wanted}, not {dtype} {shape}")
        targets = self.targets
        if targets is not None and (targets.dtype != torch.float32 or targets.shape != (len(self.images), 1)):
            given = f"{targets.dtype} {tuple(targets.shape)}"
            raise InputError(f"{self.name}: targets must be float32 ({len(self.images)}, 1), not {given}")
        if self.labels.dtype != torch.int64 or self.labels.shape != self.images.shape[:1]:
            raise InputError(
                f"{self.name}: labels must be int64 ({len(self.images)},), "
                f"not {self.labels.dtype} {tuple(self.labels.shape)}"
            )
        if self.masks is not None and self.masks.shape != (len(self.images), 1, *self.images.shape[2:]):
            raise InputError(
                f"{self.name}: masks {tuple(self.masks.shape)} do not fit images {tuple(self.images.shape)}"
            )
        if len(self.labels) and not self.labels.is_meta:
            low, high = int(self.labels.min()), int(self.labels.max())
            if low < 0 or high >= len(self.class_names):
                raise InputError(
                    f"{self.name}: label {low if low < 0 else high} is outside 0..{len(self.class_names) - 1} "
                    f"({len(self.class_names)} class names)"
                )

    def __len__(self) -> int:
        return len(self.images)

    @property
    def channels(self) -> int:
        """Number of colour channels."""
        return self.images.shape[1]

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width."""
        return self.images.shape[2], self.images.shape[3]

    @property
    def is_vectors(self) -> bool:
        """Whether these are vectors of features, which no image operation has a meaning for."""
        return isinstance(self.images, Tensor) and self.images.is_floating_point()

    @property
    def device(self) -> torch.device:
        """Where labels are, and images when they are asked for."""
        return self.labels.device

    def counts(self) -> Tensor:
        """Images per class, (classes,)."""
        return torch.bincount(self.labels, minlength=len(self.class_names))

    @cached_property
    def digest(self) -> str:
        """SHA-256 over images, labels, masks, groups, targets and class names, wherever they were read from.

        Of images that are read when they are indexed, it is the source's own digest, which does not read them.
        """
        images = self.images
        if (
            isinstance(images, ImageRows)
            and isinstance(images.source, HostImages)
            and torch.equal(images.numbers, torch.arange(images.source.shape[0]))
        ):
            return images.source.digest  # of the set as it was
        sha = hashlib.sha256(images.digest.encode() if isinstance(images, ImageRows) else b"")
        at_rest = images if isinstance(images, Tensor) else None
        for tensor in (at_rest, self.labels, self.masks, self.groups, self.targets):
            if tensor is not None:
                sha.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
                sha.update(tensor.cpu().contiguous().numpy().data)
        sha.update("\0".join(self.class_names).encode())
        return sha.hexdigest()

    def class_families(self) -> list[list[int]]:
        """Classes that must stay on one side of a split: those whose images all belong to the same one group."""
        labels = self.labels.cpu()
        present = torch.nonzero(torch.bincount(labels)).squeeze(1).tolist()
        if self.groups is None:
            return [[label] for label in present]
        groups, count = self.groups.cpu(), len(self.class_names)
        low = torch.full((count,), int(groups.max()) + 1).scatter_reduce(0, labels, groups, "amin")
        high = torch.full((count,), -1).scatter_reduce(0, labels, groups, "amax")
        families: dict[tuple[str, int], list[int]] = {}
        for label in present:
            one = low[label] == high[label]
            families.setdefault(("group", int(low[label])) if one else ("class", label), []).append(label)
        return list(families.values())

    def subset(self, index: Tensor, name: str | None = None) -> "ImageSet":
        """Take some images by number.

        Args:
            index: image numbers (n,), in any order.
            name: of the new set; unless given, that of this one.

        Returns:
            A set of n images with labels, masks, groups and targets; class names and normalisation stay as they are.
        """
        index = index.to(self.device)
        return replace(
            self,
            name=name or self.name,
            images=self.images.select(index) if isinstance(self.images, ImageRows) else self.images[index],
            labels=self.labels[index],
            masks=None if self.masks is None else self.masks[index],
            groups=None if self.groups is None else self.groups[index],
            targets=None if self.targets is None else self.targets[index],
            subsets={},
        )

    def to(self, device: torch.device | str) -> "ImageSet":
        """Move everything to a device, once, so that no batch has to travel."""
        return replace(
            self,
            images=self.images.to(device),
            labels=self.labels.to(device),
            masks=None if self.masks is None else self.masks.to(device),
            groups=None if self.groups is None else self.groups.to(device),
            targets=None if self.targets is None else self.targets.to(device),
            volume_statistics=None if self.volume_statistics is None else self.volume_statistics.to(device),
        )

    def kept_in_host_memory(self) -> "ImageSet":
        """Let images stay where they are now, on the CPU, whatever device they are asked for on; `to` says which."""
        if isinstance(self.images, ImageRows) or self.is_vectors:
            return self
        return replace(self, images=ImageRows(HostImages(self.images.cpu(), self.digest), torch.arange(len(self))))

    @property
    def tensor(self) -> Tensor:
        """All images as one tensor, read now where they are not in memory."""
        return self.images[torch.arange(len(self))] if isinstance(self.images, ImageRows) else self.images

    def image_chunks(self) -> Iterator[Tensor]:
        """Go through all images as they are at rest, (n, C, H, W) at a time; at once where they are in memory."""
        return self.images.chunks() if isinstance(self.images, ImageRows) else iter((self.images,))

    def channel_statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation of each channel, of pixels in [0, 1], or of each feature.

        Those of pixels are taken from the histogram of the 256 values, so that no float copy of the images is made.
        """
        if isinstance(self.images, Tensor) and self.is_vectors:
            features = self.images.flatten(1).cpu().double()
            return tuple(features.mean(0).tolist()), tuple(features.std(0, correction=0).tolist())
        values = torch.arange(256, dtype=torch.float64) / 255
        means, deviations = [], []
        if isinstance(self.images, ImageRows):  # a pass over the file, the same for every run on these images
            key = f"{FOLDER}/{self.images.digest[:32]}-histogram"
            counts = torch.from_numpy(cached_arrays(key, "1", lambda: {"counts": self._histogram().numpy()})["counts"])
        else:
            counts = self._histogram()
        for count in counts.double():
            share = count / count.sum()
            mean = (share * values).sum()
            means.append(float(mean))
            deviations.append(float((share * (values - mean).square()).sum().sqrt()))
        return tuple(means), tuple(deviations)

    def _histogram(self) -> Tensor:
        """Count how often each of the 256 values occurs in each channel, (C, 256)."""
        counts = torch.zeros(self.channels, 256, dtype=torch.int64)
        for images in self.image_chunks():
            for channel in range(self.channels):
                counts[channel] += torch.bincount(images[:, channel].reshape(-1), minlength=256).cpu()
        return counts

    def normalised_like(self, other: "ImageSet") -> "ImageSet":
        """Use the channel statistics of `other`, the training images, for `pixels`."""
        mean, std = other.channel_statistics()
        return replace(self, mean=mean, std=tuple(max(deviation, 1e-6) for deviation in std))

    def pixels(self, index: Tensor, images: Tensor | None = None) -> Tensor:
        """Gather images and normalise them.

        Args:
            index: image numbers of any shape, on the set's device.
            images: those images, where they have been gathered already.

        Returns:
            Pixels `(*index.shape, C, H, W)` float32: in [0, 1] (vectors as they are), then less `mean` and divided by
            `std` if these are set, or by those of the image's volume.
        """
        images = self.images[index] if images is None else images
        if self.volume_statistics is None or self.groups is None or not self.mean:
            return self.normalise(images)
        mean, std = self.volume_statistics[self.groups[index]].unsqueeze(-1).unsqueeze(-1).unbind(-4)
        return images.float().div_(255).sub_(mean).div_(std)

    def normalise(self, images: Tensor) -> Tensor:
        """Turn images (..., C, H, W) as they are at rest into float32 with the channel statistics of this set."""
        if self.is_vectors:
            return self._standardised(images.clone())
        pixels = torch.empty(images.shape, dtype=torch.float32, device=images.device)
        if pixels.device.type != "cpu" or images.dtype != torch.uint8 or not pixels.numel():
            return self._standardised(pixels.copy_(images).div_(255))
        step = max(1, NORMALISED_AT_ONCE // images.shape[-3:].numel())
        flat = images.reshape(-1, *images.shape[-3:])
        share_out(self._normalise_into, list(zip(pixels.view(flat.shape).split(step), flat.split(step), strict=True)))
        return pixels

    def _normalise_into(self, part: tuple[Tensor, Tensor]) -> None:
        """Write images (n, C, H, W) uint8, the second, as normalised pixels into the first, by NumPy: it converts and
        divides in one pass, and rounds as torch does."""
        pixels, images = (each.numpy() for each in part)
        for channel in range(self.channels):
            layer = pixels[:, channel]
            np.divide(images[:, channel], np.float32(255), out=layer, dtype=np.float32)
            if self.mean:
                np.subtract(layer, np.float32(self.mean[channel]), out=layer)
                np.divide(layer, np.float32(self.std[channel]), out=layer)

    def _standardised(self, pixels: Tensor) -> Tensor:
        """Take the mean from pixels and divide by the deviation, in place."""
        if self.mean:
            shape = (self.channels, 1, 1)
            pixels.sub_(torch.tensor(self.mean, device=pixels.device).view(shape))
            pixels.div_(torch.tensor(self.std, device=pixels.device).view(shape))
        return pixels
