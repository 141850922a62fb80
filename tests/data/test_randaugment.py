"""RandAugment on a batch, beside torchvision's on one image."""

import pytest
import torch
from torch import Tensor
from torchvision.transforms import v2

from arelu_meta.data.randaugment import LEVELS, OPERATIONS, randaugment

THEIRS = ("Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast")
THEIRS = (*THEIRS, "Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize")


def drawn(count: int = 3, channels: int = 3) -> Tensor:
    random = torch.Generator().manual_seed(3)
    return torch.randint(256, (count, channels, 33, 26), generator=random, dtype=torch.uint8)


@pytest.mark.parametrize("level", [0, 9, 30])
@pytest.mark.parametrize(("ours", "theirs"), list(zip(OPERATIONS, THEIRS, strict=True)))
def test_operations_are_torchvisions(ours: str, theirs: str, level: int):
    """Its table of magnitudes and its way to apply them, at three levels and both signs."""
    peer, images = v2.RandAugment(magnitude=level), drawn()
    operation, most, signed = OPERATIONS[ours]
    magnitudes, their_signed = peer._AUGMENTATION_SPACE[theirs]
    table = magnitudes(LEVELS, 33, 26)
    assert signed == their_signed
    for sign in (1, -1) if signed else (1,):
        magnitude = 0.0 if table is None else sign * float(table[level])
        wanted = [peer._apply_image_or_video_transform(image, theirs, magnitude, "nearest", {}) for image in images]
        difference = operation(images, sign * most * level / (LEVELS - 1)).int() - torch.stack(wanted).int()
        assert difference.abs().max() <= 1  # its table is in float32: a result may fall on the other whole number
        assert (difference == 0).float().mean() > 0.95


def test_every_image_draws_its_own():
    """One operation at level 30 on 600 copies of one image: all 14 occur, those with a sign in both directions.

    Of the 23 results some may be the same (the identity, and what it does not change).
    """
    images = drawn(1).expand(600, -1, -1, -1).contiguous()
    changed = randaugment(images, torch.Generator().manual_seed(0), operations=1, level=30)
    wanted = {
        tuple(operation(images[:1], sign * most).flatten().tolist())
        for operation, most, signed in OPERATIONS.values()
        for sign in ((1, -1) if signed else (1,))
    }
    found = {tuple(row) for row in changed.flatten(1).tolist()}
    assert found == wanted
    same = (changed == images).flatten(1).all(1).sum()
    assert 600 / 14 - 26 < same < 2 * 600 / 14 + 36  # the identity, and at most one more that changes nothing
    assert torch.equal(images, drawn(1).expand(600, -1, -1, -1))


def test_the_generator_decides():
    images = drawn(40)
    first, again, other = (
        randaugment(images, torch.Generator().manual_seed(seed), operations=2, level=9) for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(randaugment(images, torch.Generator(), operations=0, level=9), images)


def test_grey_images():
    changed = randaugment(drawn(40, channels=1), torch.Generator().manual_seed(0), operations=2, level=9)
    assert changed.shape == (40, 1, 33, 26)
