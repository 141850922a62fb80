"""Images that are read when they are indexed, in place of a tensor."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from arelu_meta.data.augment import augment
from arelu_meta.data.batches import Batches, MaskBatches
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.inputs import fit_images
from arelu_meta.data.rows import AT_ONCE, HostImages, ImageRows
from arelu_meta.runtime.hardware import bounding_images
from tests.tiny_images import discs

META = torch.device("meta")


def coloured(count: int = 12, channels: int = 3, side: int = 6) -> ImageSet:
    random = torch.Generator().manual_seed(1)
    images = torch.randint(256, (count, channels, side, side), generator=random, dtype=torch.uint8)
    return ImageSet("coloured", images, torch.arange(count) % 3, ("a", "b", "c"))


class Watched(HostImages):
    """Host images that remember what was read, in order."""

    def read(self, numbers: Tensor) -> Tensor:
        seen.append(numbers.tolist())
        return super().read(numbers)


seen: list[list[int]] = []


def test_rows_are_what_the_tensor_is():
    images = coloured()
    rows = images.kept_in_host_memory()
    assert isinstance(rows.images, ImageRows)
    index = torch.tensor([[3, 0], [11, 3]])
    assert torch.equal(rows.images[index], images.tensor[index])
    assert torch.equal(rows.pixels(index), images.pixels(index))
    assert torch.equal(rows.images[5], images.tensor[5])
    assert torch.equal(rows.tensor, images.tensor)
    assert rows.digest == images.digest  # a run is the same wherever its images wait
    assert rows.channel_statistics() == images.channel_statistics()
    assert (len(rows), rows.channels, rows.image_size) == (12, 3, (6, 6))


def test_a_part_is_chosen_without_reading():
    seen.clear()
    images = coloured()
    rows = replace(images, images=ImageRows(Watched(images.tensor, "watched"), torch.arange(12)))
    part = rows.subset(torch.tensor([7, 2, 2])).subset(torch.tensor([2, 0]))
    assert seen == []
    assert torch.equal(part.tensor, images.tensor[[2, 7]])
    assert seen == [[2, 7]]


def test_digests_tell_parts_and_contents_apart():
    images = coloured().kept_in_host_memory()
    parts = [images.subset(torch.tensor(numbers)) for numbers in ([0, 3], [3, 0], [0, 6])]
    assert len({part.digest for part in (images, *parts)}) == 4


def test_images_stay_in_host_memory_and_are_given_on_the_device():
    """`meta` stands for a GPU: labels are there, images go there batch by batch."""
    images = coloured().kept_in_host_memory().to(META)
    assert isinstance(images.images, ImageRows)
    assert isinstance(images.images.source, HostImages)
    assert images.device == META
    assert images.images.source.images.device.type == "cpu"
    assert images.images[torch.tensor([1, 2])].device == META
    pixels, labels = next(iter(Batches(images, 5, torch.Generator())))
    assert (pixels.device, labels.device, tuple(pixels.shape)) == (META, META, (5, 3, 6, 6))


@pytest.mark.parametrize("name", ["none", "crop_flip", "standard"])
def test_batches_are_bit_for_bit_those_of_images_in_memory(name: str):
    images = coloured(50).normalised_like(coloured())
    batches = [
        list(Batches(each, 8, torch.Generator().manual_seed(0), augment=augment(name)))
        for each in (images, images.kept_in_host_memory())
    ]
    for (x, y), (other_x, other_y) in zip(*batches, strict=True):
        assert torch.equal(x, other_x)
        assert x.is_contiguous()
        assert other_x.is_contiguous()
        assert torch.equal(y, other_y)


def test_masks_too():
    images = discs()
    x, y = (
        list(MaskBatches(each, 4, torch.Generator().manual_seed(0), affine=True, crop_scale=(0.5, 1.0)))
        for each in (images, images.kept_in_host_memory())
    )
    assert all(torch.equal(a, b) for ours, theirs in zip(x, y, strict=True) for a, b in zip(ours, theirs, strict=True))


def test_images_are_read_ahead_in_order():
    """Of eight batches the first two, and then one for each that is taken, are asked for."""
    seen.clear()
    rows = ImageRows(Watched(coloured(16).tensor, "watched"), torch.arange(16))
    reading = rows.ahead(torch.arange(16).split(2))
    first = next(reading)
    assert torch.equal(first, coloured(16).tensor[:2])
    rest = list(reading)
    assert len(rest) == 7
    assert seen == [[number, number + 1] for number in range(0, 16, 2)]
    assert torch.equal(torch.cat([first, *rest]), coloured(16).tensor)


def test_no_images_and_fewer_batches_than_are_read_ahead():
    rows = ImageRows(HostImages(coloured().tensor, "some"), torch.arange(12))
    assert list(rows.ahead([])) == []
    assert [len(images) for images in rows.ahead([torch.arange(3)])] == [3]


def test_what_fails_while_reading_ahead_is_raised_where_it_is_taken():
    rows = ImageRows(HostImages(coloured().tensor, "some"), torch.arange(12))
    reading = rows.ahead([torch.arange(3), torch.tensor([99])])
    next(reading)
    with pytest.raises(IndexError):
        next(reading)


def test_a_reader_that_is_left_ends():
    rows = ImageRows(HostImages(coloured().tensor, "some"), torch.arange(12))
    reading = rows.ahead(torch.arange(12).split(1))
    next(reading)
    reading.close()


@pytest.mark.parametrize("fit", [{"image_size": 4}, {"channels": 1}, {"image_size": 4, "resize": "crop"}])
def test_converted_rows_are_those_of_the_set_in_memory(fit: dict[str, object]):
    """Also where a set in memory would not fit at its new size: 5 * 3 * 512 * 512 bytes are more than 1 MiB."""
    images = coloured(AT_ONCE + 5)
    wanted = fit_images(images, **fit)
    rows = fit_images(images.kept_in_host_memory(), **fit)
    assert isinstance(rows.images, ImageRows)
    assert torch.equal(rows.tensor, wanted.tensor)
    assert rows.digest != images.digest
    with bounding_images(1):
        large = fit_images(coloured(5, side=8), image_size=512)
    assert isinstance(large.images, ImageRows)
    assert large.images.shape == (5, 3, 512, 512)
