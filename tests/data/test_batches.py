from dataclasses import replace

import pytest
import torch
from torch import Tensor

from arelu_meta.data.batches import Batches, MaskBatches
from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import InputError
from tests.tiny_images import discs


def numbered(count: int = 10) -> ImageSet:
    """Image i is full of i, and its label is i % 3."""
    numbers = torch.arange(count)
    images = numbers.to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 2, 2).contiguous()
    return ImageSet("numbered", images, numbers % 3, ("a", "b", "c"))


def seen(pixels: Tensor) -> list[int]:
    return (pixels[:, 0, 0, 0] * 255).round().int().tolist()


def test_every_image_once_per_pass_with_its_own_label():
    batches = Batches(numbered(), 4, torch.Generator().manual_seed(0))
    for _ in range(3):
        parts = list(batches)
        assert [len(labels) for _, labels in parts] == [4, 4, 2]
        assert len(batches) == 3
        assert sorted(number for pixels, _ in parts for number in seen(pixels)) == list(range(10))
        for pixels, labels in parts:
            assert labels.tolist() == [number % 3 for number in seen(pixels)]


def test_full_batches_only_where_they_divide_the_set():
    batches = Batches(numbered(12), 4, torch.Generator().manual_seed(0))
    assert [len(labels) for _, labels in batches] == [4, 4, 4]
    assert len(batches) == 3
    assert len(Batches(numbered(3), 4, torch.Generator())) == 1


def test_the_generator_decides_the_order():
    """The order is torch.randperm of the generator, another one in each pass."""
    batches = Batches(numbered(), 4, torch.Generator().manual_seed(7))
    passes = [[number for pixels, _ in batches for number in seen(pixels)] for _ in range(2)]
    same = torch.Generator().manual_seed(7)
    assert passes == [torch.randperm(10, generator=same).tolist() for _ in range(2)]
    assert passes[0] != passes[1]


def test_augmented_before_they_are_normalised():
    """Pixels 0..9: the augmentation sees uint8 and the generator of the batches."""
    images = numbered().normalised_like(numbered())
    random, calls = torch.Generator().manual_seed(0), []

    def twice(pixels: Tensor, given: torch.Generator) -> Tensor:
        calls.append((pixels.dtype, given is random))
        return pixels * 2

    plain = dict(zip("xy", Batches(images, 10, random).gather(torch.arange(10)), strict=True))
    augmented, labels = Batches(images, 10, random, augment=twice).gather(torch.arange(10))
    assert calls == [(torch.uint8, True)]
    assert torch.equal(labels, plain["y"])
    mean, std = 4.5 / 255, (33 / 4) ** 0.5 / 255  # of 0..9: variance (10^2 - 1) / 12
    wanted = (2 * torch.arange(10) / 255 - mean) / std
    assert torch.allclose(augmented[:, 0, 1, 1], wanted, atol=1e-5)
    assert torch.allclose(plain["x"][:, 0, 1, 1], (torch.arange(10) / 255 - mean) / std, atol=1e-5)


# With masks


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


def test_the_generator_decides_the_pairs():
    def gathered(seed: int) -> torch.Tensor:
        return MaskBatches(discs(), 6, torch.Generator().manual_seed(seed), affine=True).gather(torch.arange(6))[0]

    assert torch.equal(gathered(0), gathered(0))
    assert not torch.equal(gathered(0), gathered(1))


def test_a_set_without_masks_is_refused():
    with pytest.raises(InputError, match="discs has no masks; segmentation needs a set with masks"):
        MaskBatches(replace(discs(), masks=None), 4, torch.Generator())
