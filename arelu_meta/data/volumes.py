"""Slices of patients as volumes: prepared and drawn as Buda, Saha and Mazurowski 2019 do.

What is done to a slice depends on all slices of its patient. The procedure is read from dataset.py and utils.py of
github.com/mateuszbuda/brain-segmentation-pytorch at 11e6c78. There, slices are resampled by splines of the second
order; here as everywhere else in the package.
"""

from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.inputs import fit_images
from arelu_meta.data.squares import Resize
from arelu_meta.errors import InputError

BACKGROUND = 0.1  # of a volume's brightest pixel: what is darker is set to zero before the volume is cut
EVENLY = 0.1  # share, relative to that of the areas, with which all slices of a volume are drawn alike


def prepare_volumes(
    images: ImageSet,
    *,
    image_size: int = 0,
    drop_ends: bool = False,
    crop: bool = False,
    percentiles: tuple[float, ...] = (),
    standardise: bool = False,
    resize: Resize = "scale",
) -> ImageSet:
    """Prepare each patient's slices as one volume, in this order; the slices of a patient are in theirs.

    Args:
        images: a set with masks whose groups are patients.
        image_size: side of the slices, as `fit_images` makes it by `resize`; 0: as they are, or the longer one, if cut.
        drop_ends: leave out the first and the last slice.
        crop: set pixels below a tenth of the brightest to zero, cut the volume to what is left and pad it to a square.
        percentiles: two percentiles over all pixels of the volume that become 0 and 255; empty: pixels stay.
        standardise: have `pixels` subtract each volume's own mean and divide by its deviation, channel by channel.

    Returns:
        The set of the slices that are left, patient by patient, all of one size.

    Raises:
        InputError: the set has no masks or patients, or a volume is black, of one brightness, or has no slice left.

    Example:
        >>> from arelu_meta import data
        >>> phantom = data.load("phantom")  # 12 slices of each of 30 patients
        >>> len(prepare_volumes(phantom, drop_ends=True))
        300
    """
    if images.masks is None or images.groups is None:
        raise InputError(f"{images.name} has no masks or names no patients, so it has no volumes to prepare")
    side = image_size or (max(images.image_size) if crop else 0)
    size = (side, side) if side else images.image_size
    pixels = images.tensor.new_empty(len(images), images.channels, *size)
    masks = images.masks.new_empty(len(images), 1, *size)
    kept, done = list[Tensor](), 0
    statistics = torch.ones(len(images.group_names), 2, images.channels, device=images.device)
    for group in images.groups.unique().tolist():
        numbers = torch.nonzero(images.groups == group).squeeze(1)[slice(1, -1) if drop_ends else slice(None)]
        volume, inside = _prepared(images.subset(numbers), images.group_names[group], crop, side, percentiles, resize)
        part = slice(done, done := done + len(volume))
        pixels[part] = volume.tensor
        if volume.masks is not None:
            masks[part] = volume.masks
        kept.append(numbers[inside])
        statistics[group] = torch.tensor(volume.channel_statistics()).clamp(min=1e-6)
    return _with_slices(images, torch.cat(kept), pixels[:done], masks[:done], statistics if standardise else None)


def _prepared(
    volume: ImageSet, patient: str, crop: bool, side: int, percentiles: tuple[float, ...], resize: Resize
) -> tuple[ImageSet, slice]:
    """Prepare the volume of some slices; also say which of them are left."""
    name, inside = f"volume {patient} of {volume.name}", slice(len(volume))
    if not len(volume):
        raise InputError(f"{name} has no slice but its ends; switch `drop_ends` off, or move it elsewhere")
    if crop:
        volume, inside = _cropped(volume, name)
    volume = fit_images(volume, image_size=side, resize=resize)
    if percentiles:
        volume = replace(volume, images=_stretched(volume.tensor, percentiles, name))
    return volume, inside


def _with_slices(images: ImageSet, kept: Tensor, pixels: Tensor, masks: Tensor, statistics: Tensor | None) -> ImageSet:
    """Replace the images of a set by those of some of its slices, whose numbers are `kept`."""
    place = torch.full((len(images),), -1, device=images.device)
    place[kept] = torch.arange(len(kept), device=images.device)
    subsets = {name: place[numbers.to(place.device)].cpu() for name, numbers in images.subsets.items()}
    return replace(
        images,
        images=pixels,
        masks=masks,
        labels=images.labels[kept],
        groups=None if images.groups is None else images.groups[kept],
        subsets={name: numbers[numbers >= 0] for name, numbers in subsets.items()},
        volume_statistics=statistics,
    )


def _cropped(volume: ImageSet, name: str) -> tuple[ImageSet, slice]:
    """Cut a volume to the box that holds all pixels but the background, padded to a square; also say which slices."""
    brightest = int(volume.tensor.max())
    if not brightest:
        raise InputError(f"{name} is black; switch `crop_volumes` off, or move it elsewhere")
    pixels = volume.tensor.masked_fill(volume.tensor < brightest * BACKGROUND, 0)
    occupied = pixels.amax(1) > 0  # (slices, H, W)
    low, high = torch.nonzero(occupied).aminmax(dim=0)
    slices, rows, columns = (slice(int(first), int(last) + 1) for first, last in zip(low, high, strict=True))
    height, width = rows.stop - rows.start, columns.stop - columns.start
    missing = abs(height - width)
    ends = (missing // 2, missing - missing // 2)
    padding = (*ends, 0, 0) if height > width else (0, 0, *ends)  # left, right, top, bottom
    part = volume.subset(torch.arange(len(volume), device=volume.device)[slices])
    cut = F.pad(pixels[slices, :, rows, columns], padding)
    mask = None if part.masks is None else F.pad(part.masks[:, :, rows, columns], padding)
    return replace(part, images=cut, masks=mask), slices


def _stretched(pixels: Tensor, percentiles: tuple[float, ...], name: str) -> Tensor:
    """Spread what lies between two percentiles of a volume over 0 to 255; what lies outside is cut off."""
    low, high = (float(value) for value in np.percentile(pixels.cpu().numpy(), percentiles))
    if high <= low:
        raise InputError(
            f"{name} has {low:g} at both percentiles {' and '.join(f'{share:g}' for share in percentiles)}; "
            f"widen `percentiles`, or move the volume elsewhere"
        )
    return ((pixels.float() - low) / (high - low)).clamp(0, 1).mul(255).round().to(torch.uint8)


def slice_weights(images: ImageSet) -> Tensor:
    """Give the probability (N,) of each slice when a patient is drawn, and one of its slices by the area of its mask.

    Of a patient with masks of A pixels in all on n slices, a slice with a pixels has (a + A / 10n) / 1.1 A, so that
    slices without a mark are drawn too; without any mark all of its slices have the same.

    Raises:
        InputError: the set has no masks or patients.

    >>> slices = torch.zeros(2, 1, 1, 2, dtype=torch.uint8)
    >>> masks, groups = torch.tensor([[[[1, 1]]], [[[0, 0]]]]), torch.zeros(2, dtype=torch.int64)
    >>> one = ImageSet("one", slices, groups, ("a",), masks=masks, groups=groups, group_names=("p",))
    >>> slice_weights(one)  # (2 + 0.1) / 2.2 and 0.1 / 2.2
    tensor([0.9545, 0.0455], dtype=torch.float64)
    """
    if images.masks is None or images.groups is None:
        raise InputError(f"{images.name} has no masks or names no patients, so no slice is drawn by its area")
    area = images.masks.flatten(1).sum(1).double().cpu()
    patients, of_slice = images.groups.cpu().unique(return_inverse=True)
    total = torch.zeros(len(patients), dtype=torch.float64).index_add(0, of_slice, area)[of_slice]
    count = torch.bincount(of_slice).double()[of_slice]
    by_area = (area + EVENLY * total / count) / ((1 + EVENLY) * total)
    return torch.where(total > 0, by_area, 1 / count) / len(patients)
