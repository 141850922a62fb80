import math

import pytest
import torch
from torch import Tensor

from arelu_meta.data.augment import AUGMENTS, augment, crop_flip, random_affine, shift
from arelu_meta.errors import InputError


def drawn(count: int = 40) -> Tensor:
    return torch.randint(1, 256, (count, 2, 9, 7), generator=torch.Generator().manual_seed(3), dtype=torch.uint8)


def moves(image: Tensor, by: int) -> dict[tuple[int, int, bool], Tensor]:
    """All windows of the image with `by` zeros around it, upright and mirrored, cut out one by one."""
    padded = torch.zeros(image.shape[0], image.shape[1] + 2 * by, image.shape[2] + 2 * by, dtype=image.dtype)
    padded[:, by : by + image.shape[1], by : by + image.shape[2]] = image
    found = {}
    for top in range(2 * by + 1):
        for left in range(2 * by + 1):
            window = padded[:, top : top + image.shape[1], left : left + image.shape[2]]
            found[top, left, False], found[top, left, True] = window, window.flip(-1)
    return found


@pytest.mark.parametrize(("function", "by", "mirrors"), [(crop_flip, 4, {False, True}), (shift, 2, {False})])
def test_each_image_is_a_moved_copy(function, by: int, mirrors: set[bool]):
    """By brute force over all moves; the images are random, so no two moves of one look alike."""
    images = drawn()
    moved = function(images, torch.Generator().manual_seed(0))
    assert moved.shape == images.shape
    assert moved.dtype == torch.uint8
    chosen = []
    for image, result in zip(images, moved, strict=True):
        matching = [move for move, window in moves(image, by).items() if torch.equal(window, result)]
        assert len(matching) == 1
        chosen.append(matching[0])
    assert {mirrored for *_, mirrored in chosen} == mirrors
    assert len({move[:2] for move in chosen}) > 10  # images of a batch move apart
    rows, columns = {move[0] for move in chosen}, {move[1] for move in chosen}
    assert {0, 2 * by} <= rows | columns <= set(range(2 * by + 1))  # up to the ends and no further


@pytest.mark.parametrize("function", [crop_flip, shift])
def test_the_generator_decides(function):
    images, random = drawn(), torch.Generator().manual_seed(5)
    first, second = function(images, random), function(images, random)
    assert torch.equal(first, function(images, torch.Generator().manual_seed(5)))
    assert not torch.equal(first, second)


def test_the_input_is_left_alone():
    images = drawn()
    before = images.clone()
    crop_flip(images, torch.Generator().manual_seed(0))
    assert torch.equal(images, before)


def test_half_are_mirrored():
    """Of 2,000 images 1,000 +- 4 standard deviations of sqrt(500) = 22.4: a row 1 2 3 in a field of zeros."""
    images = torch.zeros(2000, 1, 11, 11, dtype=torch.uint8)
    images[:, 0, 5, 4:7] = torch.tensor([1, 2, 3], dtype=torch.uint8)
    moved = crop_flip(images, torch.Generator().manual_seed(0))[:, 0]
    value, place = moved.flatten(1).max(1)
    assert value.min() == 3  # shifted by four at most, it stays inside
    before = moved.flatten(1).gather(1, (place - 1).unsqueeze(1)).squeeze(1)
    assert abs(int((before != 2).sum()) - 1000) < 90


def test_by_name():
    assert augment("crop_flip") is crop_flip
    assert augment("shift") is shift
    assert augment("none") is None
    assert set(AUGMENTS) == {"none", "crop_flip", "shift", "standard"}
    with pytest.raises(InputError, match=r"unknown augmentation 'shft'; did you mean 'shift'\?"):
        augment("shft")


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
