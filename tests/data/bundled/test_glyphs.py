import subprocess
import sys
import unicodedata

import numpy as np
import pytest
import torch
from fontTools.ttLib import TTFont
from scipy import ndimage

from arelu_meta import data
from arelu_meta.data.bundled import font_path
from arelu_meta.data.bundled import glyphs as glyphs_module
from arelu_meta.data.bundled.glyphs import DRAWINGS, IMAGE_SIZE, SCRIPTS, distinct, drawn, half_stroke, outline


@pytest.fixture(scope="module")
def glyphs():
    return data.load("glyphs")


def characters(images):
    return [chr(int(name.split("/")[1], 16)) for name in images.class_names]


def test_size(glyphs):
    assert len(glyphs.class_names) >= 500
    assert glyphs.counts().tolist() == [20] * len(glyphs.class_names)
    assert glyphs.images.shape == (20 * len(glyphs.class_names), 1, 28, 28)


def test_every_class_has_a_glyph_in_the_font(glyphs):
    """Asked of fontTools, which shares no code with the reader used: a missing glyph would be drawn as an empty box."""
    known = TTFont(font_path("DejaVuSans")).getBestCmap()
    assert all(ord(character) in known for character in characters(glyphs))


def test_class_names_say_the_script_of_unicode(glyphs):
    first_words = {"canadian": "CANADIAN", "asomtavruli": "GEORGIAN", "old_italic": "OLD"}
    for name, character in zip(glyphs.class_names, characters(glyphs), strict=True):
        script = name.split("/")[0]
        assert unicodedata.name(character).split()[0] == first_words.get(script, script.upper()), name


def test_groups_are_the_scripts_and_parts_share_none(glyphs):
    for number in range(0, len(glyphs), DRAWINGS):
        script = glyphs.group_names[int(glyphs.groups[number])]
        assert glyphs.class_names[int(glyphs.labels[number])].startswith(f"{script}/")
    scripts = {part: set(glyphs.groups[numbers].tolist()) for part, numbers in glyphs.subsets.items()}
    assert scripts["train"] | scripts["validation"] | scripts["test"] == set(range(len(SCRIPTS)))
    assert sum(map(len, scripts.values())) == len(SCRIPTS)  # disjoint


def test_shares_of_the_parts(glyphs):
    shares = {part: len(numbers) / len(glyphs) for part, numbers in glyphs.subsets.items()}
    assert shares == {
        "train": pytest.approx(0.60, abs=0.05),
        "validation": pytest.approx(0.15, abs=0.05),
        "test": pytest.approx(0.25, abs=0.05),
    }


@pytest.mark.parametrize(
    "alike",
    ["0041 0391 0410", "006F 004F 03BF 041E 0555", "0050 03A1 0420 146D", "0058 03A7 0425", "0063 0043 0441 0421"],
)
def test_letters_that_look_alike_are_one_class(glyphs, alike):
    drawn_numbers = [name.split("/")[1] for name in glyphs.class_names]
    assert len(set(alike.split()) & set(drawn_numbers)) <= 1


@pytest.mark.parametrize("different", ["AB", "ΓΔ", "ЖЩ", "אב", "سع"])
def test_letters_that_differ_stay_apart(glyphs, different):
    assert len(set(different) & set(characters(glyphs))) == len(different)


def test_distinct_keeps_the_first_of_each_shape():
    letters = "A\N{GREEK CAPITAL LETTER ALPHA}B\N{CYRILLIC CAPITAL LETTER A}Oo"
    assert distinct(np.stack([outline(letter) for letter in letters])).tolist() == [0, 2, 4]


def test_outline_is_the_signed_distance():
    """A capital I is a bar: as long as the ink box, 19 pixels, and the distance is largest midway across."""
    distance = outline("I")
    inside = distance > 0
    rows, columns = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
    assert len(rows) == 19 * 3
    assert distance.max() == pytest.approx(len(columns) / 2 / 3, abs=0.4)
    assert half_stroke(distance) == pytest.approx(distance.max(), abs=0.4)


def test_drawings_differ_in_place_size_and_pen(glyphs):
    """Over the 20 drawings of a letter the centre of the ink moves by pixels and the amount of ink varies."""
    label = glyphs.class_names.index("latin/0041")
    ink = glyphs.images[glyphs.labels == label, 0].double().numpy() / 255
    centres = np.array([ndimage.center_of_mass(image) for image in ink])
    assert (centres.std(0) > 0.5).all()
    assert ink.sum((1, 2)).std() / ink.sum((1, 2)).mean() > 0.1


def test_ink_is_bright_and_not_cut_off(glyphs):
    images = glyphs.images[:, 0].float() / 255
    share = images.mean((1, 2))
    assert share.min() > 0.005
    assert share.max() < 0.5
    border = torch.cat([images[:, 0], images[:, -1], images[:, :, 0], images[:, :, -1]], dim=1)
    assert (border.amax(1) < 0.5).float().mean() > 0.97


def test_a_drawing_resembles_its_own_class(glyphs):
    """A nearest-mean rule on blurred pixels, told 10 drawings of each of 20 letters, must name most of the other 10.

    Chance is 5 %. If drawings were too wild or classes alike, it would fail.
    """
    chosen = np.linspace(0, len(glyphs.class_names) - 1, 20).round().astype(int)
    images = glyphs.images[:, 0].numpy().reshape(-1, DRAWINGS, IMAGE_SIZE, IMAGE_SIZE)[chosen] / 255
    blurred = ndimage.gaussian_filter(images, (0, 0, 1.5, 1.5)).reshape(20, DRAWINGS, -1)
    means = blurred[:, :10].mean(1)  # (20, 784)
    distances = ((blurred[:, 10:, None] - means) ** 2).sum(-1)  # (20, 10, 20)
    accuracy = (distances.argmin(-1) == np.arange(20)[:, None]).mean()
    assert accuracy > 0.6


def test_a_class_is_drawn_alike_whatever_else_is_drawn():
    def draw():
        return drawn(outline("ß"), np.random.default_rng([glyphs_module.SEED, ord("ß")]))

    first = draw()
    np.random.default_rng(1).normal(size=100)
    np.testing.assert_array_equal(first, draw())


@pytest.mark.slow
def test_same_digest_when_two_processes_draw_it(glyphs, tmp_path):
    code = "from arelu_meta import data; print(data.load('glyphs').digest)"
    environment = {"ARELU_META_CACHE": str(tmp_path), "PATH": "", "PYTHONHASHSEED": "1"}
    other = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == glyphs.digest
