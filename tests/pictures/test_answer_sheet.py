"""The sheet of answers: rows by class, surest first, wrong ones framed."""

import numpy as np
from PIL import Image

from arelu_meta.pictures import answer_sheet as sheets
from arelu_meta.pictures.answer_sheet import CAPTION, GAP, TILE, WRONG, Tile, answer_sheet


def tile(grey: int, answer: str, probability: float | None, truth: str = "") -> Tile:
    return Tile(Image.new("L", (10, 10), grey), answer, probability, truth)


def test_a_row_for_each_class_from_sure_to_unsure():
    tiles = [tile(40, "b", 0.6), tile(90, "a", 0.5), tile(120, "a", 0.9), tile(200, "a", 0.7)]
    sheet = answer_sheet(tiles)
    assert sheet.height == 2 * (TILE + CAPTION + GAP) + GAP
    margin = sheet.width - 3 * (TILE + GAP)
    pixels = np.asarray(sheet)
    middle = GAP + TILE // 2
    greys = [pixels[middle, margin + number * (TILE + GAP) + TILE // 2, 0] for number in range(3)]
    assert greys == [120, 200, 90]
    assert pixels[middle + TILE + CAPTION + GAP, margin + TILE // 2, 0] == 40


def test_wrong_answers_are_framed():
    sheet = answer_sheet([tile(90, "a", 0.9, "a"), tile(90, "a", 0.8, "b")])
    margin = sheet.width - 2 * (TILE + GAP)
    pixels = np.asarray(sheet)
    assert tuple(pixels[GAP, margin + TILE + GAP]) == WRONG
    assert tuple(pixels[GAP, margin]) != WRONG


def test_what_a_wrong_answer_is_stands_apart_from_how_sure_it_was(monkeypatch):
    """ "89 % b" below an answer a would read as if b had been answered with 89 %."""
    said, pen = [], sheets.ImageDraw.ImageDraw
    monkeypatch.setattr(pen, "text", lambda _pen, place, text, fill, **_: said.append((place[1], text, fill)))
    answer_sheet([tile(90, "a", 0.89, "b"), tile(90, "a", 0.8, "a")])
    below = GAP + TILE + CAPTION // 2
    assert said[1:] == [
        (below, "89 %", sheets.FAINT),
        (below + CAPTION - 2, "is b", WRONG),
        (below, "80 %", sheets.FAINT),
    ]


def test_of_what_is_unknown_no_probability_is_written():
    """Nothing below the image where the truth is not known either; with one, its name alone."""
    below = (slice(GAP + TILE, GAP + TILE + CAPTION), slice(-TILE - GAP, None))
    empty, said = (np.asarray(answer_sheet([tile(90, "unknown", share)]))[below] for share in (None, 0.0))
    assert len(np.unique(empty)) == 1
    assert len(np.unique(said)) > 1
    assert len(np.unique(np.asarray(answer_sheet([tile(90, "unknown", None, "b")]))[below])) > 1


def test_many_images_are_shown_at_even_steps():
    """Of 221 images twelve: numbers 0, 20, 40 ... 220, from the surest to the least sure."""
    tiles = [tile(number, "a", 1 - number / 1000) for number in range(221)]
    sheet = answer_sheet(tiles, rows=3, columns=4)
    assert sheet.height == 3 * (TILE + CAPTION + GAP) + GAP
    margin, pixels = sheet.width - 4 * (TILE + GAP), np.asarray(sheet)
    places = [(row, column) for row in range(3) for column in range(4)]
    greys = [
        pixels[GAP + row * (TILE + CAPTION + GAP) + TILE // 2, margin + column * (TILE + GAP) + TILE // 2, 0]
        for row, column in places
    ]
    assert greys == [20 * number for number in range(12)]
    assert answer_sheet([]).height > 0


def test_one_place_for_two_images():
    assert answer_sheet([tile(40, "a", 0.6), tile(90, "a", 0.5)], rows=1, columns=1).height > TILE


def test_classes_that_are_left_out_are_counted():
    """Five classes on three lines: a line of text at the bottom says that two are missing."""
    tiles = [tile(40, name, 0.6) for name in "abcde"]
    sheet, whole = answer_sheet(tiles, rows=3), answer_sheet(tiles[:3], rows=3)
    assert sheet.height == whole.height + 20
    assert np.asarray(sheet)[-20:].min() < 100
