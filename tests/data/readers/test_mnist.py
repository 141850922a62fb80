import gzip
import hashlib
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from arelu_meta import data
from arelu_meta.data.readers import UnverifiedData
from arelu_meta.data.readers.mnist import FASHION_MNIST, FILES, MNIST, UNPACKED_MD5, load_fashion_mnist, load_mnist
from arelu_meta.errors import InputError


def idx(array: np.ndarray) -> bytes:
    """The idx format as LeCun's page states it: 0 0 type dimensions, big-endian sizes, elements."""
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def tiny() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (7, 28, 28), dtype=np.uint8)
    y = np.array([3, 1, 4, 1, 5, 9, 2], np.uint8)
    return dict(zip(FILES, (x[:5], y[:5], x[5:], y[5:]), strict=True))


def write(folder: Path, arrays: dict[str, np.ndarray], *, packed: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
        else:
            (folder / name).write_bytes(idx(array))


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("folder", ["MNIST/raw", "mnist", "."])
def test_reads_idx_files_where_they_are(tmp_path, folder, packed):
    arrays = tiny()
    write(tmp_path / folder, arrays, packed=packed)
    with pytest.warns(UnverifiedData, match="^mnist: no published checksum fits train-images.* and 3 more") as warned:
        images = load_mnist(root=tmp_path)
    assert len(warned) == 1
    assert images.images.shape == (7, 1, 28, 28)
    assert images.images[:5, 0].numpy().tobytes() == arrays[FILES[0]].tobytes()
    assert images.images[5:, 0].numpy().tobytes() == arrays[FILES[2]].tobytes()
    assert images.labels.tolist() == [3, 1, 4, 1, 5, 9, 2]
    assert images.subsets["train"].tolist() == [0, 1, 2, 3, 4]
    assert images.subsets["test"].tolist() == [5, 6]
    assert not images.provenance.verified


def test_records_the_sha256_of_what_was_read(tmp_path):
    write(tmp_path / "FashionMNIST/raw", tiny(), packed=True)
    with pytest.warns(UnverifiedData):
        images = load_fashion_mnist(root=tmp_path)
    expected = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in (tmp_path / "FashionMNIST/raw").iterdir()
    }
    assert images.provenance.files == expected
    assert images.class_names[9] == "Ankle boot"


def test_the_two_sets_do_not_share_a_folder_by_mistake(tmp_path):
    write(tmp_path / "MNIST/raw", tiny(), packed=True)
    with pytest.raises(InputError, match=r"fashion_mnist: cannot download train-images-idx3-ubyte.gz"):
        load_fashion_mnist(root=tmp_path)


def with_sums_of(published, folder):
    """The set as if the files in a folder were the published ones."""
    md5 = {path.name: hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest() for path in folder.iterdir()}
    return replace(published, files=tuple(replace(file, md5=md5[file.name]) for file in published.files))


def test_files_of_the_other_set_are_refused(tmp_path, monkeypatch):
    write(tmp_path, tiny(), packed=True)
    monkeypatch.setattr("arelu_meta.data.readers.mnist.FASHION_MNIST", with_sums_of(FASHION_MNIST, tmp_path))
    with pytest.raises(InputError, match="belongs to fashion_mnist"):
        load_mnist(root=tmp_path)


def test_matching_checksums_are_verified_without_a_warning(tmp_path, monkeypatch):
    write(tmp_path, tiny(), packed=True)
    monkeypatch.setattr("arelu_meta.data.readers.mnist.MNIST", with_sums_of(MNIST, tmp_path))
    assert load_mnist(root=tmp_path).provenance.verified


def test_offline_names_files_place_and_bundled_set(tmp_path):
    with pytest.raises(InputError) as caught:
        data.load("mnist", root=tmp_path)
    message = str(caught.value)
    assert all(f"{name}.gz" in message for name in FILES)
    assert str(tmp_path / "MNIST/raw") in message
    assert "'digits'" in message
    assert "ARELU_META_OFFLINE" in message
    assert "\n" not in message
    assert list(tmp_path.iterdir()) == []


def damage_gz(folder: Path) -> None:
    file = folder / f"{FILES[0]}.gz"
    file.write_bytes(file.read_bytes()[:-100])


def damage_length(folder: Path) -> None:
    (folder / f"{FILES[2]}.gz").write_bytes(gzip.compress(idx(tiny()[FILES[2]])[:-1]))


def damage_head(folder: Path) -> None:
    (folder / f"{FILES[1]}.gz").write_bytes(gzip.compress(idx(tiny()[FILES[0]])))


def damage_label(folder: Path) -> None:
    (folder / f"{FILES[1]}.gz").write_bytes(gzip.compress(idx(np.full(5, 10, np.uint8))))


def damage_count(folder: Path) -> None:
    (folder / f"{FILES[1]}.gz").write_bytes(gzip.compress(idx(np.zeros(4, np.uint8))))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_gz, "train-images-idx3-ubyte.gz is damaged"),
        (damage_length, "holds 1567 elements, not 2 x 28 x 28"),
        (damage_head, "is not an idx file of 1-dimensional bytes"),
        (damage_label, r"label 10 is outside 0\.\.9"),
        (damage_count, "holds 5 images, but train-labels-idx1-ubyte.gz 4 labels"),
    ],
)
def test_damaged_files_are_one_line(tmp_path, damage, message):
    write(tmp_path, tiny(), packed=True)
    damage(tmp_path)
    with pytest.raises(InputError, match=message) as caught:
        load_mnist(root=tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.data
def test_published_mnist(published_data):
    """Counts from LeCun's page; mean and deviation of the training part as the literature gives them."""
    images = data.load("mnist", root=published_data)
    assert images.provenance.verified
    assert [len(images.subsets[part]) for part in ("train", "test")] == [60000, 10000]
    test = images.subset(images.subsets["test"])
    assert test.counts().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    (mean,), (deviation,) = images.subset(images.subsets["train"]).channel_statistics()
    assert mean == pytest.approx(0.1307, abs=5e-5)
    assert deviation == pytest.approx(0.3081, abs=5e-5)


@pytest.mark.data
def test_published_mnist_as_torchvision_reads_it(published_data):
    from torchvision import datasets

    images = load_mnist(root=published_data)
    for part, train in (("train", True), ("test", False)):
        peer = datasets.MNIST(published_data, train=train, download=False)
        assert torch.equal(images.images[images.subsets[part], 0], peer.data)
        assert torch.equal(images.labels[images.subsets[part]], peer.targets)


@pytest.mark.data
def test_unpacked_mnist_is_verified_too(published_data, tmp_path):
    """Without the .gz files the sums of their content count: they are those of the packed files, unpacked here."""
    for name, plain_md5 in UNPACKED_MD5["mnist"].items():
        content = gzip.decompress((published_data / "MNIST/raw" / f"{name}.gz").read_bytes())
        assert hashlib.md5(content, usedforsecurity=False).hexdigest() == plain_md5
        (tmp_path / name).write_bytes(content)
    images = load_mnist(root=tmp_path)
    assert images.provenance.verified
    assert images.digest == load_mnist(root=published_data).digest
