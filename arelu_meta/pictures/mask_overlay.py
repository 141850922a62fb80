"""What a segmentation marked, drawn over the image: tinted, with an outline."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter, ImageOps

from arelu_meta.data.files.image_files import open_image
from arelu_meta.errors import InputError

COLOUR = (255, 0, 0)
TINT = 0.3  # share of the colour inside the outline


def mask_overlay(image: Image.Image, mask: Image.Image) -> Image.Image:
    """Draw a mask over an image of the same size.

    Args:
        image: the image, in any mode
        mask: 0 and 255, mode L; marked pixels at the border of what is marked are the outline, which is thicker on
            larger images

    >>> grey, mask = Image.new("L", (5, 5), 100), Image.new("L", (5, 5))
    >>> mask.paste(255, (1, 1, 4, 4))
    >>> drawn = mask_overlay(grey, mask)
    >>> drawn.getpixel((0, 0)), drawn.getpixel((1, 1)), drawn.getpixel((2, 2))
    ((100, 100, 100), (255, 0, 0), (146, 70, 70))
    """
    width = 2 * (1 + max(mask.size) // 512) + 1
    framed = Image.new("L", (mask.width + 2 * width, mask.height + 2 * width))  # the image's border is an outline too
    framed.paste(mask, (width, width))
    inner = framed.filter(ImageFilter.MinFilter(width)).crop((width, width, width + mask.width, width + mask.height))
    share = np.where(np.asarray(inner) > 0, TINT, np.asarray(mask) > 0)[:, :, None]
    pixels = np.asarray(image.convert("RGB"), dtype=np.float32)
    return Image.fromarray((pixels * (1 - share) + np.array(COLOUR) * share).round().astype(np.uint8))


def write_masks(
    files: Sequence[Path], mask: Callable[[int, tuple[int, int]], Image.Image], folder: Path
) -> tuple[list[str], list[str]]:
    """Write a mask and an overlay for each image file, `NAME_mask.png` and `NAME_overlay.png`.

    Args:
        files: the images; those in folders have their pictures in folders of the same names
        mask: gives the mask of a file by its number and the size of its image
        folder: where they are written

    Returns:
        The files of the masks and those of the overlays.

    Raises:
        InputError: an image can no longer be read, or a picture not be written.
    """
    places = [Path(os.path.abspath(file)) for file in files]
    root = Path(os.path.commonpath([place.parent for place in places]))
    stems = Counter(place.with_suffix("") for place in places)
    written: tuple[list[str], list[str]] = ([], [])
    for number, file in enumerate(places):
        place = folder / file.parent.relative_to(root)
        name = file.stem if stems[file.with_suffix("")] == 1 else file.name  # a.png beside a.jpg
        with open_image(file, str(file)) as opened:
            image = ImageOps.exif_transpose(opened)
            marked = mask(number, image.size)
            pictures = (marked, mask_overlay(image, marked))
        try:
            place.mkdir(parents=True, exist_ok=True)
            for kind, picture, paths in zip(("mask", "overlay"), pictures, written, strict=True):
                paths.append(str(place / f"{name}_{kind}.png"))
                picture.save(paths[-1])
        except OSError as error:
            raise InputError(f"cannot write the mask of {file} to {place}: {error}; choose another folder") from error
    return written
