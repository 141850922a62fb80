"""Squares of pictures against torchvision's `Resize` and `CenterCrop`, and against pixels counted by hand."""

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import CenterCrop, Compose, InterpolationMode, Resize
from torchvision.transforms import functional as vision

from arelu_meta.data.squares import centre, check_resize, scaled_size, squared, squared_pixels
from arelu_meta.errors import InputError

SIZES = [(40, 60), (61, 40), (33, 50), (17, 64), (12, 12), (5, 9)]  # height, width; larger and smaller than the square


def photograph(height: int, width: int, channels: int = 3) -> Image.Image:
    pixels = np.random.default_rng(height * width).integers(0, 256, (height, width, channels), np.uint8)
    return Image.fromarray(pixels.squeeze())


@pytest.mark.parametrize(("height", "width"), SIZES)
@pytest.mark.parametrize("side", [12, 15])
def test_scale_is_torchvisions_resize_and_centre_crop(height: int, width: int, side: int):
    image = photograph(height, width)
    wanted = Compose([Resize(side, InterpolationMode.LANCZOS), CenterCrop(side)])(image)
    assert np.array_equal(squared(image, side, "scale"), wanted)


@pytest.mark.parametrize("rest", range(9))
def test_an_odd_rest_is_divided_as_torchvision_does(rest: int):
    """A row of numbers: what is cut out begins with the place it was at."""
    row = torch.arange(10 + rest).expand(1, 10 + rest, -1)
    assert centre(10 + rest, 10, "scale") == int(vision.center_crop(row, [10, 10])[0, 0, 0])


def test_squash_scales_both_sides():
    """A picture of two halves, 8 wide and 2 high: each half is still one, while the shorter side keeps the middle."""
    image = Image.new("L", (8, 2))
    image.paste(255, (4, 0, 8, 2))
    middle = np.array([[0, 255], [0, 255]])
    assert scaled_size(2, 8, 2, "squash") == (2, 2)
    assert np.abs(np.asarray(squared(image, 2, "squash"), int) - middle).max() < 40  # Lanczos mixes in some of the rest
    assert np.array_equal(squared(image, 2, "scale"), middle)  # not scaled: the two columns in the middle


def test_crop_cuts_without_scaling():
    """Out of 9 columns 4 are taken from the third on: five too many, two of them on the left."""
    image = photograph(6, 9)
    assert np.array_equal(squared(image, 4, "crop"), np.asarray(image)[1:5, 2:6])
    with pytest.raises(InputError, match="7x7 cannot be cut out of 9x6; set `resize` to scale"):
        squared(image, 7, "crop")


@pytest.mark.parametrize("resize", ["scale", "squash", "crop"])
@pytest.mark.parametrize("channels", [1, 3])
def test_pixels_are_what_files_are(resize, channels: int):
    image = photograph(14, 19, channels)
    pixels = torch.from_numpy(np.array(image)).reshape(14, 19, channels).permute(2, 0, 1).unsqueeze(0)
    made = np.asarray(squared(image, 10, resize)).reshape(10, 10, channels)
    assert np.array_equal(squared_pixels(pixels, 10, resize)[0].permute(1, 2, 0).numpy(), made)
    assert squared_pixels(pixels, 0, resize) is pixels


def test_an_unknown_word_is_refused():
    check_resize("squash")
    with pytest.raises(InputError, match="unknown resize 'squish'; did you mean 'squash'"):
        check_resize("squish")
