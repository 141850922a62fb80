"""Rectangles drawn for each image of a batch: random resized crops with mirroring, and random erasing.

They are drawn as torchvision's `RandomResizedCrop` and `RandomErasing` draw them: a share of the area and the logarithm
of the aspect ratio are uniform, ten attempts.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from arelu_meta.runtime.sharing import share_out

ATTEMPTS = 10
CROP_RATIO = (3 / 4, 4 / 3)
ERASED_SCALE, ERASED_RATIO = (0.02, 0.33), (0.3, 3.3)
LARGE = 1 << 14  # values of an image from which on cropping is shared out
PARTS = 8  # that they are shared out in: crops differ in size


@dataclass(frozen=True)
class Rectangles:
    """One rectangle for each of n images, in pixels, (n,) int64 each on the CPU; `mirrored` (n,) bool."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor
    mirrored: Tensor

    def __getitem__(self, chosen: slice) -> "Rectangles":
        return Rectangles(*(getattr(self, each.name)[chosen] for each in fields(self)))

    def rows(self) -> list[tuple[int, int, int, int, bool]]:
        """Top, left, height, width and whether it is mirrored, for each image."""
        return list(zip(*(getattr(self, each.name).tolist() for each in fields(self)), strict=True))

    def covers(self, height: int, width: int) -> Tensor:
        """Which pixels of images are inside, (n, 1, height, width) bool."""
        rows, columns = torch.arange(height), torch.arange(width)
        inside_rows = (rows >= self.top.unsqueeze(1)) & (rows < (self.top + self.height).unsqueeze(1))
        inside_columns = (columns >= self.left.unsqueeze(1)) & (columns < (self.left + self.width).unsqueeze(1))
        return (inside_rows.unsqueeze(2) & inside_columns.unsqueeze(1)).unsqueeze(1)


def _drawn(
    count: int,
    size: tuple[int, int],
    random: torch.Generator,
    *,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    largest: tuple[int, int],
) -> tuple[Rectangles, Tensor]:
    """Draw rectangles no larger than `largest`, and say for which images one of the attempts gave one."""
    uniform = torch.rand(2, count, ATTEMPTS, generator=random, dtype=torch.float64)
    area = size[0] * size[1] * (scale[0] + (scale[1] - scale[0]) * uniform[0])
    aspect = ratio[0] * (ratio[1] / ratio[0]) ** uniform[1]
    places = torch.rand(2, count, generator=random, dtype=torch.float64)
    mirrored = torch.rand(count, generator=random) < 0.5
    widths, heights = (area * aspect).sqrt().round().long(), (area / aspect).sqrt().round().long()
    fits = (widths > 0) & (widths <= largest[1]) & (heights > 0) & (heights <= largest[0])
    first = fits.int().argmax(1, keepdim=True)  # the first attempt that fits
    height, width = heights.gather(1, first).squeeze(1), widths.gather(1, first).squeeze(1)
    top, left = ((places[0] * (size[0] - height + 1)).long(), (places[1] * (size[1] - width + 1)).long())
    return Rectangles(top, left, height, width, mirrored), fits.any(1)


def draw_crops(
    count: int, size: tuple[int, int], random: torch.Generator, *, scale: tuple[float, float] = (0.08, 1.0)
) -> Rectangles:
    """Draw the crops of torchvision's `RandomResizedCrop`, half of them mirrored.

    Args:
        count: images.
        size: height and width of the images.
        random: generator on the CPU.
        scale: smallest and largest share of the area.
    """
    drawn, found = _drawn(count, size, random, scale=scale, ratio=CROP_RATIO, largest=size)
    height, width = size
    whole = min(max(width / height, CROP_RATIO[0]), CROP_RATIO[1])  # aspect ratio of the centre that is taken else
    centre = (min(height, round(width / whole)), min(width, round(height * whole)))
    places = ((height - centre[0]) // 2, (width - centre[1]) // 2)
    names = ("top", "left", "height", "width")
    values = dict(zip(names, (*places, *centre), strict=True))
    return replace(drawn, **{name: getattr(drawn, name).where(found, value) for name, value in values.items()})


def crop_resized(images: Tensor, crops: Rectangles, *, nearest: bool = False) -> Tensor:
    """Cut each image's rectangle out and resample it to the size of the image: (n, C, H, W) uint8 -> the same.

    Args:
        images: on any device.
        crops: a rectangle for each.
        nearest: keep values, as masks need it; else bilinear.
    """
    size = images.shape[2:]
    if images.device.type != "cpu":
        return _crop_by_grid(images, crops, nearest=nearest)
    mode: dict[str, object] = {"mode": "nearest-exact"} if nearest else {"mode": "bilinear", "antialias": True}
    rows, cropped = crops.rows(), torch.empty_like(images)

    def crop(numbers: range) -> None:
        for number in numbers:  # one by one: torch has fast kernels for bytes, and none with a rectangle for each image
            top, left, height, width, mirrored = rows[number]
            part = images[number : number + 1, :, top : top + height, left : left + width]
            part = part.flip(-1) if mirrored else part
            cropped[number : number + 1] = F.interpolate(part, size=size, **mode)  # type: ignore[arg-type]

    # Small ones take longer to call for than to compute, and Python calls for one at a time.
    share_out(crop, list(_divided(len(images), PARTS if images[:1].numel() >= LARGE else 1)))
    return cropped


def _divided(count: int, parts: int) -> Iterator[range]:
    """Divide numbers into parts of nearly the same length.

    >>> list(_divided(5, 2))
    [range(0, 2), range(2, 5)]
    """
    for part in range(min(parts, count)):
        yield range(count * part // min(parts, count), count * (part + 1) // min(parts, count))


def _crop_by_grid(images: Tensor, crops: Rectangles, *, nearest: bool) -> Tensor:
    """Do the same for all images at once, which takes floats: on a GPU a few kernels in place of hundreds."""
    height, width = images.shape[2:]
    mirror = torch.where(crops.mirrored, -1.0, 1.0)
    matrix = torch.zeros(len(images), 2, 3)  # from the result in [-1, 1] to the image in [-1, 1]
    matrix[:, 0, 0], matrix[:, 1, 1] = mirror * crops.width / width, crops.height / height
    matrix[:, 0, 2] = (2 * crops.left + crops.width) / width - 1
    matrix[:, 1, 2] = (2 * crops.top + crops.height) / height - 1
    grid = F.affine_grid(matrix.to(images.device), list(images.shape), align_corners=False)
    edges = torch.stack([crops.left, crops.top, crops.left + crops.width - 1, crops.top + crops.height - 1]).float()
    sides = torch.tensor([width, height, width, height]).view(4, 1)
    low_x, low_y, high_x, high_y = ((2 * edges + 1) / sides - 1).to(images.device).view(4, -1, 1, 1)
    # Pixels outside of the rectangle must not come in at its border.
    grid = torch.stack([grid[..., 0].clamp(low_x, high_x), grid[..., 1].clamp(low_y, high_y)], -1)
    mode = "nearest" if nearest else "bilinear"
    sampled = F.grid_sample(images.float(), grid, mode=mode, padding_mode="border", align_corners=False)
    return sampled.round().clamp(0, 255).to(torch.uint8)


def erase(images: Tensor, random: torch.Generator, *, share: float, fill: tuple[float, ...] = ()) -> Tensor:
    """Erase a rectangle of a share of the images, as torchvision's `RandomErasing` draws it.

    Args:
        images: (n, C, H, W) uint8.
        random: generator on the CPU.
        share: of the images.
        fill: the colour that is put there, per channel in [0, 1]: the mean of the training images, which becomes 0 when
            they are normalised; empty: black.
    """
    count, channels, height, width = images.shape
    drawn, found = _drawn(
        count,
        (height, width),
        random,
        scale=ERASED_SCALE,
        ratio=(1 / ERASED_RATIO[1], 1 / ERASED_RATIO[0]),  # torchvision's ratio is height to width here
        largest=(height - 1, width - 1),
    )
    chosen = found & (torch.rand(count, generator=random) < share)
    inside = (drawn.covers(height, width) & chosen.view(-1, 1, 1, 1)).to(images.device)
    colour = torch.tensor(fill or (0.0,) * channels, device=images.device).mul(255).round().to(torch.uint8)
    return torch.where(inside, colour.view(1, -1, 1, 1), images)
