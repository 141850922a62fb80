"""Answers to images as one picture: a row for each class that was answered, from the surest image to the least sure."""

from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageOps

from arelu_meta.data.bundled import open_font

TILE, CAPTION, GAP = 84, 16, 6
PAPER, INK, FAINT, WRONG = (255, 255, 255), (0, 0, 0), (110, 110, 110), (214, 39, 40)
LONGEST_NAME = 24


@dataclass(frozen=True)
class Tile:
    """An image with its answer: the class, how probable it is (None: not said), and the true class where known."""

    image: Image.Image
    answer: str
    probability: float | None
    truth: str = ""


def answer_sheet(tiles: Sequence[Tile], *, rows: int = 30, columns: int = 12) -> Image.Image:
    """Draw up to `rows` lines of up to `columns` images, each line of one answered class with its name before it.

    Of a class with more images those at even steps are shown. Wrong answers, where the truth is known, have a red frame
    and, below how sure the answer was, what it is.
    """
    classes: dict[str, list[Tile]] = {}
    for tile in sorted(tiles, key=lambda tile: -(tile.probability or 0.0)):
        classes.setdefault(tile.answer, []).append(tile)
    lines: list[tuple[str, list[Tile]]] = []
    most = max(1, rows // max(1, len(classes)))
    for name in sorted(classes):
        members = classes[name]
        short = name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
        shown = members
        if len(members) > most * columns:
            step = (len(members) - 1) / max(1, most * columns - 1)
            shown = [members[round(step * number)] for number in range(most * columns)]
        for start in range(0, len(shown), columns):
            lines.append(("" if start else f"{short} ({len(members)})", shown[start : start + columns]))
    lines = lines[:rows]
    unseen = len(classes) - sum(bool(title) for title, _ in lines)
    bold = open_font("DejaVuSans", 14)
    margin = 3 * GAP + int(max((bold.getlength(title) for title, _ in lines), default=0))
    width, height = TILE + GAP, TILE + CAPTION + GAP
    height += CAPTION * any(_is_wrong(tile) for _, members in lines for tile in members)
    broadest = max((len(members) for _, members in lines), default=0)
    sheet = Image.new("RGB", (margin + broadest * width, max(1, len(lines)) * height + GAP + 20 * bool(unseen)), PAPER)
    pen = ImageDraw.Draw(sheet)
    if unseen:
        pen.text((GAP, sheet.height - 10), f"and {unseen} more classes", fill=INK, font=bold, anchor="lm")
    for row, (title, members) in enumerate(lines):
        top = GAP + row * height
        pen.text((GAP, top + TILE // 2), title, fill=INK, font=bold, anchor="lm")
        for column, tile in enumerate(members):
            left = margin + column * width
            _draw(tile, sheet, left, top)
    return sheet


def _is_wrong(tile: Tile) -> bool:
    return bool(tile.truth) and tile.truth != tile.answer


def _draw(tile: Tile, sheet: Image.Image, left: int, top: int) -> None:
    """Put an image at a place, how probable its answer is below it, and where that is wrong what it is below that."""
    picture, pen = ImageOps.contain(tile.image.convert("RGB"), (TILE, TILE)), ImageDraw.Draw(sheet)
    sheet.paste(picture, (left + (TILE - picture.width) // 2, top + (TILE - picture.height) // 2))
    lines = [] if tile.probability is None else [(f"{100 * tile.probability:.0f} %", FAINT)]
    if _is_wrong(tile):
        pen.rectangle((left, top, left + TILE - 1, top + TILE - 1), outline=WRONG, width=3)
        lines.append((f"is {tile.truth}", WRONG))  # "89 % tiger" was read as the answer
    small = open_font("DejaVuSans", 11)
    for number, (text, ink) in enumerate(lines):
        while small.getlength(text) > TILE:
            text = text.removesuffix("…")[:-1] + "…"
        place = (left + TILE // 2, top + TILE + CAPTION // 2 + number * (CAPTION - 2))
        pen.text(place, text, fill=ink, font=small, anchor="mm")
