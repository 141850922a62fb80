import hashlib
import subprocess
import sys

import numpy as np
import pytest
import torch
from fontTools.ttLib import TTFont

from arelu_meta import data
from arelu_meta.data.bundled import font_path
from arelu_meta.data.bundled.street import FONTS, SEED, SEEN_FONTS, UNSEEN_FONTS, colours, draw_image, number_plate


@pytest.fixture(scope="module")
def street():
    return data.load("street")


def test_size_and_balance(street):
    assert street.images.shape == (14_000, 3, 32, 32)
    assert {part: len(numbers) for part, numbers in street.subsets.items()} == {"train": 10_000, "test": 4_000}
    for numbers in street.subsets.values():
        counts = torch.bincount(street.labels[numbers], minlength=10)
        assert (counts == len(numbers) // 10).all()


def test_fonts_have_digits():
    for font in FONTS:
        assert set(map(ord, "0123456789")) <= set(TTFont(font_path(font)).getBestCmap())


def test_half_of_the_test_images_are_in_fonts_never_trained_on(street):
    names = np.array(street.group_names)
    train, test = (names[street.groups[street.subsets[part]].numpy()] for part in ("train", "test"))
    assert set(train) == set(SEEN_FONTS)
    assert set(test) == set(SEEN_FONTS) | set(UNSEEN_FONTS)
    assert np.isin(test, UNSEEN_FONTS).mean() == 0.5


def test_every_font_serves_every_digit(street):
    table = torch.zeros(len(FONTS), 10, dtype=torch.int64)
    table.index_put_((street.groups, street.labels), torch.ones(len(street), dtype=torch.int64), accumulate=True)
    assert (table > 0).all()


def test_images_are_coloured_and_differ_in_brightness(street):
    images = street.images.double()
    spread_of_channels = images.mean((2, 3)).std(1)
    assert spread_of_channels.mean() > 5
    assert images.mean((1, 2, 3)).std() > 30


def test_wall_and_paint_are_apart_in_brightness():
    """Brightness differs by 40 to 150 before the tints, whose mean over three channels deviates by 25 / sqrt(3)."""
    draws = [colours(np.random.default_rng(seed)) for seed in range(400)]
    apart = np.array([abs(wall.mean() - paint.mean()) for wall, paint in draws])
    assert (apart > 15).mean() > 0.97
    assert apart.max() < 150 + 4 * 25 * (2 / 3) ** 0.5
    assert {bool(wall.mean() > paint.mean()) for wall, paint in draws} == {True, False}


def test_digit_is_in_the_middle_and_neighbours_come_and_go():
    """Ink lies in the central third of every plate, and at the sides of some but not of all."""
    plates = [np.asarray(number_plate("8", "DejaVuSans-Bold", np.random.default_rng(seed))) for seed in range(60)]
    assert all((plate[16:48, 22:42] > 128).mean() > 0.2 for plate in plates)
    at_the_left = [bool((plate[:, :6] > 128).any()) for plate in plates]
    assert 0.2 < np.mean(at_the_left) < 0.9


def test_an_image_is_drawn_from_its_own_number():
    def draw():
        return draw_image("4", "cmr10", np.random.default_rng([SEED, 4]))

    first = draw()
    assert not np.array_equal(first, draw_image("4", "cmr10", np.random.default_rng([SEED, 14])))
    np.testing.assert_array_equal(first, draw())


def test_another_process_draws_the_same_images(street):
    """Every 1,000th image, drawn anew elsewhere."""
    code = (
        "import hashlib, numpy as np; from arelu_meta.data.bundled import street as s\n"
        "fonts = {fonts!r}\n"
        "for i, font in fonts.items():\n"
        "    drawn = s.draw_image(str(i % 10), font, np.random.default_rng([s.SEED, i]))\n"
        "    print(hashlib.sha256(drawn.tobytes()).hexdigest())"
    )
    fonts = {i: FONTS[int(street.groups[i])] for i in range(3, 14_000, 1000)}
    run = subprocess.run(
        [sys.executable, "-c", code.replace("{fonts!r}", repr(fonts))], capture_output=True, text=True, check=True
    )
    expected = [hashlib.sha256(street.images[i].numpy().tobytes()).hexdigest() for i in fonts]
    assert run.stdout.split() == expected
