"""Sets by name: which of them can be read without a download."""

import gzip
import pickle
import zipfile

import numpy as np
import pytest

from arelu_meta import data
from arelu_meta.data.readers.mnist import FILES
from arelu_meta.errors import InputError

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
