import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from arelu_meta.data.imageset import ImageSet, Provenance
from arelu_meta.errors import InputError
from arelu_meta.runtime.hardware import threads


def make(n=6, channels=3, **more):
    random = np.random.default_rng(0)
    images = torch.from_numpy(random.integers(0, 256, (n, channels, 5, 7), dtype=np.uint8))
    return ImageSet("made", images, torch.arange(n) % 3, ("a", "b", "c"), **more)


def test_sizes():
    images = make()
    assert (len(images), images.channels, images.image_size) == (6, 3, (5, 7))
    assert images.counts().tolist() == [2, 2, 2]


def test_vectors_are_standardised_by_feature():
    rows = np.random.default_rng(0).normal(3, 7, (20, 4)).astype(np.float32)
    vectors = ImageSet("rows", torch.from_numpy(rows)[:, :, None, None], torch.arange(20) % 2, ("a", "b"))
    assert (vectors.is_vectors, vectors.channels, vectors.image_size) == (True, 4, (1, 1))
    assert torch.equal(vectors.pixels(torch.arange(20)), vectors.images)
    found = vectors.normalised_like(vectors).pixels(torch.arange(20)).flatten(1).numpy()
    np.testing.assert_allclose(found, (rows - rows.mean(0)) / rows.std(0), atol=1e-5)
    assert torch.equal(vectors.images.flatten(1), torch.from_numpy(rows))  # those at rest stay as they are


def test_targets_go_along_and_are_of_the_digest():
    targets = torch.rand(6, 1)
    images = make(targets=targets)
    assert torch.equal(images.subset(torch.tensor([4, 1])).targets, targets[[4, 1]])
    assert images.digest != make().digest != make(targets=targets + 1).digest != images.digest


@given(hnp.arrays(np.uint8, hnp.array_shapes(min_dims=4, max_dims=4, min_side=1, max_side=6)))
@settings(max_examples=100, deadline=None)
def test_channel_statistics_are_those_of_numpy(array):
    images = ImageSet("any", torch.from_numpy(array), torch.zeros(len(array), dtype=torch.int64), ("a",))
    mean, std = images.channel_statistics()
    scaled = array.astype(np.float64) / 255
    np.testing.assert_allclose(mean, scaled.mean((0, 2, 3)), atol=1e-12)
    np.testing.assert_allclose(std, scaled.std((0, 2, 3)), atol=1e-7)


def test_pixels_are_scaled_to_one_without_statistics():
    images = make()
    index = torch.tensor([[3, 1], [0, 0]])
    pixels = images.pixels(index)
    assert pixels.shape == (2, 2, 3, 5, 7)
    np.testing.assert_allclose(pixels.numpy(), images.images.numpy()[index.numpy()] / 255, atol=1e-6)


def test_pixels_are_normalised_by_the_other_set():
    train = make()
    other = make(n=9).normalised_like(train)
    scaled = train.images.numpy() / 255
    mean, std = scaled.mean((0, 2, 3)), scaled.std((0, 2, 3))
    expected = (other.images.numpy() / 255 - mean[:, None, None]) / std[:, None, None]
    np.testing.assert_allclose(other.pixels(torch.arange(9)).numpy(), expected, atol=1e-5)


def test_a_constant_channel_is_not_divided_by_zero():
    flat = ImageSet("flat", torch.full((2, 1, 4, 4), 9, dtype=torch.uint8), torch.tensor([0, 0]), ("a",))
    pixels = flat.normalised_like(flat).pixels(torch.arange(2))
    assert torch.isfinite(pixels).all()
    assert pixels.abs().max() < 0.1


def test_subset_takes_everything_along():
    masks = torch.arange(6, dtype=torch.uint8).view(6, 1, 1, 1).expand(6, 1, 5, 7)
    images = make(masks=masks, groups=torch.arange(6) * 10, subsets={"train": torch.arange(6)})
    some = images.subset(torch.tensor([4, 1]), "some")
    assert some.name == "some"
    assert torch.equal(some.images, images.images[[4, 1]])
    assert some.labels.tolist() == [1, 1]
    assert some.masks[:, 0, 0, 0].tolist() == [4, 1]
    assert some.groups.tolist() == [40, 10]
    assert some.subsets == {}  # the numbers would be wrong
    assert some.class_names == images.class_names


@pytest.mark.parametrize("what", ["images", "labels", "class_names", "masks", "groups"])
def test_digest_tells_a_change_of(what):
    def content():
        return {
            "images": torch.zeros(2, 1, 4, 4, dtype=torch.uint8),
            "labels": torch.tensor([0, 1]),
            "class_names": ("a", "b"),
            "masks": torch.zeros(2, 1, 4, 4, dtype=torch.uint8),
            "groups": torch.tensor([0, 1]),
        }

    changed = content()
    if what == "class_names":
        changed[what] = ("a", "c")
    else:
        changed[what].view(-1)[0] = 1
    assert ImageSet("x", **content()).digest == ImageSet("y", **content(), provenance=Provenance("z")).digest
    assert ImageSet("x", **changed).digest != ImageSet("x", **content()).digest


@given(st.integers(-3, 6))
def test_labels_must_have_names(label):
    def build():
        return ImageSet("x", torch.zeros(1, 1, 2, 2, dtype=torch.uint8), torch.tensor([label]), ("a", "b", "c"))

    if 0 <= label < 3:
        assert build().counts()[label] == 1
    else:
        with pytest.raises(InputError, match=rf"label {label} is outside 0\.\.2"):
            build()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": torch.zeros(2, 1, 4, 4)}, "images must be uint8"),
        ({"images": torch.zeros(2, 4, 4, dtype=torch.uint8)}, r"images must be uint8 \(N, C, H, W\)"),
        ({"labels": torch.tensor([0])}, r"labels must be int64 \(2,\)"),
        ({"labels": torch.tensor([0.0, 1.0])}, "labels must be int64"),
        ({"masks": torch.zeros(2, 1, 4, 5)}, "do not fit"),
    ],
)
def test_wrong_shapes_and_types_are_refused(change, message):
    right = {"images": torch.zeros(2, 1, 4, 4, dtype=torch.uint8), "labels": torch.tensor([0, 1])}
    with pytest.raises(InputError, match=message):
        ImageSet("x", class_names=("a", "b"), **{**right, **change})


def test_families_of_classes():
    """a and b belong to group 0 alone; c has two groups, so it is no group's; d is group 2's."""
    labels, groups = torch.tensor([0, 0, 1, 2, 2, 3]), torch.tensor([0, 0, 0, 0, 1, 2])
    pixels = torch.zeros(6, 1, 2, 2, dtype=torch.uint8)
    images = ImageSet("tiny", pixels, labels, tuple("abcd"), groups=groups, group_names=tuple("xyz"))
    assert images.class_families() == [[0, 1], [2], [3]]
    assert ImageSet("tiny", pixels, labels, tuple("abcd")).class_families() == [[0], [1], [2], [3]]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("normalised", [False, True])
def test_all_256_values_are_normalised_as_torch_rounds_them(layout: torch.memory_format, normalised: bool):
    """More than a thread is given at a time: ((x / 255) - mean) / std in float32, bit for bit."""
    random = torch.Generator().manual_seed(0)
    images = torch.randint(256, (9, 3, 160, 210), generator=random, dtype=torch.uint8).contiguous(memory_format=layout)
    assert len(images.unique()) == 256
    mean, std = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)) if normalised else ((), ())
    given = ImageSet("given", images, torch.zeros(9, dtype=torch.int64), ("a",), mean=mean, std=std)
    wanted = images.float() / 255
    if normalised:
        wanted = (wanted - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    for threads_of_torch in (1, 2):
        with threads(threads_of_torch):
            found = given.normalise(images)
        assert torch.equal(found, wanted)
        assert found.is_contiguous()
    assert torch.equal(given.normalise(images[:, :, ::2, 3:]), wanted[:, :, ::2, 3:])
    assert given.normalise(images.view(3, 3, *images.shape[1:])).shape == (3, 3, 3, 160, 210)
