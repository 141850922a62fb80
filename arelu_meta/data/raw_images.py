"""Images as people send them (arrays, image files' bytes, base64, a column of a table), made what a network takes."""

import base64
import binascii
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from arelu_meta.data.files.image_files import GREY_MODES, read_image
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.inputs import Inputs, fit_images
from arelu_meta.data.squares import squared_pixels
from arelu_meta.errors import InputError

ACCEPTED = (
    "images (N, C, H, W) or (N, H, W, C) as uint8 (0 to 255) or floats in [0, 1], or a list or column of image files: "
    "their bytes, or these in base64"
)


def prepare_images(images: Any, inputs: Inputs, *, name: str = "images") -> Tensor:
    """Bring images to what a network takes, in the way in which those that it was trained on were.

    Args:
        images: a tensor, an array or nested lists, (N, C, H, W) or (N, H, W, C), or one image (C, H, W) or (H, W, C):
            uint8 or whole numbers of 0 to 255, or floats in [0, 1]; or image files (PNG, JPEG, ...) as bytes or in
            base64, one or several, also as the one column of a DataFrame; or as `Path`, which no request can hold.
        inputs: what the network takes. Images of another size are resized, grey ones made colour and colour ones grey.
            A network of vectors takes rows of features (N, D) of any value.
        name: what messages call the images.

    Returns:
        Normalised pixels, (N, channels, height, width) float32.

    Raises:
        InputError: something else, or images that cannot be brought to that shape.

    Example:
        >>> grey = np.full((2, 28, 28, 1), 255, np.uint8)
        >>> prepare_images(grey, Inputs(3, 32, mean=(0.5,) * 3, std=(0.25,) * 3)).shape
        torch.Size([2, 3, 32, 32])
    """
    if inputs.vectors:
        return _vectors(images, inputs, name)
    images = _listed(images)
    if isinstance(images, list) and not images:
        images = torch.zeros(0, inputs.channels, *inputs.size)
    if isinstance(images, list) and any(isinstance(item, bytes | bytearray | str | Path) for item in images):
        # Each by itself: files may differ in size before they are resized.
        parts = [_fitted(_decoded(file, f"{name} {i}"), inputs, name) for i, file in enumerate(images)]
        if len({part.shape for part in parts}) > 1:
            raise InputError(f"{name} differ in size, and the network takes any; resize them to one size")
        pixels = torch.cat(parts)
    else:
        pixels = _fitted(_channels_first(_tensor(images, name), inputs, name), inputs, name)
    return inputs.normalise(pixels.float() / 255 if pixels.dtype == torch.uint8 else pixels.float())


def _vectors(rows: Any, inputs: Inputs, name: str) -> Tensor:
    """Normalise rows of features (N, D), or (N, D, 1, 1) as they are in a set, to (N, D, 1, 1) float32."""
    try:
        found = rows.float() if isinstance(rows, Tensor) else torch.from_numpy(np.asarray(rows, dtype=np.float32))
    except (TypeError, ValueError):
        raise InputError(f"{name}: this {type(rows).__name__} is no array of numbers; give (N, features)") from None
    if found.dim() not in (2, 4) or found.shape[1:].numel() != inputs.channels:
        raise InputError(f"{name} are {tuple(found.shape)}; the network takes vectors (N, {inputs.channels})")
    if not found.isfinite().all():
        raise InputError(f"{name} hold numbers that are not finite; leave such rows out")
    return inputs.normalise(found.reshape(-1, inputs.channels, 1, 1))


def _listed(images: Any) -> Any:
    """Give files as a list, from the one column of a table, from an array of objects or text, or a file by itself."""
    if hasattr(images, "columns"):  # a DataFrame
        if len(images.columns) != 1:
            columns = ", ".join(str(column) for column in images.columns)
            raise InputError(f"the table has columns {columns}; give one column of image files: bytes or base64")
        images = images.iloc[:, 0] if len(images) else []
    if not isinstance(images, Tensor) and getattr(getattr(images, "dtype", None), "kind", "") in ("O", "S", "U", "T"):
        images = images.tolist()
    if isinstance(images, tuple):
        images = list(images)
    return [images] if isinstance(images, bytes | bytearray | str | Path) else images


def _decoded(file: Any, name: str) -> Tensor:
    """Decode an image file to (1, C, H, W) uint8, grey or in colour as it is."""
    if isinstance(file, str):
        try:
            file = base64.b64decode(file, validate=True)
        except (binascii.Error, ValueError):
            raise InputError(f"{name} is text and no base64; give {ACCEPTED}") from None
    if isinstance(file, Path):
        name = str(file)
    elif not isinstance(file, bytes | bytearray):
        raise InputError(f"{name} is a {type(file).__name__} among image files; give {ACCEPTED}")

    def convert(image: Image.Image) -> Image.Image:
        if image.mode.startswith(("I", "F")):
            raise InputError(f"{name} has more than 8 bits per channel (mode {image.mode}); convert it to 8-bit")
        return image.convert("L" if image.mode in GREY_MODES else "RGB")

    return read_image(file if isinstance(file, Path) else BytesIO(file), name, convert).unsqueeze(0)


def _tensor(images: Any, name: str) -> Tensor:
    """Give numbers as a tensor of uint8, or of floats that are in [0, 1]."""
    if not isinstance(images, Tensor):
        if isinstance(images, Sequence) and any(isinstance(item, Tensor) for item in images):
            images = [np.asarray(item) for item in images]
        try:
            images = torch.from_numpy(np.array(images))
        except (TypeError, ValueError):
            raise InputError(f"{name}: this {type(images).__name__} is no array of numbers; give {ACCEPTED}") from None
    if images.is_complex():
        raise InputError(f"{name} are complex numbers; give {ACCEPTED}")
    if images.dtype in (torch.uint16, torch.uint32, torch.uint64):  # torch has no minimum of these
        images = images.long()
    if images.dtype in (torch.uint8, torch.bool):
        return images if images.dtype == torch.uint8 else images.to(torch.uint8) * 255
    if not images.numel():
        return images.float()
    low, high = images.min().item(), images.max().item()
    if images.is_floating_point():
        if not (low >= 0 and high <= 1):  # false for NaN as well
            raise InputError(f"pixels run from {low:g} to {high:g}; give floats in [0, 1], or uint8: 0 to 255")
        return images
    if not (low >= 0 and high <= 255):
        raise InputError(f"pixels run from {low} to {high}; give whole numbers of 0 to 255, or floats in [0, 1]")
    return images.to(torch.uint8)


def _channels_first(images: Tensor, inputs: Inputs, name: str) -> Tensor:
    """Bring images to (N, C, H, W); which axis holds the channels must be plain from its length."""
    batch = images.unsqueeze(0) if images.dim() == 3 else images
    shape = tuple(images.shape)
    if 0 in batch.shape[1:]:
        raise InputError(f"{name} are {shape}, which is no pixel at all; give {ACCEPTED}")
    fits = all(wanted in (0, side) for wanted, side in zip(inputs.size, shape[1:], strict=False))
    if inputs.channels == 1 and len(shape) == 3 and shape[0] == 3 and fits:
        raise InputError(
            f"{name} are {shape}: three grey ones, or one in colour? give (3, 1, {shape[1]}, {shape[2]}) or "
            f"(1, 3, {shape[1]}, {shape[2]})"
        )
    if batch.dim() == 4:
        counts = {1, 3, inputs.channels}
        first, last = batch.shape[1] in counts, batch.shape[3] in counts
        if first and (not last or tuple(batch.shape[1:]) == (inputs.channels, *inputs.size)):
            return batch
        if last and not first:
            return batch.permute(0, 3, 1, 2).contiguous()
    wanted = ", ".join(str(side or "any") for side in (inputs.channels, *inputs.size))
    raise InputError(f"{name} are {shape}; the network takes (N, {wanted}), channels first or last")


def _fitted(images: Tensor, inputs: Inputs, name: str) -> Tensor:
    """Bring images (N, C, H, W) to the channels and the size of the network, through bytes as in training."""
    height, width = inputs.size
    fits = (height or images.shape[2], width or images.shape[3]) == tuple(images.shape[2:])
    # Files were made squares of `read_size` before anything else, those of the network's own size too.
    reads = bool(inputs.read_size) and not (fits and not inputs.read_resize)
    reads = reads and tuple(images.shape[2:]) != (inputs.read_size,) * 2
    if (fits and not reads and images.shape[1] == inputs.channels and inputs.crop_pct == 1) or not len(images):
        return images
    if not fits and inputs.sides:
        given = "x".join(str(side) for side in images.shape[2:])
        raise InputError(f"{name} are {given}; the network takes {height}x{width}, resize them to that")
    pixels = images if images.dtype == torch.uint8 else (images * 255).round().to(torch.uint8)
    if reads:
        pixels = squared_pixels(pixels, inputs.read_size, inputs.read_resize or "squash")
    raw = ImageSet(name, pixels, torch.zeros(len(pixels), dtype=torch.int64), ("",))
    return fit_images(
        raw,
        channels=inputs.channels,
        image_size=inputs.image_size,
        resize=inputs.resize,
        crop_pct=inputs.crop_pct,
    ).tensor
