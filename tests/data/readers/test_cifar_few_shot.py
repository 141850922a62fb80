"""CIFAR-FS and FC100: how many classes are where, that none is in two places, and that superclasses are kept whole."""

import pickle

import numpy as np
import pytest
import torch

from arelu_meta import data
from arelu_meta.console import catalog
from arelu_meta.data.readers.cifar import read_plain_pickle
from arelu_meta.data.readers.cifar_few_shot import CLASSES, SUPERCLASSES
from arelu_meta.data.splits import published
from arelu_meta.kinds import run
from arelu_meta.kinds.execution import Execution
from arelu_meta.kinds.few_shot.spec import FewShotSpec

# From Oreshkin et al. 2018: numbers of superclasses, in the alphabetical order that CIFAR-100 numbers them in.
FC100 = {"train": {1, 2, 3, 4, 5, 6, 9, 10, 15, 17, 18, 19}, "validation": {8, 11, 13, 16}, "test": {0, 7, 12, 14}}
# The coarse label of each fine label, as the files of CIFAR-100 have them.
COARSE = """
    4 1 14 8 0 6 7 7 18 3 3 14 9 18 7 11 3 9 7 11 6 11 5 10 7 6 13 15 3 15 0 11 1 10 12 14 16 9 11 5 5 19 8 8 15 13 14
    17 18 10 16 4 17 4 2 0 17 4 18 17 10 3 2 12 12 16 12 1 9 19 2 10 0 1 16 12 9 13 15 13 16 19 2 4 6 19 5 5 8 19 18 1
    2 15 6 0 17 8 14 13
"""
quiet = pytest.mark.filterwarnings("ignore::arelu_meta.data.readers.UnverifiedData")


@pytest.fixture
def root(tmp_path):
    """CIFAR-100 of two images a class, one in each of its own parts, as python batches."""
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for seed, part in enumerate(("train", "test")):
        pixels = np.random.default_rng(seed).integers(0, 256, (100, 3072), dtype=np.uint8)
        (folder / part).write_bytes(pickle.dumps({"data": pixels, "fine_labels": list(range(100))}, protocol=2))
    return tmp_path


def test_the_hundred_classes():
    assert len(CLASSES) == len(set(CLASSES)) == 100
    assert [len(names.split()) for names in SUPERCLASSES.values()] == [5] * 20
    assert list(SUPERCLASSES) == sorted(SUPERCLASSES)
    assert (CLASSES[0], CLASSES[1], CLASSES[99]) == ("apple", "aquarium_fish", "worm")


def test_superclasses_are_those_of_the_coarse_labels():
    found = [SUPERCLASSES[list(SUPERCLASSES)[int(coarse)]].split() for coarse in COARSE.split()]
    assert len(found) == 100
    assert all(name in names for name, names in zip(CLASSES, found, strict=True))


@quiet
@pytest.mark.parametrize(("name", "sizes"), [("cifar_fs", (64, 16, 20)), ("fc100", (60, 20, 20))])
def test_classes_are_divided_and_none_is_in_two_parts(name, sizes, root):
    images = data.load(name, root=root)
    split = published(images)
    classes = [set(getattr(split, part).labels.tolist()) for part in ("train", "validation", "test")]
    assert tuple(map(len, classes)) == sizes
    assert len(set.union(*classes)) == 100
    assert [len(getattr(split, part)) for part in ("train", "validation", "test")] == [2 * size for size in sizes]
    assert split.held_out == "classes"
    assert (images.name, data.is_local(name, root=root)) == (name, True)


@quiet
def test_fc100_keeps_superclasses_whole(root):
    images = data.load("fc100", root=root)
    for part, superclasses in FC100.items():
        assert set(images.groups[images.subsets[part]].tolist()) == superclasses
    assert sorted(map(len, images.class_families())) == [5] * 20


@quiet
def test_images_keep_their_classes(root):
    images, whole = data.load("cifar_fs", root=root), data.load("cifar100", root=root)
    assert torch.equal(images.labels, whole.labels)
    assert torch.equal(images.images, whole.images)


@pytest.mark.data
def test_names_are_those_of_the_published_files(published_data):
    """In their order; some copies leave `_tree` out."""
    names = read_plain_pickle(published_data / "cifar-100-python" / "meta")["fine_label_names"]
    assert [name.removesuffix("_tree") for name in names] == [name.removesuffix("_tree") for name in CLASSES]


@pytest.mark.data
@pytest.mark.usefixtures("store")
@pytest.mark.filterwarnings("ignore::arelu_meta.data.readers.UnverifiedData")
@pytest.mark.parametrize(
    ("task", "method"), [("cifar_fs", "protonet"), pytest.param("fc100", "maml", marks=pytest.mark.slow)]
)
def test_the_tasks_are_learned_from_the_published_images(task, method, published_data):
    """Of 750 queries chance answers 20 % with a deviation of 1.5: 30 % is more than six of them above."""
    values = catalog.read("task", task)
    values["training"] |= {"method": method, "iterations": 15, "meta_batch": 2}
    values["evaluation"] |= {"test_episodes": 10, "validation_episodes": 4, "validate_every": 15}
    values["network"] |= {"backbone_options": {"filters": 16}}
    result = run(FewShotSpec.model_validate(values), Execution(data_root=str(published_data), device="cpu"))
    assert result.held_out == "classes"
    assert result.episodes.shape == (10, 1 if method == "protonet" else 6)
    assert result.test.mean > 0.3
