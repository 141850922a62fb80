import hashlib
import io
import os
import pickle
import tarfile
from dataclasses import replace

import numpy as np
import pytest
import torch

from arelu_meta import data
from arelu_meta.data.readers import UnverifiedData, cifar
from arelu_meta.data.readers.cifar import CIFAR10, load_cifar10, load_cifar100, read_plain_pickle
from arelu_meta.errors import InputError

quiet = pytest.mark.filterwarnings("ignore::arelu_meta.data.readers.UnverifiedData")


def rows(seed, n):
    return np.random.default_rng(seed).integers(0, 256, (n, 3072), dtype=np.uint8)


def python2_pickle(data, labels, key):
    """A batch as the publisher's Python 2 wrote it: strings are bytes, the array's content a string, protocol 2.

    Written opcode by opcode, for Python 3 has no way to write such a file.
    """

    def string(content):
        return b"T" + len(content).to_bytes(4, "little") + content  # BINSTRING

    def number(value):
        return b"J" + value.to_bytes(4, "little")  # BININT

    dtype = b"cnumpy\ndtype\n" + string(b"u1") + number(0) + number(1) + b"\x87R"
    dtype += b"(" + number(3) + string(b"|") + b"NNN" + number(-1 % 2**31) * 2 + number(0) + b"tb"
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n" + b"cnumpy\nndarray\n" + number(0) + b"\x85" + string(b"b") + b"\x87R"
    )
    array += b"(" + number(1) + number(data.shape[0]) + number(data.shape[1]) + b"\x86" + dtype + b"\x89"
    array += string(data.tobytes()) + b"tb"
    items = string(b"data") + array + string(key) + b"](" + b"".join(map(number, labels)) + b"e"
    return b"\x80\x02}(" + items + b"u."


def write_python(folder, batches, key):
    folder.mkdir(parents=True, exist_ok=True)
    for name, (x, y) in batches.items():
        (folder / name).write_bytes(pickle.dumps({"data": x, key: y}, protocol=2))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("order", ["C", "F"])
def test_plain_pickle_reads_arrays_as_pickle_does(tmp_path, protocol, order):
    content = {"data": np.asarray(rows(0, 3), order=order), "big": np.arange(3, dtype=">i4"), "names": ["a"], b"n": 1.5}
    (tmp_path / "batch").write_bytes(pickle.dumps(content, protocol=protocol))
    read = read_plain_pickle(tmp_path / "batch")
    assert np.array_equal(read["data"], content["data"])
    assert read["big"].tolist() == [0, 1, 2]
    assert (read["names"], read["n"]) == (["a"], 1.5)


def test_plain_pickle_reads_what_python_2_wrote(tmp_path):
    content = python2_pickle(rows(0, 2), [7, 8], b"labels")
    assert np.array_equal(pickle.loads(content, encoding="latin1")["data"], rows(0, 2))  # the example is well made
    (tmp_path / "batch").write_bytes(content)
    read = read_plain_pickle(tmp_path / "batch")
    assert np.array_equal(read["data"], rows(0, 2))
    assert read["labels"] == [7, 8]


class Runs:
    """A pickle of this runs a command when a plain unpickler reads it."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def assert_refused(file, trace):
    with pytest.raises(InputError, match="is refused: not a plain pickle of arrays") as caught:
        load_cifar10(root=file.parent)
    assert "\n" not in str(caught.value)
    assert not trace.exists()


def test_a_pickle_with_code_in_it_is_refused_and_leaves_no_trace(tmp_path):
    root, trace = tmp_path / "root", tmp_path / "trace"
    root.mkdir()
    (root / "data_batch_1").write_bytes(pickle.dumps({"data": rows(0, 1), "labels": [0], "x": Runs(trace)}))
    pickle.loads((root / "data_batch_1").read_bytes())
    assert trace.exists()  # the attack works where pickle itself reads the file
    trace.rmdir()
    assert_refused(root / "data_batch_1", trace)
    assert [file.name for file in root.iterdir()] == ["data_batch_1"]


@pytest.mark.parametrize(
    "target", ["builtins\neval", "builtins\ngetattr", "numpy\nload", "numpy.core.multiarray\nscalar"]
)
def test_names_that_are_not_arrays_are_refused(tmp_path, target):
    (tmp_path / "data_batch_1").write_bytes(b"\x80\x02c" + target.encode() + b"\n.")
    assert_refused(tmp_path / "data_batch_1", tmp_path / "trace")


def test_a_refusal_is_one_line_whatever_the_pickle_names(tmp_path):
    """STACK_GLOBAL takes names from strings, which may hold a line break."""
    (tmp_path / "data_batch_1").write_bytes(b"\x80\x04\x8c\x04os\nx\x8c\x06system\x93.")
    assert_refused(tmp_path / "data_batch_1", tmp_path / "trace")


def test_arrays_of_objects_are_refused(tmp_path):
    content = {"data": np.array([{}], dtype=object), "labels": [0]}
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps(content, protocol=2))
    assert_refused(tmp_path / "data_batch_1", tmp_path / "trace")


@pytest.mark.parametrize("folder", ["cifar-10-batches-py", "."])
def test_partial_python_batches_are_used_with_a_warning(tmp_path, folder):
    batches = {"data_batch_2": (rows(2, 3), [0, 9, 4]), "test_batch": (rows(9, 2), [1, 1])}
    write_python(tmp_path / folder, batches, "labels")
    with pytest.warns(
        UnverifiedData, match="cifar10: no data_batch_1 and 3 more; no published checksum fits"
    ) as warned:
        images = load_cifar10(root=tmp_path)
    assert len(warned) == 1
    assert images.images.flatten(1).numpy().tobytes() == rows(2, 3).tobytes() + rows(9, 2).tobytes()
    assert images.labels.tolist() == [0, 9, 4, 1, 1]
    assert {part: index.tolist() for part, index in images.subsets.items()} == {"train": [0, 1, 2], "test": [3, 4]}
    assert images.class_names[9] == "truck"


@quiet
def test_names_come_from_the_meta_file(tmp_path):
    write_python(tmp_path, {"train": (rows(0, 2), [0, 99]), "test": (rows(1, 1), [5])}, "fine_labels")
    (tmp_path / "meta").write_bytes(pickle.dumps({"fine_label_names": [f"kind{n}" for n in range(100)]}, protocol=2))
    images = load_cifar100(root=tmp_path)
    assert [images.class_names[label] for label in images.labels.tolist()] == ["kind0", "kind99", "kind5"]


@quiet
def test_binary_version(tmp_path):
    """Records: CIFAR-10 one label byte, CIFAR-100 a coarse and a fine one, then 3,072 pixels."""
    for name, seed in (("data_batch_1.bin", 1), ("test_batch.bin", 2)):
        records = b"".join(bytes([label]) + row.tobytes() for label, row in zip((3, 8), rows(seed, 2), strict=True))
        (tmp_path / "cifar-10-batches-bin").mkdir(exist_ok=True)
        (tmp_path / "cifar-10-batches-bin" / name).write_bytes(records)
    images = load_cifar10(root=tmp_path)
    assert images.labels.tolist() == [3, 8, 3, 8]
    assert images.images.flatten(1).numpy().tobytes() == rows(1, 2).tobytes() + rows(2, 2).tobytes()

    (tmp_path / "cifar-100-binary").mkdir()
    (tmp_path / "cifar-100-binary" / "train.bin").write_bytes(bytes([19, 77]) + rows(3, 1).tobytes())
    fine = load_cifar100(root=tmp_path)
    assert fine.labels.tolist() == [77]
    assert list(fine.subsets) == ["train"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data_batch_1", pickle.dumps({"data": rows(0, 2), "labels": [0, 1]})[:-40], "is refused"),
        ("data_batch_1", pickle.dumps([1, 2]), "holds a list, not a dict"),
        ("data_batch_1", pickle.dumps({"data": rows(0, 2), "labels": [0]}), "'labels' is not a list of 2 numbers"),
        ("data_batch_1", pickle.dumps({"data": rows(0, 2)[:, :9], "labels": [0, 1]}), r"not a uint8 array \(N, 3072\)"),
        ("data_batch_1", pickle.dumps({"data": rows(0, 2), "labels": [0, 10]}), r"label 10 is outside 0\.\.9"),
        ("data_batch_1.bin", bytes(3073 + 5), "is 3078 bytes, not a multiple of 3073"),
        ("data_batch_1.bin", bytes([200]) + bytes(3072), r"label 200 is outside 0\.\.9"),
    ],
)
def test_bad_batches_are_one_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        load_cifar10(root=tmp_path)
    assert "\n" not in str(caught.value)


def test_an_archive_put_there_by_hand_is_unpacked(tmp_path, monkeypatch):
    content = pickle.dumps({"data": rows(0, 2), "labels": [4, 2]}, protocol=2)
    sums = {name: hashlib.md5(content, usedforsecurity=False).hexdigest() for name in CIFAR10.train | CIFAR10.test}
    test = {"test_batch": sums.pop("test_batch")}
    monkeypatch.setattr(cifar, "CIFAR10", replace(CIFAR10, train=sums, test=test))
    with tarfile.open(tmp_path / "cifar-10-python.tar.gz", "w:gz") as archive:
        for name in (*sums, *test):
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    images = load_cifar10(root=tmp_path)
    assert images.provenance.verified
    assert len(images) == 12
    assert sorted(file.name for file in tmp_path.iterdir() if not file.name.startswith(".")) == [
        "cifar-10-batches-py",
        "cifar-10-python.tar.gz",
    ]


def test_offline(tmp_path):
    with pytest.raises(InputError, match=r"cifar100: cannot download cifar-100-python.tar.gz .*bundled 'street'"):
        data.load("cifar100", root=tmp_path)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "means", "deviations", "train"),
    [
        ("cifar10", (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616), 10000),
        ("cifar100", (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762), 10000),
    ],
)
def test_published_part_of_cifar(published_data, name, means, deviations, train):
    """The test part is whole, with as many images of each class; means come near those of the whole training part."""
    with pytest.warns(UnverifiedData, match=f"^{name}: "):
        images = data.load(name, root=published_data)
    assert not images.provenance.verified
    assert (len(images.subsets["train"]), len(images.subsets["test"])) == (train, 10000)
    classes = len(images.class_names)
    assert images.subset(images.subsets["test"]).counts().tolist() == [10000 // classes] * classes
    found_means, found_deviations = images.subset(images.subsets["train"]).channel_statistics()
    assert found_means == pytest.approx(means, abs=0.005)
    assert found_deviations == pytest.approx(deviations, abs=0.005)


@pytest.mark.data
@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_published_part_of_cifar_as_torchvision_reads_it(published_data, monkeypatch, name):
    from torchvision import datasets

    peer = datasets.CIFAR10 if name == "cifar10" else datasets.CIFAR100
    monkeypatch.setattr(peer, "_check_integrity", lambda _: True)  # it refuses files with other sums
    monkeypatch.setattr(peer, "_load_meta", lambda _: None)
    monkeypatch.setattr(peer, "train_list", [["data_batch_1" if name == "cifar10" else "train", ""]])
    with pytest.warns(UnverifiedData):
        images = data.load(name, root=published_data)
    for part, train in (("train", True), ("test", False)):
        read = peer(published_data, train=train, download=False)  # (N, H, W, C)
        assert torch.equal(images.images[images.subsets[part]], torch.from_numpy(read.data).permute(0, 3, 1, 2))
        assert images.labels[images.subsets[part]].tolist() == read.targets
