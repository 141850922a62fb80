"""What images a network takes: channels, size and normalisation, and how they are made of others; a set made so."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.rows import HostImages, ImageRows
from arelu_meta.data.squares import Resize, centre, scaled_size
from arelu_meta.errors import InputError
from arelu_meta.reading import parse_json
from arelu_meta.runtime.hardware import available_memory, image_memory

LARGEST = 1 << 16  # channels, and pixels a side
LUMINANCE = (0.299, 0.587, 0.114)  # ITU-R BT.601, as PIL and torchvision convert
METADATA_KEY = "arelu_meta_inputs"  # in the header of our safetensors files


@dataclass(frozen=True)
class Inputs:
    """What images a network takes, and how images of another shape are brought to that.

    Args:
        channels: colour channels.
        image_size: height and width in pixels; 0: any, or not square.
        mean: per channel, of pixels in [0, 1]; empty: unknown, or not normalised.
        std: standard deviation per channel.
        resize: how other sizes are brought to this one, see `data.squares`.
        read_size: side of the squares that image files were read as, before `resize`; 0: read as they are.
        read_resize: how they were made squares; empty: squashed, but for those of the network's own size, which were
            left as they are (models that were stored before there was a choice).
        sides: height and width where they differ.
        vectors: whether it takes vectors of `channels` features, of any value, in place of images.
        crop_pct: share of the side that is cut out of the centre when images are resampled (timm's word); 1: all.

    Example:
        >>> str(Inputs(3, 32, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25)))
        '3x32x32, mean 0.5 0.5 0.5, deviation 0.25 0.25 0.25'
    """

    channels: int
    image_size: int = 0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    resize: Resize = "scale"
    read_size: int = 0
    read_resize: Resize | Literal[""] = "scale"
    sides: tuple[int, ...] = ()
    vectors: bool = False
    crop_pct: float = 1.0

    @property
    def size(self) -> tuple[int, int]:
        """Height and width; 0: any."""
        height, width = self.sides or (self.image_size, self.image_size)
        return height, width

    def normalise(self, pixels: Tensor) -> Tensor:
        """Take the mean from pixels in [0, 1], (N, C, H, W), and divide by the deviation."""
        if not self.mean:
            return pixels
        mean, std = (pixels.new_tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
        return (pixels - mean) / std

    def metadata(self, class_names: tuple[str, ...] = ()) -> dict[str, str]:
        """Entry for a safetensors header, with the classes in the order of the logits."""
        return {METADATA_KEY: json.dumps({**asdict(self), "class_names": class_names})}

    def __str__(self) -> str:
        side = f"{self.channels} features" if self.vectors else f"{self.channels}x{self.image_size}x{self.image_size}"
        if not self.mean:
            return side if self.vectors else f"{side}, pixels in [0, 1]"
        mean, std = (" ".join(f"{value:.3g}" for value in values) for values in (self.mean, self.std))
        return f"{side}, mean {mean}, deviation {std}"


def from_metadata(metadata: Mapping[str, str] | None) -> Inputs | None:
    """Read the entry of a safetensors header; None where there is none."""
    if not metadata or METADATA_KEY not in metadata:
        return None
    return from_values(parse_json(metadata[METADATA_KEY], "the header of the weights"))


def from_values(values: Mapping[str, Any]) -> Inputs:
    """Make inputs of plain values; files of earlier versions lack some, and know other keys besides.

    Where `read_resize` is missing, `scale` meant what is `squash` now.

    Raises:
        InputError: a value is not of its type, or no network takes such images.
    """
    known: dict[str, Any] = {name: values[name] for name in Inputs.__dataclass_fields__ if name in values}
    known |= {name: tuple(value) for name, value in known.items() if isinstance(value, list)}
    if "read_resize" not in known:
        known["read_resize"] = ""
        known["resize"] = "squash" if known.get("resize", "scale") == "scale" else known["resize"]
    whole, many, words = ("channels", "image_size", "read_size"), ("mean", "std", "sides"), get_args(Resize)
    right = "channels" in known and known.get("resize", "scale") in words and known["read_resize"] in ("", *words)
    right = right and all(type(known.get(name, 0)) is int and 0 <= known.get(name, 0) <= LARGEST for name in whole)
    right = right and all(
        isinstance(known.get(name, ()), tuple)
        and len(known.get(name, ())) in (0, 2 if name == "sides" else known["channels"])
        and all(isinstance(each, int | float) and math.isfinite(each) for each in known.get(name, ()))
        for name in many
    )
    share = known.get("crop_pct", 1.0)
    right = right and isinstance(share, int | float) and 0 < share <= 1
    if not right or not all(type(side) is int and 0 < side <= LARGEST for side in known.get("sides", ())):
        raise InputError(f"no network takes images of {dict(known)!r:.200}; store the network anew")
    return Inputs(**known)


def inputs_of(images: ImageSet, *, resize: Resize = "scale") -> Inputs:
    """What a network that was trained on these images takes, and how they were read."""
    height, width = images.image_size
    square = height == width
    return Inputs(
        images.channels,
        height if square else 0,
        images.mean,
        images.std,
        resize=resize,
        read_size=images.provenance.read_size,
        read_resize=images.provenance.read_resize,
        sides=() if square else (height, width),
        vectors=images.is_vectors,
    )


def _check_fit(images: ImageSet, channels: int, image_size: int) -> None:
    """Refuse a shape of images for vectors, and one that does not go into memory."""
    if images.is_vectors and (channels or image_size):
        asked = f"`channels` {channels}" if channels else f"`image_size` {image_size}"
        held = f"{images.name} holds vectors of {images.channels} features"
        raise InputError(f"{held}, and {asked} is of images; leave it out, or give images")
    needed = len(images) * (channels or images.channels) * image_size**2
    if images.masks is not None and needed > available_memory():
        raise InputError(
            f"{len(images)} images of {image_size}x{image_size} take {needed >> 30} GiB, more than this machine has; "
            "lower `image_size`"
        )


def fit_images(
    images: ImageSet, *, channels: int = 0, image_size: int = 0, resize: Resize = "scale", crop_pct: float = 1.0
) -> ImageSet:
    """Bring a set to a number of channels and to square images of one size.

    Args:
        images: the set, of 1 or 3 channels where these change.
        channels: grey becomes colour by repetition, colour grey by luminance; 0 leaves them as they are.
        image_size: height and width in pixels; 0 leaves them as they are.
        resize: `scale` resamples (bilinear, antialiased; masks by nearest neighbour) the shorter side to that size and
            cuts out the centre, `squash` resamples both sides, `crop` cuts out the centre of the pixels as they are.
        crop_pct: resample to `image_size` / `crop_pct` instead, rounded down, and cut the centre out of that.

    Returns:
        The set with images (N, channels, image_size, image_size), and masks of that size if it has any.

    Raises:
        InputError: channels that cannot be converted, or a crop larger than the images.

    Example:
        >>> grey = ImageSet("one", torch.full((1, 1, 32, 32), 7, dtype=torch.uint8), torch.zeros(1).long(), ("a",))
        >>> fit_images(grey, channels=3, image_size=28, resize="crop").images.shape
        torch.Size([1, 3, 28, 28])
    """
    _check_fit(images, channels, image_size)
    if images.is_vectors:
        return images
    fit = Fit(channels, image_size, resize, crop_pct, images.name)
    shape = fit.shape(images.channels, *images.image_size)
    if shape == (images.channels, *images.image_size) and crop_pct == 1:
        return images
    pixels, masks = images.images, images.masks
    if isinstance(pixels, Tensor) and masks is None and len(images) * math.prod(shape) > image_memory():
        pixels = ImageRows(HostImages(pixels.cpu(), images.digest), torch.arange(len(images)), images.device)
    if isinstance(pixels, ImageRows):
        return replace(images, images=pixels.converted(fit, shape))
    if masks is not None and images.image_size != shape[1:]:  # segmentation knows no `crop_pct`
        size = scaled_size(*images.image_size, image_size, resize)
        masks = fit.cut(masks if size == images.image_size else F.interpolate(masks, size=size))
    return replace(images, images=fit(pixels), masks=masks)


@dataclass(frozen=True)
class Fit:
    """Bring images (n, C, H, W) uint8 to a number of channels and a size; what is 0 stays as it is."""

    channels: int
    image_size: int
    resize: Resize
    crop_pct: float
    name: str = field(repr=False)

    def shape(self, channels: int, height: int, width: int) -> tuple[int, int, int]:
        """Channels, height and width of what it makes of such images.

        Raises:
            InputError: channels that cannot be converted, or a crop larger than the images.
        """
        wanted, side = self.channels or channels, self.image_size
        if wanted != channels and channels != 1 and (channels, wanted) != (3, 1):
            raise InputError(f"{self.name} has {channels} channels, which cannot be turned into {wanted}")
        if self.resize == "crop" and side > min(height, width):
            raise InputError(
                f"{self.name} has images of {height}x{width}; {side}x{side} cannot be cut out of them, "
                "set `resize` to scale"
            )
        return (wanted, side, side) if side else (wanted, height, width)

    def __call__(self, images: Tensor) -> Tensor:
        """Convert channels first, then the size."""
        channels, *shape = self.shape(*images.shape[1:])
        if channels != images.shape[1] and images.shape[1] == 1:
            images = images.expand(-1, channels, -1, -1).contiguous()
        elif channels != images.shape[1]:
            weights = torch.tensor(LUMINANCE, device=images.device).view(1, 3, 1, 1)
            images = (images.float() * weights).sum(1, keepdim=True).round().to(torch.uint8)
        if list(images.shape[2:]) == shape and (self.crop_pct == 1 or not self.image_size):
            return images
        height, width = images.shape[2:]
        size = scaled_size(height, width, math.floor(self.image_size / self.crop_pct), self.resize)
        if (height, width) == size:
            return self.cut(images)
        scaled = []
        for chunk in images.split(4096):  # no float copy of the whole set
            small = F.interpolate(chunk.float(), size=size, mode="bilinear", align_corners=False, antialias=True)
            scaled.append(self.cut(small.round().clamp(0, 255).to(torch.uint8)))
        return torch.cat(scaled)

    def cut(self, images: Tensor) -> Tensor:
        """Cut the centre out of images (n, C, H, W)."""
        side = self.image_size
        top, left = (centre(whole, side, self.resize) for whole in images.shape[2:])
        return images[:, :, top : top + side, left : left + side].contiguous()
