"""Random resized crops and random erasing, beside torchvision's own."""

import pytest
import torch
from scipy import stats
from torch import Tensor
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as kernels

from arelu_meta.data.rectangles import Rectangles, _crop_by_grid, crop_resized, draw_crops, erase
from arelu_meta.runtime.hardware import threads


def drawn(count: int = 30, channels: int = 3, size: tuple[int, int] = (40, 32)) -> Tensor:
    random = torch.Generator().manual_seed(3)
    small = torch.rand(count, channels, 8, 8, generator=random)
    return (torch.nn.functional.interpolate(small, size=size, mode="bicubic").clamp(0, 1) * 255).to(torch.uint8)


def test_crops_are_those_of_torchvision_on_the_same_rectangles():
    images = drawn()
    crops = draw_crops(30, (40, 32), torch.Generator().manual_seed(0))
    ours = crop_resized(images, crops)
    assert 5 < int(crops.mirrored.sum()) < 25
    for image, result, (top, left, height, width, mirrored) in zip(images, ours, crops.rows(), strict=True):
        part = kernels.resized_crop(image, top, left, height, width, [40, 32], antialias=True)
        wanted = kernels.horizontal_flip(part) if mirrored else part
        assert (result.int() - wanted.int()).abs().max() <= 1  # mirrored before it is resampled: rounding


def test_all_at_once_as_on_a_gpu_is_the_same_up_to_rounding():
    images = drawn()
    crops = draw_crops(30, (40, 32), torch.Generator().manual_seed(0))
    both = crop_resized(images, crops), _crop_by_grid(images, crops, nearest=False)
    assert (both[0].int() - both[1].int()).abs().max() <= 1
    masks = (images[:, :1] > 128).to(torch.uint8)
    assert set(_crop_by_grid(masks, crops, nearest=True).unique().tolist()) <= {0, 1}
    same = crop_resized(masks, crops, nearest=True) == _crop_by_grid(masks, crops, nearest=True)
    assert same.float().mean() > 0.99  # ties between two neighbours


@pytest.mark.parametrize(("scale", "size"), [((0.08, 1.0), (40, 32)), ((0.5, 0.6), (64, 64))])
def test_rectangles_are_drawn_as_torchvision_draws_them(scale: tuple[float, float], size: tuple[int, int]):
    """Two samples of 3,000 of each quantity: Kolmogorov and Smirnov's test, at a level that four tests share."""
    ours = draw_crops(3000, size, torch.Generator().manual_seed(0), scale=scale)
    torch.manual_seed(0)
    transform, image = v2.RandomResizedCrop(size, scale=scale), torch.zeros(3, *size)
    theirs = [transform.make_params([image]) for _ in range(3000)]
    for name in ("top", "left", "height", "width"):
        other = [int(each[name]) for each in theirs]
        assert stats.ks_2samp(getattr(ours, name).tolist(), other).pvalue > 0.001, name
    assert int((ours.top + ours.height).max()) <= size[0]
    assert int((ours.left + ours.width).max()) <= size[1]
    assert abs(int(ours.mirrored.sum()) - 1500) < 110  # four standard deviations


def test_where_no_attempt_fits_the_centre_is_taken():
    """The whole area at ratios of 3/4 to 4/3 never fits 10x100: the centre of ratio 4/3 is 10x13, from column 43 on."""
    crops = draw_crops(5, (10, 100), torch.Generator().manual_seed(0), scale=(1.0, 1.0))
    assert [row[:4] for row in crops.rows()] == [(0, 43, 10, 13)] * 5


def test_masks_move_with_their_images():
    """A mask that is the image itself, thresholded, stays so but at its border."""
    images = (drawn(channels=1) > 128).to(torch.uint8) * 255
    crops = draw_crops(30, (40, 32), torch.Generator().manual_seed(0))
    moved, masks = crop_resized(images, crops), crop_resized(images // 255, crops, nearest=True)
    assert set(masks.unique().tolist()) == {0, 1}
    sure = (moved < 5) | (moved > 250)
    assert sure.float().mean() > 0.5
    assert ((moved > 127) == masks.bool())[sure].float().mean() > 0.995


def test_erased_rectangles_are_torchvisions():
    """A quarter of 4,000 white images; area, height and width are drawn as by torchvision's RandomErasing."""
    images = torch.full((4000, 1, 24, 36), 255, dtype=torch.uint8)
    erased = erase(images, torch.Generator().manual_seed(0), share=0.25) == 0
    chosen = erased.flatten(1).any(1)
    assert abs(int(chosen.sum()) - 1000) < 110
    holes = erased[chosen, 0]
    heights, widths = holes.any(2).sum(1), holes.any(1).sum(1)
    assert torch.equal(holes.flatten(1).sum(1), heights * widths)  # one rectangle each
    torch.manual_seed(0)
    transform, image = v2.RandomErasing(p=1.0), torch.zeros(1, 24, 36)
    theirs = [params for _ in range(1000) if (params := transform.make_params([image]))["v"] is not None]
    assert stats.ks_2samp(heights.tolist(), [int(each["h"]) for each in theirs]).pvalue > 0.001
    assert stats.ks_2samp(widths.tolist(), [int(each["w"]) for each in theirs]).pvalue > 0.001


def test_what_is_erased_has_the_mean_colour_and_the_input_stays():
    images = torch.full((20, 3, 16, 16), 9, dtype=torch.uint8)
    erased = erase(images, torch.Generator().manual_seed(0), share=1.0, fill=(0.2, 0.4, 1.0))
    assert int(images.min()) == int(images.max()) == 9
    hole = (erased != 9).any(1)
    assert hole.flatten(1).any(1).all()
    assert erased.permute(0, 2, 3, 1)[hole].unique(dim=0).tolist() == [[51, 102, 255]]


def test_pixels_inside():
    """Rows 1 and 2, columns 0 to 2 of 4x5."""
    one = Rectangles(*(torch.tensor([value]) for value in (1, 0, 2, 3)), torch.tensor([False]))
    wanted = torch.zeros(4, 5, dtype=torch.bool)
    wanted[1:3, :3] = True
    assert torch.equal(one.covers(4, 5)[0, 0], wanted)


@pytest.mark.parametrize("size", [(40, 32), (90, 110)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_crops_that_are_shared_out_are_those_of_each_image_alone(size: tuple[int, int], layout: torch.memory_format):
    """19 images, small ones and such that threads share: mirrored and resampled one by one, bit for bit."""
    images = drawn(19, size=size).contiguous(memory_format=layout)
    crops = draw_crops(19, size, torch.Generator().manual_seed(0))
    with threads(2):
        shared = crop_resized(images, crops)
        kept = crop_resized(images, crops, nearest=True)
    for number, (top, left, height, width, mirrored) in enumerate(crops.rows()):
        part = images[number : number + 1, :, top : top + height, left : left + width]
        part = part.flip(-1) if mirrored else part
        alone = torch.nn.functional.interpolate(part, size=size, mode="bilinear", antialias=True)
        assert torch.equal(shared[number], alone[0])
        assert torch.equal(kept[number], torch.nn.functional.interpolate(part, size=size, mode="nearest-exact")[0])
    assert len(crop_resized(images[:0], crops[:0])) == 0
