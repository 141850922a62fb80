"""Contact sheets: some images of each class on one picture, because a set should be looked at before it is used."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from scipy import ndimage

from arelu_meta.data.bundled.fonts import open_font
from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import InputError

TEXT_SIZE = 14
GAP = 2
PAPER, INK, OUTLINE = (255, 255, 255), (0, 0, 0), (255, 40, 40)
LONGEST_NAME = 28


def contact_sheet(images: ImageSet, *, rows: int = 20, columns: int = 16) -> Image.Image:
    """Draw up to `rows` lines of up to `columns` images, each line of one class with its name and size before it.

    With more classes than rows, classes are taken at even steps through the set; with fewer, a class has several lines.
    Images of a class are taken at even steps too. A mask is shown as a red outline.
    """
    shown = _even_steps(torch.nonzero(images.counts()).squeeze(1), rows)
    lines = max(1, rows // max(1, len(shown)))
    font = open_font("DejaVuSans", TEXT_SIZE)
    titles = [_title(images, int(label)) for label in shown]
    margin = GAP * 4 + int(max((font.getlength(title) for title in titles), default=0))
    tile_size = 56 if images.masks is None else 128  # an outline must not cover what it surrounds
    zoom = max(1, round(tile_size / max(images.image_size)))
    height, width = (side * zoom + GAP for side in images.image_size)
    line_height = max(height, TEXT_SIZE + 2 * GAP)

    strips = []  # title or nothing, image numbers
    for label, title in zip(shown, titles, strict=True):
        members = _even_steps(torch.nonzero(images.labels == label).squeeze(1), lines * columns)
        strips += [
            (title if first == 0 else "", members[first : first + columns]) for first in range(0, len(members), columns)
        ]
    broadest = max((len(members) for _, members in strips), default=0)
    sheet = Image.new("RGB", (margin + broadest * width, max(1, len(strips)) * line_height), PAPER)
    pen = ImageDraw.Draw(sheet)
    for row, (title, members) in enumerate(strips):
        pen.text((GAP * 2, row * line_height + line_height // 2), title, fill=INK, font=font, anchor="lm")
        for column, number in enumerate(members.tolist()):
            tile = Image.fromarray(_tile(images, number, zoom))
            sheet.paste(tile, (margin + column * width, row * line_height))
    return sheet


def write_contact_sheet(images: ImageSet, path: str | Path) -> None:
    """Draw a contact sheet into a PNG file."""
    try:
        contact_sheet(images).save(path, format="PNG")
    except OSError as error:
        raise InputError(
            f"cannot write the contact sheet {str(path)!r}: {error.strerror}; choose another --out"
        ) from error


def _title(images: ImageSet, label: int) -> str:
    name = images.class_names[label]
    short = name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
    return f"{short} ({int((images.labels == label).sum())})"


def _even_steps(numbers: torch.Tensor, most: int) -> torch.Tensor:
    """Take at most so many numbers, at even steps from the first to the last."""
    if len(numbers) <= most:
        return numbers
    return numbers[torch.linspace(0, len(numbers) - 1, most).round().long()]


def _tile(images: ImageSet, number: int, zoom: int) -> NDArray[np.uint8]:
    """One image enlarged, as (height, width, 3); of channels other than 1 or 3 the first is shown in grey."""
    image = images.images[number].cpu().numpy().transpose(1, 2, 0)  # (H, W, C)
    colour = image if images.channels == 3 else image[..., :1].repeat(3, axis=2)
    tile = np.ascontiguousarray(colour.repeat(zoom, axis=0).repeat(zoom, axis=1))
    if images.masks is not None:
        mask = (images.masks[number, 0].cpu().numpy() > 0).repeat(zoom, axis=0).repeat(zoom, axis=1)
        tile[mask & ~ndimage.binary_erosion(mask)] = OUTLINE
    return tile
