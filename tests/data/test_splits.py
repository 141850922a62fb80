import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.readers.omniglot import with_rotations
from arelu_meta.data.splits import (
    SUBSETS,
    by_class,
    by_group,
    by_image,
    divide,
    joined,
    limit,
    published,
)
from arelu_meta.errors import InputError


def images_of(counts, *, subsets=None, groups=None, name="tiny"):
    """A set with as many 1x2x2 images of each class as asked for, all different."""
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    pixels = torch.arange(len(labels) * 4) % 251
    return ImageSet(
        name,
        pixels.view(-1, 1, 2, 2).to(torch.uint8),
        labels,
        tuple(f"c{i}" for i in range(len(counts))),
        subsets={subset: torch.tensor(index) for subset, index in (subsets or {}).items()},
        groups=None if groups is None else torch.tensor(groups),
        group_names=() if groups is None else tuple(f"g{i}" for i in range(max(groups) + 1)),
    )


def numbers(split):
    return {subset: set(split.indices[subset].tolist()) for subset in SUBSETS}


def assert_disjoint_and_whole(split, total):
    found = numbers(split)
    assert sum(map(len, found.values())) == total
    assert set.union(*found.values()) == set(range(total))


# By image


def test_by_image_takes_shares_of_each_class():
    """10 images: 2 + 2 + 6; 25: 5 + 5 + 15; 3: at least one each, where a fifth would round to 1; 4: 1 + 1 + 2."""
    split = by_image(images_of([10, 25, 3, 4]))
    assert split.test.counts().tolist() == [2, 5, 1, 1]
    assert split.validation.counts().tolist() == [2, 5, 1, 1]
    assert split.train.counts().tolist() == [6, 15, 1, 2]
    assert split.held_out == "images"
    assert_disjoint_and_whole(split, 42)


def test_by_image_gives_every_part_an_image_of_a_small_class():
    """0.05 of 5 rounds to 0 and 0.9 of 5 to 4: each subset still gets one."""
    split = by_image(images_of([5]), validation=0.05, test=0.9)
    assert [len(split.indices[subset]) for subset in SUBSETS] == [1, 1, 3]


@pytest.mark.parametrize("count", [1, 2])
def test_by_image_refuses_classes_that_cannot_be_divided(count):
    with pytest.raises(InputError, match=rf"class 'c1' of tiny has {count} image\(s\), but 3 are needed") as caught:
        by_image(images_of([9, count]))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("shares", [(0, 0.2), (0.2, 0), (0.5, 0.5), (1.2, 0.1), (0.2, -0.1)])
def test_shares_must_leave_some(shares):
    for split in (by_image, by_group):
        with pytest.raises(InputError, match="must be shares of 1 that leave some to train on"):
            split(images_of([9], groups=[0] * 9), validation=shares[0], test=shares[1])


def test_the_seed_decides():
    images = images_of([50])
    assert by_image(images, seed=1).digest == by_image(images, seed=1).digest
    assert by_image(images, seed=1).digest != by_image(images, seed=2).digest


# By class


@given(classes=st.integers(3, 30), test=st.integers(1, 10), validation=st.integers(1, 10), seed=st.integers(0, 2**32))
def test_by_class_is_disjoint_in_classes(classes, test, validation, seed):
    images = images_of([2] * classes)
    if test + validation >= classes:
        with pytest.raises(InputError):
            by_class(images, validation_classes=validation, test_classes=test, seed=seed)
        return
    split = by_class(images, validation_classes=validation, test_classes=test, seed=seed)
    seen = [set(getattr(split, subset).labels.tolist()) for subset in SUBSETS]
    assert [len(labels) for labels in seen] == [classes - test - validation, validation, test]
    assert len(set.union(*seen)) == classes
    assert_disjoint_and_whole(split, 2 * classes)
    assert split.held_out == "classes"


@given(seed=st.integers(0, 2**32))
def test_turned_classes_stay_with_their_parent(seed):
    images = with_rotations(images_of([2] * 6))
    split = by_class(images, validation_classes=4, test_classes=8, seed=seed)
    seen = [set(getattr(split, subset).groups.tolist()) for subset in SUBSETS]
    assert [len(parents) for parents in seen] == [3, 1, 2]
    assert len(set.union(*seen)) == 6
    assert [int((getattr(split, subset).counts() > 0).sum()) for subset in SUBSETS] == [12, 4, 8]


def test_a_count_that_families_cannot_meet():
    images = with_rotations(images_of([1] * 6))
    with pytest.raises(InputError, match=r"8 instead of 10 test_classes fit, out of 24 in 6 families.*ask for 8"):
        by_class(images, validation_classes=4, test_classes=10)


def test_classes_without_images_are_not_drawn():
    images = images_of([2] * 5).subset(torch.tensor([0, 1, 4, 5, 8, 9]))  # c0, c2, c4
    split = by_class(images, validation_classes=1, test_classes=1)
    assert sorted(int(getattr(split, subset).labels[0]) for subset in SUBSETS) == [0, 2, 4]


# By group


@given(groups=st.lists(st.integers(0, 12), min_size=20, max_size=60), seed=st.integers(0, 2**32))
def test_by_group_is_disjoint_in_groups(groups, seed):
    images = images_of([len(groups)], groups=groups)
    present = set(groups)
    if len(present) < 3:
        with pytest.raises(InputError, match="need one each"):
            by_group(images, seed=seed)
        return
    split = by_group(images, seed=seed)
    seen = [set(getattr(split, subset).groups.tolist()) for subset in SUBSETS]
    assert sum(map(len, seen)) == len(present)
    assert set.union(*seen) == present
    assert min(map(len, seen)) >= 1
    assert_disjoint_and_whole(split, len(groups))
    assert split.held_out == "groups"


def test_no_groups():
    with pytest.raises(InputError, match="tiny has no groups to split by"):
        by_group(images_of([9]))


# As published


def test_published_draws_validation_from_each_class_of_train():
    """20 + 10 images to train: a tenth is 2 + 1. The test subset stays as it is."""
    images = images_of(
        [25, 15], subsets={"train": [*range(20), *range(25, 35)], "test": [*range(20, 25), *range(35, 40)]}
    )
    split = published(images, validation=0.1)
    assert split.validation.counts().tolist() == [2, 1]
    assert split.train.counts().tolist() == [18, 9]
    assert sorted(split.indices["test"].tolist()) == [20, 21, 22, 23, 24, 35, 36, 37, 38, 39]
    assert_disjoint_and_whole(split, 40)
    assert split.held_out == "images"


def test_published_keeps_a_validation_part():
    images = images_of([6], subsets={"train": [0, 1], "validation": [2, 3], "test": [4, 5]})
    assert numbers(published(images)) == {"train": {0, 1}, "validation": {2, 3}, "test": {4, 5}}


def test_published_draws_classes_where_the_test_has_new_ones():
    """Classes 0..9 train and 10, 11 test: a fifth of ten classes validates, whole."""
    images = images_of([2] * 12, subsets={"train": list(range(20)), "test": [20, 21, 22, 23]})
    split = published(images, validation=0.2)
    assert split.held_out == "classes"
    assert sorted(split.validation.counts().tolist()) == [0] * 10 + [2, 2]
    assert not set(split.train.labels.tolist()) & set(split.validation.labels.tolist())
    assert_disjoint_and_whole(split, 24)


@pytest.mark.parametrize(
    ("subsets", "message"),
    [
        ({}, r"tiny has no subset 'train' \(it has none\)"),
        ({"train": [0, 1]}, r"tiny has no subset 'test' \(it has train\)"),
        ({"background": [0], "evaluation": [1]}, r"tiny has no subset 'train' \(it has background, evaluation\)"),
        ({"train": [0], "test": [1, 2]}, r"class 'c0' of tiny has 1 image\(s\), but 2 are needed"),
        ({"train": [0, 1, 2], "test": [2]}, "an image is in more than one"),
        ({"train": [0, 1], "validation": [], "test": [2]}, "no images are left for validation"),
    ],
)
def test_parts_that_do_not_serve(subsets, message):
    images = images_of([6])
    subsets = {subset: torch.tensor(index, dtype=torch.int64) for subset, index in subsets.items()}
    images = ImageSet("tiny", images.images, images.labels, images.class_names, subsets=subsets)
    with pytest.raises(InputError, match=message):
        published(images)


# A subset of a set; nothing to validate on


def test_limit_keeps_the_shares_of_the_classes():
    """By image 60 %, 20 %, 20 %: 60, 30, 6 to train. 48 of these 96 are 30, 15, 3, each to within one image."""
    images = images_of([100, 50, 10])
    split = by_image(images)
    subset = limit(images, split, train=48, test=16)
    assert len(subset.train) == 48
    assert all(abs(a - b) <= 1 for a, b in zip(subset.train.counts().tolist(), (30, 15, 3), strict=True))
    assert (len(subset.validation), len(subset.test)) == (16, 16)
    found, whole = numbers(subset), numbers(split)
    assert all(found[name] < whole[name] for name in SUBSETS)
    train = images.images[subset.indices["train"]].double() / 255
    assert subset.test.mean == pytest.approx((float(train.mean()),))
    assert numbers(limit(images, split, train=48, test=16)) == found
    assert numbers(limit(images, split, train=48, seed=1))["train"] != found["train"]
    assert numbers(limit(images, split, train=97)) == whole


def test_limit_per_class():
    """60, 30 and 6 to train, 20, 10 and 2 to validate and to test: seven of each class, all where there are fewer."""
    images = images_of([100, 50, 10])
    split = by_image(images)
    few = limit(images, split, train_per_class=7, test_per_class=3)
    assert few.train.counts().tolist() == [7, 7, 6]
    assert few.validation.counts().tolist() == few.test.counts().tolist() == [3, 3, 2]
    assert all(numbers(few)[name] < numbers(split)[name] for name in SUBSETS)
    assert few.indices["train"].tolist() == sorted(few.indices["train"].tolist())
    both = limit(images, split, train=48, train_per_class=7)
    assert numbers(both)["train"] < numbers(limit(images, split, train=48))["train"]
    assert numbers(limit(images, split)) == numbers(split)


def test_joined_trains_on_validation_too():
    images = images_of([10, 10], groups=[i % 5 for i in range(20)])
    split = by_group(images)
    whole = joined(images, split)
    assert numbers(whole)["train"] == numbers(split)["train"] | numbers(split)["validation"]
    assert len(whole.validation) == 0
    assert torch.equal(whole.indices["test"], split.indices["test"])
    assert len(limit(images, whole, train=5).train) == 5


# Divide, write


def test_all_parts_are_normalised_by_train():
    images = images_of([30])
    split = by_image(images)
    train = images.images[split.indices["train"]].double() / 255
    for subset in SUBSETS:
        assert getattr(split, subset).mean == pytest.approx((float(train.mean()),))
        assert getattr(split, subset).std == pytest.approx((float(train.std(correction=0)),))


@pytest.mark.parametrize("number", [-1, 3])
def test_images_that_are_not_there_are_refused(number):
    indices = {subset: torch.tensor([i]) for subset, i in zip(SUBSETS, (0, 1, number), strict=True)}
    with pytest.raises(InputError, match=r"tiny has images 0\.\.2, but the split names others"):
        divide(images_of([3]), indices, held_out="images")


def test_overlap_is_refused():
    one = {subset: torch.tensor([0]) for subset in SUBSETS}
    with pytest.raises(InputError, match="an image is in more than one of train, validation and test"):
        divide(images_of([3]), one, held_out="images")


def test_write(tmp_path):
    images = images_of([10, 10], groups=[i % 5 for i in range(20)])
    for split in (by_image(images), by_group(images)):
        split.write(tmp_path / "split.json")
        content = json.loads((tmp_path / "split.json").read_text())
        assert {subset: set(content[subset]) for subset in SUBSETS} == numbers(split)
        assert (content["digest"], content["held_out"]) == (split.digest, split.held_out)
        assert content["source"] == images.digest
    assert [file.name for file in tmp_path.iterdir()] == ["split.json"]


def test_a_place_that_cannot_be_written(tmp_path):
    with pytest.raises(InputError, match=r"cannot write .*No such file or directory; choose another place"):
        by_image(images_of([10])).write(tmp_path / "nowhere" / "split.json")
