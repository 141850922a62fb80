"""Draws of what is learned from: sizes, what is held out, classes without images, wrong input."""

from dataclasses import replace

import pytest
import torch

from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import InputError
from arelu_meta.kinds.adapt.spec import SupportSection
from arelu_meta.kinds.adapt.supports import draw_supports
from tests.tiny_images import digits, negative


def section(**settings) -> SupportSection:
    return SupportSection(dataset="digits", **settings)


def test_all_images_are_learned_from_where_none_are_marked():
    drawn = draw_supports(digits(), section())
    assert not drawn.held_out
    assert len(drawn.draws) == 1
    assert drawn.draws[0].support.tolist() == list(range(200))
    assert len(drawn.split().test) == 0


def test_a_set_with_test_images_of_its_own():
    images = negative()
    drawn = draw_supports(images, section())
    (draw,) = drawn.draws
    assert torch.equal(draw.test, images.subsets["test"])
    assert torch.equal(draw.support, images.subsets["train"])


def test_shots_of_each_class_and_the_others_held_out():
    drawn = draw_supports(digits(), section(shots=3, draws=4))
    for draw in drawn.draws:
        assert torch.bincount(drawn.images.labels[draw.support]).tolist() == [3] * 10
        assert torch.bincount(drawn.images.labels[draw.test]).tolist() == [17] * 10
        assert not set(draw.support.tolist()) & set(draw.test.tolist())
    assert len({tuple(draw.support.tolist()) for draw in drawn.draws}) == 4


def test_images_that_no_draw_uses_are_left_out():
    images = digits()
    drawn = draw_supports(images, section(shots=2, test_per_class=3))
    assert len(drawn.images) == 50
    (draw,) = drawn.draws
    split = drawn.split()
    for subset, numbers in (("train", draw.support), ("test", draw.test)):
        assert torch.equal(images.images[split.indices[subset]], drawn.images.images[numbers])
        assert torch.equal(images.labels[split.indices[subset]], drawn.images.labels[numbers])
    assert split.source == images.digest
    again = draw_supports(images, section(shots=2, test_per_class=3))
    assert torch.equal(drawn.images.images, again.images.images)
    assert torch.equal(draw.support, again.draws[0].support)
    other = draw_supports(images, section(shots=2, test_per_class=3, split_seed=1))
    assert not torch.equal(drawn.images.images, other.images.images)


def test_classes_without_images_are_no_classes():
    images = digits()
    some = images.subset(torch.nonzero((images.labels == 3) | (images.labels == 7)).squeeze(1))
    drawn = draw_supports(some, section())
    assert drawn.images.class_names == ("3", "7")
    assert sorted(drawn.images.labels.unique().tolist()) == [0, 1]
    assert torch.equal(drawn.images.labels == 1, some.labels == 7)


def one_class() -> ImageSet:
    return digits().subset(torch.arange(200)[digits().labels == 4])


def alone_in_test() -> ImageSet:
    images = digits()
    nines = torch.nonzero(images.labels == 9).squeeze(1)
    return replace(images, subsets={"train": torch.nonzero(images.labels < 9).squeeze(1), "test": nines})


@pytest.mark.parametrize(
    ("images", "settings", "message"),
    [
        (one_class, {}, "tiny_digits has one class, '4'; a classifier needs two or more"),
        (alone_in_test, {}, "class '9' of tiny_digits has test images and none to learn from"),
        (digits, {"shots": 20}, "class '0' has 20 images, but `shots` is 20 and one is held out; lower `shots`"),
        (negative, {"shots": 18}, r"class '\d' has \d+ images, but `shots` is 18; lower `shots`"),
    ],
)
def test_wrong_input(images, settings, message):
    with pytest.raises(InputError, match=message):
        draw_supports(images(), section(**settings))


def test_draws_need_shots():
    with pytest.raises(InputError, match="`draws=3` draws images anew, and without `shots`"):
        section(draws=3)


def test_classes_drawn_of_a_set():
    """Four of ten, the same for every draw, by the split seed; their images keep their classes."""
    images = digits()
    drawn = draw_supports(images, section(ways=4, shots=3, draws=2))
    assert len(drawn.images.class_names) == 4
    for draw in drawn.draws:
        assert torch.bincount(drawn.images.labels[draw.support]).tolist() == [3] * 4
    names = [images.class_names[label] for label in images.labels[drawn.numbers].tolist()]
    assert names == [drawn.images.class_names[label] for label in drawn.images.labels.tolist()]
    others = {draw_supports(images, section(ways=4, shots=3, split_seed=seed)).images.class_names for seed in range(5)}
    assert len(others) > 1
    with pytest.raises(InputError, match="has 10 classes, but `ways` is 11"):
        draw_supports(images, section(ways=11))


def test_images_kept_to_test_where_none_are_held_out():
    with pytest.raises(InputError, match=r"`test_per_class=3` keeps some of what is held out.*give `shots`"):
        draw_supports(digits(), section(test_per_class=3))
    assert draw_supports(negative(), section(test_per_class=3)).held_out


def test_copies_of_an_image_are_left_out():
    """Six of a class, two of them the same, and one of the other class once more in the test images: 5 + 6 and 4."""
    pixels = torch.arange(17, dtype=torch.uint8).view(17, 1, 1, 1).repeat(1, 1, 4, 4)
    pixels[1] = pixels[0]  # both of class 0, to learn from
    pixels[13] = pixels[7]  # of class 1: tested, and learned from
    labels = torch.tensor([0] * 6 + [1] * 6 + [0, 1, 0, 1, 0])
    subsets = {"train": torch.arange(12), "test": torch.arange(12, 17)}
    images = ImageSet("twins", pixels, labels, ("a", "b"), subsets=subsets)
    with pytest.warns(UserWarning, match="2 images are copies of others and are left out of twins"):
        drawn = draw_supports(images, section())
    assert drawn.numbers[drawn.draws[0].support].tolist() == [0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    assert drawn.numbers[drawn.draws[0].test].tolist() == [12, 14, 15, 16]
