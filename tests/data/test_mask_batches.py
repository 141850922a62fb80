import math
from dataclasses import replace

import pytest
import torch

from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.mask_batches import MaskBatches, random_affine
from arelu_meta.errors import InputError
from tests.tiny_images import discs


def masks_as_images() -> ImageSet:
    """An L of 16 by 12 pixels, which no turn or mirror maps to itself: the image is 255 where the mask is 1."""
    masks = torch.zeros(8, 1, 32, 32, dtype=torch.uint8)
    masks[:, :, 8:24, 10:14] = 1
    masks[:, :, 20:24, 10:22] = 1
    return ImageSet("letters", 255 * masks, torch.zeros(8).long(), ("l",), masks=masks)


def test_pairs_without_affine_are_the_stored_ones():
    images = discs()
    batches = MaskBatches(images, 5, torch.Generator().manual_seed(0))
    order = torch.randperm(24, generator=torch.Generator().manual_seed(0))
    pixels, masks = (torch.cat(parts) for parts in zip(*batches, strict=True))
    assert [len(x) for x, _ in batches] == [5, 5, 5, 5, 4]
    assert torch.equal(pixels, images.images[order].float() / 255)
    assert torch.equal(masks, images.masks[order].float())
    assert pixels.dtype == masks.dtype == torch.float32


def test_image_and_mask_move_together():
    """Bilinear and nearest sampling of the same pixels differ by less than the weight of the other three, 3/4.

    Away from the border of the letter, where a mask and its eight neighbours agree, both are equal.
    """
    images = masks_as_images()
    pixels, masks = MaskBatches(images, 8, torch.Generator().manual_seed(1), affine=True).gather(torch.arange(8))
    assert set(masks.unique().tolist()) == {0.0, 1.0}
    assert (pixels - masks).abs().max() <= 0.75 + 1e-5
    around = torch.nn.functional.avg_pool2d(masks, 3, stride=1, padding=1, count_include_pad=False)
    inside, outside = around > 0.999, around < 0.001
    assert inside.sum() > 8 * 20
    assert (pixels[inside] - 1).abs().max() < 1e-5
    assert pixels[outside].abs().max() < 1e-5
    assert len({tuple(image.flatten().tolist()) for image in pixels}) == 8  # each pair has a move of its own
    assert len({tuple(mask.flatten().tolist()) for mask in masks}) > 4


def test_the_generator_decides():
    def gathered(seed: int) -> torch.Tensor:
        return MaskBatches(discs(), 6, torch.Generator().manual_seed(seed), affine=True).gather(torch.arange(6))[0]

    assert torch.equal(gathered(0), gathered(0))
    assert not torch.equal(gathered(0), gathered(1))


def test_matrices_scale_turn_and_mirror():
    """M = s R diag(m, 1) without a shift: determinant m s^2, right angles, columns of length s, angle up to 15."""
    matrices = random_affine(4000, torch.Generator().manual_seed(0))
    assert torch.equal(matrices[:, :, 2], torch.zeros(4000, 2))
    linear = matrices[:, :, :2]
    determinant = torch.linalg.det(linear)
    size = determinant.abs().sqrt()
    assert 0.95 <= size.min() < 0.951
    assert 1.049 < size.max() <= 1.05 + 1e-5
    product = linear.transpose(1, 2) @ linear
    assert torch.allclose(product, size.square().view(-1, 1, 1) * torch.eye(2), atol=1e-5)
    angle = torch.atan2(-linear[:, 0, 1], linear[:, 1, 1]).rad2deg()
    assert -15 - 1e-3 <= angle.min() < -14.9
    assert 14.9 < angle.max() <= 15 + 1e-3
    assert abs(int((determinant < 0).sum()) - 2000) < 4 * math.sqrt(1000)


def test_a_set_without_masks_is_refused():
    with pytest.raises(InputError, match="discs has no masks; segmentation needs a set with masks"):
        MaskBatches(replace(discs(), masks=None), 4, torch.Generator())
