"""Overlays: tinted inside, outlined, untouched outside; files that do not overwrite each other."""

import numpy as np
import pytest
from PIL import Image

from arelu_meta.errors import InputError
from arelu_meta.pictures.mask_overlay import mask_overlay, write_masks


def square(size: tuple[int, int], box: tuple[int, int, int, int]) -> Image.Image:
    mask = Image.new("L", size)
    mask.paste(255, box)
    return mask


def test_inside_outline_and_outside():
    """A 6x6 square at the left border: its outer ring is red, 4x4 inside is 0.7 of grey plus 0.3 of red."""
    drawn = np.asarray(mask_overlay(Image.new("L", (20, 20), 100), square((20, 20), (0, 4, 6, 10))))
    inside, outline = (146, 70, 70), (255, 0, 0)
    assert (drawn[5:9, 1:5] == inside).all()
    assert (drawn == inside).all(2).sum() == 16
    assert (drawn == outline).all(2).sum() == 36 - 16
    assert (drawn == 100).all(2).sum() == 400 - 36


def test_the_outline_grows_with_the_image():
    drawn = np.asarray(mask_overlay(Image.new("RGB", (1024, 8)), square((1024, 8), (0, 0, 1024, 8))))
    assert (drawn[:, 500] == (255, 0, 0)).all(1).tolist() == [True] * 3 + [False] * 2 + [True] * 3


def test_pictures_keep_the_folders_and_names_of_the_images(tmp_path):
    places = [tmp_path / "in" / name for name in ("x/1.png", "x/1.bmp", "y/1.png")]
    for place in places:
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (6, 4), 50).save(place)
    masks, overlays = write_masks(places, lambda _, size: square(size, (0, 0, 2, 2)), tmp_path / "out")
    out = tmp_path / "out"
    assert masks == [str(out / name) for name in ("x/1.png_mask.png", "x/1.bmp_mask.png", "y/1_mask.png")]
    assert overlays[2] == str(out / "y" / "1_overlay.png")
    assert np.asarray(Image.open(masks[0])).sum() == 4 * 255
    with Image.open(overlays[0]) as overlay:
        assert (overlay.size, overlay.mode, overlay.getpixel((5, 3))) == ((6, 4), "RGB", (50, 50, 50))


def test_only_formats_of_ours_are_opened(tmp_path):
    """EPS under the name of a PNG would start Ghostscript."""
    Image.new("RGB", (6, 4)).save(tmp_path / "a.png", format="EPS")
    with pytest.raises(InputError, match=r"a\.png is not a readable image"):
        write_masks([tmp_path / "a.png"], lambda _, size: Image.new("L", size), tmp_path / "out")


def test_what_cannot_be_written_is_named(tmp_path):
    (tmp_path / "out").write_text("a file")
    Image.new("L", (6, 4)).save(tmp_path / "a.png")
    with pytest.raises(InputError, match=r"cannot write the mask of .*a\.png to .*out"):
        write_masks([tmp_path / "a.png"], lambda _, size: Image.new("L", size), tmp_path / "out")
