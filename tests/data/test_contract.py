"""What every bundled image set promises, whoever wrote it."""

import numpy as np
import pytest
import torch

from arelu_meta import data
from arelu_meta.data.splits import by_image, published

BUNDLED = [entry.name for entry in data.entries() if entry.bundled and entry.name != "sinusoid"]  # no images


@pytest.fixture(scope="module", params=BUNDLED)
def images(request):
    return data.load(request.param)


def train_part(images):
    """The part to train on: the publisher's, or a random share where there is none."""
    return (published if images.subsets else by_image)(images).train


def test_the_four_are_here():
    assert {"digits", "glyphs", "street", "phantom"} <= set(BUNDLED)


def test_name_and_summary(images):
    entry = next(entry for entry in data.entries() if entry.name == images.name)
    assert entry.summary
    size = "x".join(map(str, images.images.shape[1:]))
    assert size in entry.summary
    assert (entry.shape, entry.classes) == (tuple(images.images.shape[1:]), len(images.class_names))


def test_images_are_bytes_of_one_size(images):
    assert images.images.dtype == torch.uint8
    assert images.images.shape == (len(images.labels), images.channels, *images.image_size)
    assert images.channels in (1, 3)
    assert int(images.images.max()) - int(images.images.min()) > 200  # the range is used


def test_every_class_has_images_and_a_name_of_its_own(images):
    assert set(images.labels.tolist()) == set(range(len(images.class_names)))
    assert len(set(images.class_names)) == len(images.class_names)


def test_second_load_is_the_same(images):
    assert data.load(images.name).digest == images.digest


def test_provenance_is_known(images):
    assert images.provenance.verified
    assert images.provenance.source != "memory"


def test_no_image_twice(images):
    flat = images.images.flatten(1).numpy()
    assert len(np.unique(flat, axis=0)) == len(images)


def test_images_are_not_blank(images):
    assert (images.images.flatten(1).float().std(1) > 1).all()


def test_parts_are_disjoint_and_cover_the_set(images):
    if images.name == "digits":
        assert images.subsets == {}  # scikit-learn's has none
        return
    assert {"train", "test"} <= set(images.subsets)
    numbers = torch.cat(list(images.subsets.values()))
    assert torch.equal(numbers.sort().values, torch.arange(len(images)))


def test_groups_have_names(images):
    if images.groups is None:
        assert images.group_names == ()
    else:
        assert images.groups.dtype == torch.int64
        assert set(images.groups.tolist()) == set(range(len(images.group_names)))


def test_masks_are_binary(images):
    if images.masks is not None:
        assert images.masks.dtype == torch.uint8
        assert set(images.masks.unique().tolist()) == {0, 1}


def test_training_pixels_are_normalised(images):
    """Mean 0 and deviation 1 in each channel, in double precision and by numpy."""
    train = train_part(images)
    pixels = train.pixels(torch.arange(len(train))).numpy().astype(np.float64)
    np.testing.assert_allclose(pixels.mean((0, 2, 3)), 0, atol=1e-4)
    np.testing.assert_allclose(pixels.std((0, 2, 3)), 1, atol=1e-4)
