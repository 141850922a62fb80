"""Volumes prepared and drawn as Buda et al. 2019 do, on volumes made by hand and on patients of theirs."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from arelu_meta.data.batches import MaskBatches
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.readers.lgg import load_lgg
from arelu_meta.data.volumes import prepare_volumes, slice_weights
from arelu_meta.errors import InputError


def volumes(pixels: torch.Tensor, groups: list[int], masks: torch.Tensor | None = None) -> ImageSet:
    """Slices (N, C, H, W) of patients a, b, ...; their number is in the label."""
    return ImageSet(
        name="made",
        images=pixels.to(torch.uint8),
        labels=torch.arange(len(pixels)),
        class_names=tuple(map(str, range(len(pixels)))),
        masks=torch.zeros(len(pixels), 1, *pixels.shape[2:], dtype=torch.uint8) if masks is None else masks,
        groups=torch.tensor(groups),
        group_names=tuple("abc"),
    )


def test_ends_are_left_out_and_subsets_follow():
    """Slices 0 to 3 of a, 4 to 6 of b: 1, 2 and 5 are left, and get the numbers 0, 1, 2."""
    images = volumes(torch.ones(7, 1, 2, 5), [0, 0, 0, 0, 1, 1, 1])
    images = replace(images, subsets={"train": torch.tensor([0, 1, 2, 3]), "test": torch.tensor([4, 5, 6])})
    left = prepare_volumes(images, drop_ends=True)
    assert left.images.shape == (3, 1, 2, 5)
    assert left.labels.tolist() == [1, 2, 5]
    assert left.groups.tolist() == [0, 0, 1]
    assert {name: numbers.tolist() for name, numbers in left.subsets.items()} == {"train": [0, 1], "test": [2]}
    with pytest.raises(InputError, match="volume b of made has no slice but its ends; switch `drop_ends` off"):
        prepare_volumes(volumes(torch.ones(5, 1, 2, 2), [0, 0, 0, 1, 1]), drop_ends=True)


def test_background_is_cut_off_and_the_rest_padded_to_a_square():
    """Brightest 200: 19 is background, 20 is not. Slice 1, rows 1 to 4, column 2 are left: 4x1, padded by 1 and 2."""
    pixels = torch.zeros(3, 1, 6, 4)
    pixels[1, 0, 1:5, 2] = torch.tensor([20, 200, 100, 50])
    pixels[1, 0, 2, 1] = pixels[0, 0, 0, 0] = pixels[2, 0, 5, 3] = 19
    masks = torch.zeros(3, 1, 6, 4, dtype=torch.uint8)
    masks[1, 0, 2, 2] = masks[1, 0, 0, 0] = 1
    cut = prepare_volumes(volumes(pixels, [0, 0, 0], masks), crop=True, image_size=4)
    wanted = torch.zeros(4, 4, dtype=torch.uint8)
    wanted[:, 1] = torch.tensor([20, 200, 100, 50])
    assert cut.labels.tolist() == [1]
    assert torch.equal(cut.images[0, 0], wanted)
    assert cut.masks.nonzero().tolist() == [[0, 0, 1, 1]]  # of the two marks one lies inside
    wide = prepare_volumes(volumes(pixels.transpose(2, 3), [0, 0, 0]), crop=True, image_size=4)
    assert torch.equal(wide.images[0, 0], wanted.T)
    with pytest.raises(InputError, match="volume b of made is black; switch `crop_volumes` off"):
        prepare_volumes(volumes(torch.stack([pixels[1], 0 * pixels[1]]), [0, 1]), crop=True)


def test_volumes_of_different_boxes_become_one_size():
    pixels = torch.zeros(2, 1, 8, 8)
    pixels[0, 0, 2:4, 2:4], pixels[1, 0, 1:5, 1:5] = 90, 60
    same = prepare_volumes(volumes(pixels, [0, 1]), crop=True)
    assert same.images.shape == (2, 1, 8, 8)
    assert same.images[0].unique().tolist() == [90]
    assert same.images[1].unique().tolist() == [60]


def test_percentiles_of_a_whole_volume_become_black_and_white():
    """0 to 100 in a, one pixel each: 10 becomes 0, 99 becomes 255, 54 lies 44 of 89 on the way, 126.07.

    b is twice as bright and has percentiles of its own, so that it becomes the same.
    """
    ramp = torch.arange(101).view(1, 1, 1, 101).float()
    images = volumes(torch.cat([ramp, 2 * ramp]).expand(2, 1, 101, 101), [0, 1])
    stretched = prepare_volumes(images, percentiles=(10, 99)).images
    assert torch.equal(stretched[0], stretched[1])
    row = stretched[0, 0, 0]
    assert [int(row[value]) for value in (0, 10, 11, 54, 99, 100)] == [0, 0, 3, 126, 255, 255]
    flat = volumes(torch.full((2, 1, 4, 4), 7), [0, 0])
    with pytest.raises(InputError, match="volume a of made has 7 at both percentiles 10 and 99; widen `percentiles`"):
        prepare_volumes(flat, percentiles=(10, 99))


def test_each_volume_is_standardised_by_itself():
    """Of 0 and 100 the mean is 50 and the deviation 50: pixels are -1 and 1 in every volume and channel."""
    checks = (torch.arange(16).view(4, 4) % 2).expand(2, 3, 4, 4) * torch.tensor([100, 40, 20]).view(1, 3, 1, 1)
    images = volumes(torch.cat([checks, 2 * checks]), [0, 0, 1, 1])
    own = replace(prepare_volumes(images, standardise=True), mean=(0.5,) * 3, std=(9.0,) * 3)
    x = own.subset(torch.tensor([3, 0])).pixels(torch.tensor([[0, 1]]))
    assert x.shape == (1, 2, 3, 4, 4)
    torch.testing.assert_close(x, (torch.arange(16).view(4, 4) % 2 * 2.0 - 1).expand(1, 2, 3, 4, 4))
    raw = replace(own, mean=(), std=())  # not normalised at all
    assert float(raw.pixels(torch.tensor([2])).max()) == pytest.approx(200 / 255)


def test_slices_are_drawn_by_patient_and_area():
    """a: 30, 10 and 0 pixels, 0.1 * 40 / 3 added to each, over 1.1 * 40; b: no mark, so both alike; half each."""
    masks = torch.zeros(5, 1, 10, 10, dtype=torch.uint8)
    masks[0, 0, :3], masks[1, 0, :1] = 1, 1
    images = volumes(torch.zeros(5, 1, 10, 10), [0, 0, 0, 2, 2], masks)
    wanted = [0.5 * (area + 4 / 3) / 44 for area in (30, 10, 0)] + [0.25, 0.25]
    weights = slice_weights(images)
    assert weights.tolist() == pytest.approx(wanted)
    assert float(weights.sum()) == pytest.approx(1)
    batches = MaskBatches(images, 2, torch.Generator().manual_seed(0), weights=weights)
    drawn = torch.cat([torch.cat(list(batches.orders())) for _ in range(4000)])
    assert len(drawn) == 5 * 4000
    assert [len(part) for part in batches.orders()] == [2, 2, 1]
    shares = torch.bincount(drawn, minlength=5) / len(drawn)
    deviation = [(p * (1 - p) / len(drawn)) ** 0.5 for p in wanted]
    assert all(abs(share - p) < 4 * sd for share, p, sd in zip(shares.tolist(), wanted, deviation, strict=True))


def test_sets_without_volumes_are_refused():
    images = replace(volumes(torch.ones(2, 1, 2, 2), [0, 0]), groups=None)
    for function in (prepare_volumes, slice_weights):
        with pytest.raises(InputError, match="made has no masks or names no patients"):
            function(images)


@pytest.mark.data
@pytest.mark.filterwarnings("ignore::arelu_meta.data.readers.UnverifiedData")
def test_patients_of_the_published_set(published_data):
    """Box, percentiles and statistics of every volume, worked out with numpy on the slices as they are read."""
    images = load_lgg(root=published_data)
    options = {"drop_ends": True, "crop": True, "image_size": 64}
    plain = prepare_volumes(images, **options)
    ready = replace(prepare_volumes(images, **options, percentiles=(10, 99), standardise=True), mean=(0.5,), std=(1.0,))
    assert torch.equal(plain.groups, ready.groups)
    for group in range(len(images.group_names)):
        volume = images.images[images.groups == group][1:-1].numpy()
        bright = np.where(volume < volume.max() * 0.1, 0, volume).max(1)
        box = np.argwhere(bright > 0)
        first, last = box.min(0), box.max(0)
        assert int((plain.groups == group).sum()) == last[0] - first[0] + 1
        x = ready.pixels(torch.nonzero(ready.groups == group).squeeze(1)).numpy()  # (n, 3, 64, 64)
        np.testing.assert_allclose(x.mean((0, 2, 3)), 0, atol=1e-4)
        np.testing.assert_allclose(x.std((0, 2, 3)), 1, atol=1e-4)
        before = plain.images[plain.groups == group].numpy().astype(float)
        low, high = np.percentile(before, (10, 99))
        scaled = ready.images[ready.groups == group].numpy()
        np.testing.assert_allclose(scaled, 255 * np.clip((before - low) / (high - low), 0, 1), atol=0.51)
    marked = images.masks.flatten(1).any(1)
    heaviest = slice_weights(images).argmax()
    assert marked[heaviest]
