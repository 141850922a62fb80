"""Sets by name: which of them can be read without a download."""

import gzip
import pickle
import re
import zipfile

import numpy as np
import pytest

from arelu_meta import data
from arelu_meta.data.readers.mnist import FILES
from arelu_meta.errors import InputError
from tests.own_parts import stripes

PUBLISHED = [entry.name for entry in data.entries() if not entry.bundled]


def test_bundled_sets_and_your_own_are_local(tmp_path):
    assert all(data.is_local(entry.name) for entry in data.entries() if entry.bundled)
    assert data.is_local(tmp_path)
    assert data.is_local("some.module:function")


@pytest.mark.parametrize("name", PUBLISHED)
def test_an_empty_root_holds_nothing(tmp_path, monkeypatch, name):
    assert not data.is_local(name, tmp_path)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("ARELU_META_DATA", str(tmp_path))
    assert not data.is_local(name)
    with pytest.raises(InputError):  # offline: what is not local cannot be loaded
        data.load(name)


def test_all_four_files_of_mnist_packed_or_not(tmp_path):
    folder = tmp_path / "MNIST/raw"
    folder.mkdir(parents=True)
    for name in FILES[:3]:
        (folder / name).touch()
    assert not data.is_local("mnist", tmp_path)
    (folder / f"{FILES[3]}.gz").write_bytes(gzip.compress(b""))
    assert data.is_local("mnist", tmp_path)
    assert not data.is_local("fashion_mnist", tmp_path)


def test_some_batches_or_the_archive_of_cifar(tmp_path):
    (tmp_path / "cifar-100-python.tar.gz").touch()
    assert data.is_local("cifar100", tmp_path)
    assert not data.is_local("cifar10", tmp_path)
    (tmp_path / "cifar-10-batches-bin").mkdir()
    (tmp_path / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(pickle.dumps(np.zeros(1)))
    assert data.is_local("cifar10", tmp_path)


def test_both_halves_of_omniglot_as_zip_or_folder(tmp_path):
    (tmp_path / "omniglot/images_background").mkdir(parents=True)
    assert not data.is_local("omniglot", tmp_path)
    zipfile.ZipFile(tmp_path / "omniglot/images_evaluation.zip", "w").close()
    assert data.is_local("omniglot", tmp_path)


def test_svhn_and_lgg(tmp_path):
    for name in ("train", "test"):
        assert not data.is_local("svhn", tmp_path)
        (tmp_path / f"{name}_32x32.mat").touch()
    assert data.is_local("svhn", tmp_path)
    (tmp_path / "kaggle_3m/P").mkdir(parents=True)
    assert not data.is_local("lgg", tmp_path)
    (tmp_path / "kaggle_3m/P/P_1_mask.tif").touch()
    assert data.is_local("lgg", tmp_path)


def test_unknown_names():
    with pytest.raises(InputError, match=r"unknown dataset 'mnits'; did you mean 'mnist'\?"):
        data.is_local("mnits")


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(data._REGISTRY, "_entries", dict(data._REGISTRY._entries))


def test_a_function_of_ones_own_takes_options():
    """Six classes of 20 images; by place or as it is."""
    for given in ("tests.own_parts:stripes", stripes):
        assert data.load(given).images.shape == (120, 1, 8, 8)
        assert data.load(given, side=12).images.shape == (120, 1, 12, 12)
        assert data.is_local(given)
        data.check_options(given, ["side"])
        with pytest.raises(InputError, match=r"unknown option of .*stripes: 'sied'; did you mean 'side'"):
            data.check_options(given, ["sied"])


@pytest.mark.usefixtures("registry")
def test_the_root_reaches_functions_that_take_it(tmp_path):
    seen = []

    def rooted(root="default"):
        seen.append(root)
        return stripes()

    data.load(rooted)
    data.load(rooted, root=tmp_path)
    data.register("rooted", bundled=False)(rooted)
    data.load("rooted")
    assert seen == ["default", tmp_path, None]
    assert not data.is_local("rooted")
    with pytest.raises(InputError, match="unknown option of rooted: 'root'"):
        data.check_options("rooted", ["root"])


@pytest.mark.usefixtures("registry")
def test_a_registered_function_may_return_arrays():
    data.register("stripes")(stripes)
    assert data.load("stripes", side=9).image_size == (9, 9)


@pytest.mark.parametrize("entry", [entry for entry in data.entries() if entry.shape], ids=lambda entry: entry.name)
def test_shapes_are_those_of_the_summaries(entry):
    """The words were written from the publishers' pages; the contract holds bundled sets to their shape itself."""
    assert "x".join(map(str, entry.shape)) in entry.summary
    said = re.search(r"([\d,]+) (?:classes|characters)\b", entry.summary.replace("about 1,000 classes", ""))
    assert said is None or int(said[1].replace(",", "")) == entry.classes
