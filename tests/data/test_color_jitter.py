"""Colour jitter of a batch, beside torchvision's kernels for one image."""

import pytest
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as kernels

from arelu_meta.data import color_jitter as jitter
from arelu_meta.errors import InputError

PAIRS = {
    "brightness": (jitter.adjust_brightness, kernels.adjust_brightness, (0.0, 0.4, 1.0, 1.7)),
    "contrast": (jitter.adjust_contrast, kernels.adjust_contrast, (0.0, 0.4, 1.0, 1.7)),
    "saturation": (jitter.adjust_saturation, kernels.adjust_saturation, (0.0, 0.4, 1.0, 1.7)),
    "hue": (jitter.adjust_hue, kernels.adjust_hue, (-0.5, -0.1, 0.0, 0.3)),
}


def drawn(count: int = 4, channels: int = 3) -> Tensor:
    random = torch.Generator().manual_seed(3)
    images = torch.randint(256, (count, channels, 9, 7), generator=random, dtype=torch.uint8)
    images[:, :, 0] = images[:, :1, 0]  # a row of grey, which has no hue
    return images


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", PAIRS)
def test_each_image_is_changed_by_its_own_factor_as_by_torchvision(name: str, channels: int):
    ours, theirs, factors = PAIRS[name]
    images = drawn(channels=channels)
    changed = ours(images, torch.tensor(factors).view(-1, 1, 1, 1))
    assert changed.dtype == torch.uint8
    for image, result, factor in zip(images, changed, factors, strict=True):
        assert (result.int() - theirs(image, factor).int()).abs().max() <= 1


def test_hue_of_pure_colours():
    """A third of the circle: red becomes green, green blue, blue red; a half: red becomes cyan."""
    colours = torch.tensor([[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 0, 0]], dtype=torch.uint8).view(4, 3, 1, 1)
    turned = jitter.adjust_hue(colours, torch.tensor([1 / 3, 1 / 3, 1 / 3, 0.5]).view(4, 1, 1, 1))
    assert turned.flatten(1).tolist() == [[0, 255, 0], [0, 0, 255], [255, 0, 0], [0, 255, 255]]


def test_factors_are_uniform_and_each_image_has_its_own():
    """Brightness alone: grey 100 becomes 100 f with f uniform on 0.6 to 1.4, so 60 to 140 with mean 100."""
    images = torch.full((4000, 1, 2, 2), 100, dtype=torch.uint8)
    values = jitter.color_jitter(0.4, 0.0, 0.0)(images, torch.Generator().manual_seed(0))[:, 0, 0, 0].float()
    assert (int(values.min()), int(values.max())) == (60, 139)  # 100 f is cut off to a whole number
    assert abs(values.mean() - 99.5) < 4 * 23.1 / 4000**0.5
    assert abs(values.std() - 80 / 12**0.5) < 1


def test_the_order_is_drawn_for_each_image():
    """Brightness 2 and contrast 0 of a black and white image, by hand.

    First the brightness: white stays at 255, mean 127.5, all is 127; first the contrast: 127, then twice that is 255.
    With factors of 1 +- 1 both orders occur, which shows in what is grey and white.
    """
    image = torch.tensor([0, 255], dtype=torch.uint8).view(1, 1, 1, 2)
    two, zero = torch.full((1, 1, 1, 1), 2.0), torch.zeros(1, 1, 1, 1)
    assert jitter.adjust_contrast(jitter.adjust_brightness(image, two), zero).flatten().tolist() == [127, 127]
    assert jitter.adjust_brightness(jitter.adjust_contrast(image, zero), two).flatten().tolist() == [254, 254]
    many = image.expand(400, 1, 1, 2).contiguous()
    changed = jitter.color_jitter(1.0, 1.0, 0.0)(many, torch.Generator().manual_seed(0)).flatten(1)
    assert len(changed.unique(dim=0)) > 100
    again = jitter.color_jitter(1.0, 1.0, 0.0)(many, torch.Generator().manual_seed(0)).flatten(1)
    assert torch.equal(changed, again)
    assert many.flatten(1).unique(dim=0).tolist() == [[0, 255]]  # the input stays


@pytest.mark.parametrize("values", [(-0.1, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.6)])
def test_out_of_range(values: tuple[float, ...]):
    with pytest.raises(InputError, match=r"give 0 or more, hue up to 0\.5"):
        jitter.color_jitter(*values)
