import torch
from torch import Tensor

from arelu_meta.data.batches import Batches
from arelu_meta.data.imageset import ImageSet


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
