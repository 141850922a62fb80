"""An image set in words and as a contact sheet, because a set should be looked at before it is used."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from scipy import ndimage

from arelu_meta.data.bundled import open_font
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.rows import ImageRows
from arelu_meta.errors import InputError

TEXT_SIZE = 14
GAP = 2
PAPER, INK, OUTLINE = (255, 255, 255), (0, 0, 0), (255, 40, 40)
LONGEST_NAME = 28


def describe(images: ImageSet) -> str:
    """Size, classes, images per class, subsets, groups, masks, digest and provenance of a set, one per line."""
    height, width = images.image_size
    counts = images.counts()
    median = float(counts.double().quantile(0.5))
    place = f", in {images.images.source.place}" if isinstance(images.images, ImageRows) else ""
    size = f"{images.channels}x{height}x{width}, {images.images.nbytes / 1e6:.1f} MB"
    lines = [
        ("name", images.name),
        ("images", f"{len(images):,} of {size}{place}"),
        ("classes", _listed(images.class_names)),
        ("per class", f"min {int(counts.min())}, median {median:g}, max {int(counts.max())}"),
    ]
    for subset, numbers in images.subsets.items():
        classes = len(set(images.labels[numbers].tolist()))
        lines.append((f"subset {subset}", f"{len(numbers):,} images of {classes:,} classes"))
    if images.groups is not None:
        lines.append(("groups", _listed(images.group_names)))
    if images.masks is not None:
        filled = int(images.masks.flatten(1).any(1).sum())
        share = float((images.masks > 0).double().mean())
        lines.append(("masks", f"{filled:,} of {len(images):,} not empty, {share:.2%} of the pixels"))
    if images.targets is not None:
        low, high = (float(end) for end in images.targets.aminmax())
        lines.append(("targets", f"real numbers from {low:.3g} to {high:.3g}; classes are functions"))
    lines += [
        ("digest", images.digest),
        ("source", images.provenance.source),
        ("verified", "yes" if images.provenance.verified else "no: no publisher is known to have these very files"),
    ]
    lines += [(f"file {name}", sha) for name, sha in images.provenance.files.items()]
    widest = max(len(key) for key, _ in lines)
    return "\n".join(f"{key:<{widest}}  {value}" for key, value in lines)


def facts(images: ImageSet) -> dict[str, object]:
    """The same for scripts, as plain values for JSON."""
    height, width = images.image_size
    return {
        "name": images.name,
        "images": len(images),
        "channels": images.channels,
        "height": height,
        "width": width,
        "classes": dict(zip(images.class_names, images.counts().tolist(), strict=True)),
        "subsets": {subset: len(numbers) for subset, numbers in images.subsets.items()},
        "groups": len(images.group_names),
        "digest": images.digest,
        "source": images.provenance.source,
        "verified": images.provenance.verified,
    }


def _listed(names: Sequence[str], most: int = 10) -> str:
    """Count names and list the first of them.

    >>> _listed(["a", "b", "c"], most=2)
    '3: a, b, ...'
    """
    return f"{len(names):,}: {', '.join(names[:most])}{', ...' if len(names) > most else ''}"


def contact_sheet(images: ImageSet, *, rows: int = 20, columns: int = 16) -> Image.Image:
    """Draw up to `rows` lines of up to `columns` images, each line of one class with its name and size before it.

    With more classes than rows, classes are taken at even steps through the set; with fewer, a class has several lines.
    Images of a class are taken at even steps too. A mask is shown as a red outline.
    """
    if images.is_vectors:
        raise InputError(f"{images.name} holds vectors of {images.channels} features; a contact sheet shows images")
    shown = _even_steps(torch.nonzero(images.counts()).squeeze(1), rows)
    lines = max(1, rows // max(1, len(shown)))
    font = open_font("DejaVuSans", TEXT_SIZE)
    tile_size = 56 if images.masks is None else 128  # an outline must not cover what it surrounds
    zoom = max(1, round(tile_size / max(images.image_size)))
    height, width = (side * zoom + GAP for side in images.image_size)
    line_height = max(height, TEXT_SIZE + 2 * GAP)

    strips = []  # title or nothing, image numbers
    for label in shown:
        members = torch.nonzero(images.labels == label).squeeze(1)
        name = images.class_names[int(label)]
        short = name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
        for line, row in enumerate(_even_steps(members, lines * columns).split(columns)):
            strips.append(("" if line else f"{short} ({len(members)})", row))
    margin = GAP * 4 + int(max((font.getlength(title) for title, _ in strips), default=0))
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
            f"cannot write the contact sheet {str(path)!r}: {error.strerror}; choose another `out`"
        ) from error


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
