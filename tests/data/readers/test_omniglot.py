import hashlib
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from arelu_meta import data
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.readers import UnverifiedData, omniglot
from arelu_meta.data.readers.omniglot import load_omniglot, omniglot_standard, with_rotations
from arelu_meta.data.splits import SUBSETS
from arelu_meta.errors import InputError

quiet = pytest.mark.filterwarnings("ignore::arelu_meta.data.readers.UnverifiedData")

CHARACTERS = {
    "images_background": ["Greek/character02", "Greek/character01", "Arcadian/character01"],
    "images_evaluation": ["Avesta/character01"],
}


def drawing(seed):
    """Paper is white (1), ink black (0), one bit per pixel, as published."""
    return Image.fromarray(np.random.default_rng(seed).integers(0, 2, (105, 105)).astype(bool))


def write(folder, *, drawings=2):
    seed = 0
    for part, characters in CHARACTERS.items():
        for character in characters:
            (folder / part / character).mkdir(parents=True)
            for number in range(drawings):
                drawing(seed).save(folder / part / character / f"{seed:04}_{number + 1:02}.png")
                seed += 1


def zip_up(folder):
    for part in CHARACTERS:
        with zipfile.ZipFile(folder / f"{part}.zip", "w") as archive:
            for file in (folder / part).rglob("*.png"):
                archive.write(file, file.relative_to(folder))


@pytest.mark.parametrize("folder", ["omniglot-py", "omniglot", "."])
def test_reads_folders_in_the_publishers_order(tmp_path, folder):
    """Sorted by alphabet and character: Arcadian was drawn with seeds 4, 5; Greek 01 with 2, 3; Greek 02 with 0, 1."""
    write(tmp_path / folder)
    with pytest.warns(UnverifiedData, match="^omniglot: ") as warned:
        images = load_omniglot(root=tmp_path)
    assert len(warned) == 1
    assert images.class_names == (
        "Arcadian/character01",
        "Greek/character01",
        "Greek/character02",
        "Avesta/character01",
    )
    assert images.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert images.subsets["background"].tolist() == [0, 1, 2, 3, 4, 5]
    assert images.subsets["evaluation"].tolist() == [6, 7]
    for image, seed in zip(images.images[:, 0], (4, 5, 2, 3, 0, 1, 6, 7), strict=True):
        grey = drawing(seed).convert("L").resize((28, 28), Image.Resampling.LANCZOS)
        assert np.array_equal(image.numpy(), 255 - np.asarray(grey))


@quiet
def test_ink_is_high(tmp_path):
    """A black stroke over three tenths of white paper."""
    write(tmp_path)
    pixels = np.full((105, 105), 255, np.uint8)
    pixels[:, 30:60] = 0
    file = max((tmp_path / "images_evaluation/Avesta/character01").iterdir())  # the last of all
    Image.fromarray(pixels).convert("1", dither=Image.Dither.NONE).save(file)
    image = load_omniglot(root=tmp_path).images[-1, 0]
    assert image[:, 10:15].min() > 240  # columns 37.5 to 56.2 of 105, away from the edges that Lanczos blurs
    assert image[:, :5].max() < 15
    assert image[:, 20:].max() < 15


def test_zip_files_are_read_as_they_are_and_verified(tmp_path, monkeypatch):
    write(tmp_path)
    with pytest.warns(UnverifiedData):
        from_folders = load_omniglot(root=tmp_path)
    zip_up(tmp_path)
    files = tuple(
        replace(file, md5=hashlib.md5((tmp_path / file.name).read_bytes(), usedforsecurity=False).hexdigest())
        for file in omniglot.OMNIGLOT.files
    )
    monkeypatch.setattr(omniglot, "OMNIGLOT", replace(omniglot.OMNIGLOT, files=files))
    images = load_omniglot(root=tmp_path)
    assert images.provenance.verified
    assert set(images.provenance.files) == {"images_background.zip", "images_evaluation.zip"}
    assert images.digest == from_folders.digest


@quiet
def test_rotations_are_new_classes_of_the_same_group(tmp_path):
    write(tmp_path)
    upright = load_omniglot(root=tmp_path)
    images = load_omniglot(root=tmp_path, rotations=True)
    assert len(images.class_names) == 16
    assert images.counts().tolist() == [2] * 16
    assert images.class_names[4 * 3 + 1] == "Greek/character01/rot270"
    for turn in range(4):
        rows = torch.arange(8) + 8 * turn
        turned = np.rot90(upright.images.numpy(), turn, axes=(2, 3))
        assert np.array_equal(images.images[rows].numpy(), turned)
        assert images.labels[rows].tolist() == [label + 4 * turn for label in upright.labels.tolist()]
        assert images.groups[rows].tolist() == upright.labels.tolist()
    assert [images.group_names[group] for group in images.groups[-2:].tolist()] == ["Avesta/character01"] * 2
    evaluation = images.subset(images.subsets["evaluation"])
    assert sorted(evaluation.labels.unique().tolist()) == [3, 7, 11, 15]


@quiet
def test_rotations_through_load(tmp_path):
    write(tmp_path)
    assert len(data.load("omniglot", root=tmp_path, rotations=True).class_names) == 16
    with pytest.raises(InputError, match="unknown option of omniglot: 'rotation'; did you mean 'rotations'"):
        data.load("omniglot", root=tmp_path, rotation=True)


def test_a_truncated_png_is_named(tmp_path):
    write(tmp_path)
    file = next((tmp_path / "images_evaluation").rglob("*.png"))
    file.write_bytes(file.read_bytes()[:-700])
    with pytest.raises(InputError, match=f"{file.name} is not a readable image") as caught:
        load_omniglot(root=tmp_path)
    assert "\n" not in str(caught.value)


def test_a_truncated_zip(tmp_path):
    write(tmp_path)
    zip_up(tmp_path)
    file = tmp_path / "images_background.zip"
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(InputError, match=r"images_background.zip is damaged .*delete it"):
        load_omniglot(root=tmp_path)


def test_empty_folders(tmp_path):
    (tmp_path / "images_background").mkdir()
    (tmp_path / "images_evaluation").mkdir()
    with pytest.raises(InputError, match=r"images_background holds no ALPHABET/CHARACTER/\*\.png"):
        load_omniglot(root=tmp_path)


def test_offline(tmp_path):
    with pytest.raises(InputError, match=r"images_background.zip, images_evaluation.zip .*omniglot-py.*'glyphs'"):
        load_omniglot(root=tmp_path)


def characters(count):
    """One image of each character."""
    labels, names = torch.arange(count), tuple(f"c{i}" for i in range(count))
    images = (torch.arange(count) % 251).to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 2, 2)
    return ImageSet("tiny", images, labels, names, groups=labels, group_names=names)


def test_omniglot_standard():
    """1,100 + 100 + 423 characters in order; a turned character goes where its parent goes."""
    upright = characters(1623)
    split = omniglot_standard(upright)
    assert {subset: (int(index.min()), int(index.max()), len(index)) for subset, index in split.indices.items()} == {
        "train": (0, 1099, 1100),
        "validation": (1100, 1199, 100),
        "test": (1200, 1622, 423),
    }
    turned = omniglot_standard(with_rotations(upright))
    for subset in SUBSETS:
        upright_ones = set(split.indices[subset].tolist())
        assert set(getattr(turned, subset).groups.tolist()) == upright_ones
        assert len(turned.indices[subset]) == 4 * len(upright_ones)
    assert split.held_out == "classes"


def test_omniglot_standard_wants_omniglot():
    with pytest.raises(InputError, match="tiny has 0 characters, not Omniglot's 1623"):
        omniglot_standard(replace(characters(6), groups=None, group_names=()))
    with pytest.raises(InputError, match="must leave some of the 1200"):
        omniglot_standard(characters(1623), validation_classes=1200)


@pytest.fixture(scope="session")
def published_omniglot(published_data):
    with pytest.warns(UnverifiedData, match="^omniglot: "):
        return load_omniglot(root=published_data)


@pytest.mark.data
def test_published_omniglot(published_omniglot):
    """964 + 659 characters of 30 + 20 alphabets, 20 drawings each (Lake et al. 2015)."""
    images = published_omniglot
    assert not images.provenance.verified
    assert len(images.class_names) == 1623
    assert images.counts().tolist() == [20] * 1623
    for part, characters, alphabets in (("background", 964, 30), ("evaluation", 659, 20)):
        classes = images.labels[images.subsets[part]].unique().tolist()
        assert len(classes) == characters
        assert len({images.class_names[label].partition("/")[0] for label in classes}) == alphabets
    assert images.images.float().mean() < 127  # more paper than ink, and paper is 0


@pytest.mark.data
def test_published_omniglot_as_torchvision_reads_it(published_omniglot, published_data, monkeypatch):
    """torchvision takes characters and drawings in the order of the file system; so they are found by name."""
    from torchvision.datasets import Omniglot

    monkeypatch.setattr(Omniglot, "_check_integrity", lambda _: True)  # it asks for the zip
    images = published_omniglot
    for part, background in (("background", True), ("evaluation", False)):
        peer = Omniglot(str(published_data), background=background, download=False)
        assert len(peer) == len(images.subsets[part])
        for index in range(0, len(peer), 497):
            file, character = peer._flat_character_images[index]
            drawings = sorted(name for name, _ in peer._character_images[character])
            number = images.class_names.index(peer._characters[character]) * 20 + drawings.index(file)
            grey = peer[index][0].resize((28, 28), Image.Resampling.LANCZOS)
            assert np.array_equal(images.images[number, 0].numpy(), 255 - np.asarray(grey))
