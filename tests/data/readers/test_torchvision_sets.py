"""Sets of torchvision by name, on files that torchvision finds: fake images, MNIST's format, class folders."""

import io
import struct
import zipfile
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import torch
import torchvision.datasets
from PIL import Image

from arelu_meta import data
from arelu_meta.data.readers.torchvision_sets import SETS
from arelu_meta.data.splits import published
from arelu_meta.errors import InputError

MNIST = Path("MNIST/raw")


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("ARELU_META_OFFLINE", "1")


def write_mnist(root: Path, sizes: dict[str, int]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """MNIST's idx files: a magic number of type and axes, the sizes, big-endian, then bytes."""
    written = {}
    (root / MNIST).mkdir(parents=True)
    for seed, (part, n) in enumerate(sizes.items()):
        random = np.random.default_rng(seed)
        x, y = random.integers(0, 256, (n, 28, 28), dtype=np.uint8), (np.arange(n) % 10).astype(np.uint8)
        prefix = {"train": "train", "test": "t10k"}[part]
        for name, array in ((f"{prefix}-images-idx3-ubyte", x), (f"{prefix}-labels-idx1-ubyte", y)):
            head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
            (root / MNIST / name).write_bytes(head + array.tobytes())
        written[part] = (x, y)
    return written


def test_parts_pixels_and_names(tmp_path):
    written = write_mnist(tmp_path, {"train": 20, "test": 10})
    images = data.load("torchvision:MNIST", root=tmp_path)
    assert {part: len(numbers) for part, numbers in images.subsets.items()} == {"train": 20, "test": 10}
    for part, (x, y) in written.items():
        assert np.array_equal(images.images[images.subsets[part], 0], x)
        assert np.array_equal(images.labels[images.subsets[part]], y)
    assert images.class_names == tuple(torchvision.datasets.MNIST.classes)
    assert (images.name, images.provenance.source) == ("mnist", "torchvision.datasets.MNIST")
    assert not images.provenance.verified
    assert len(published(images).test) == 10
    assert data.is_local("torchvision:MNIST", root=tmp_path)
    assert not data.is_local("torchvision:KMNIST", root=tmp_path)


def test_fake_images_at_a_size():
    images = data.load("torchvision:FakeData", size=12, num_classes=3, image_size=16)
    assert images.images.shape == (12, 3, 16, 16)
    fake = torchvision.datasets.FakeData(size=12, num_classes=3)
    assert images.labels.tolist() == [label for _, label in fake]
    expected = np.array(fake[5][0].resize((16, 16), Image.Resampling.LANCZOS))
    assert np.array_equal(images.images[5].permute(1, 2, 0), expected)
    assert images.subsets == {}


def test_grey_among_colour_and_several_sizes(tmp_path):
    """EuroSAT is class folders; a grey picture among colour ones becomes colour."""
    for number, (name, mode, size) in enumerate((("a", "RGB", 8), ("a", "L", 8), ("b", "RGB", 9))):
        folder = tmp_path / "eurosat" / "2750" / name
        folder.mkdir(parents=True, exist_ok=True)
        Image.new(mode, (size, size), number).save(folder / f"{number}.png")
    with pytest.raises(InputError, match=r"images of EuroSAT differ in size \(8x8 and 9x9\); set `image_size`"):
        data.load("torchvision:EuroSAT", root=tmp_path)
    images = data.load("torchvision:EuroSAT", root=tmp_path, image_size=8)
    assert images.class_names == ("a", "b")
    assert torch.equal(images.images[1], torch.full((3, 8, 8), 1, dtype=torch.uint8))


class Host:
    """In place of the network: what torchvision asks for, and the file that it gets."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.archive, self.reachable = b"", True

    def __call__(self, url: str, root: str, filename: str, md5: str | None = None, **_others: object) -> None:
        self.asked.append(url)
        if not self.reachable:
            raise URLError("no route to host")
        assert len(md5 or "") == 32  # torchvision's own check of the file
        (Path(root) / filename).write_bytes(self.archive)


def test_a_missing_set_is_downloaded_once_by_torchvision_itself(monkeypatch, tmp_path):
    """EuroSAT's own code makes the folder and unpacks the archive; a download that failed is tried again."""
    host, packed, folder = Host(), io.BytesIO(), tmp_path / "new"
    with zipfile.ZipFile(packed, "w") as archive:
        for number, name in enumerate(("Forest", "River", "Forest")):
            picture = io.BytesIO()
            Image.new("RGB", (64, 64), (number, 10, 20)).save(picture, "png")
            archive.writestr(f"2750/{name}/{name}_{number}.png", picture.getvalue())
    monkeypatch.setattr("torchvision.datasets.utils.download_url", host)
    monkeypatch.setenv("ARELU_META_OFFLINE", "0")
    host.reachable = False
    with pytest.raises(InputError, match=r"EuroSAT: cannot download it \(.*no route to host.*\); put its files into"):
        data.load("torchvision:EuroSAT", root=folder)
    host.reachable, host.archive = True, b"an error page, not an archive"
    with pytest.raises(InputError, match=r"EuroSAT: cannot download it \(File is not a zip file\)"):
        data.load("torchvision:EuroSAT", root=folder)
    assert not data.is_local("torchvision:EuroSAT", root=folder)
    host.archive = packed.getvalue()
    for _ in range(2):
        images = data.load("torchvision:EuroSAT", root=folder)
        assert images.class_names == ("Forest", "River")
        assert images.labels.tolist() == [0, 0, 1]
        assert images.images[:, :, 0, 0].tolist() == [[0, 10, 20], [2, 10, 20], [1, 10, 20]]
    assert len(host.asked) == 3
    assert all(url.startswith("https://") and url.endswith("EuroSAT.zip") for url in host.asked)
    assert data.is_local("torchvision:EuroSAT", root=folder)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Flowers10", {}, "unknown set of torchvision 'Flowers10'; did you mean 'Flowers102'"),
        (
            "VOCDetection",
            {},
            "torchvision's VOCDetection is not read as a set of images with a class each; these are: CIFAR10, ",
        ),
        ("Flowers102", {}, r"Flowers102: cannot download it \(ARELU_META_OFFLINE is set\); put its files into"),
        ("FER2013", {}, "FER2013 is not there, and torchvision does not download it"),
        ("FakeData", {"sizes": 3}, "unknown option of FakeData: 'sizes'; did you mean 'size'"),
        ("Flowers102", {"split": "val"}, "unknown option of Flowers102: 'split'"),
        ("FakeData", {"image_size": 0}, "image_size must be at least 1, not 0"),
    ],
)
def test_one_line_for_what_cannot_be_read(name, options, message, tmp_path):
    with pytest.raises(InputError, match=message) as caught:
        data.load(f"torchvision:{name}", root=tmp_path, **options)
    assert "\n" not in str(caught.value)


def test_the_table_names_classes_with_these_arguments():
    """Every set of the table exists in the torchvision at hand and takes what it is given."""
    for name, parts in SETS.items():
        make = getattr(torchvision.datasets, name)
        code = make.__init__.__code__
        taken = {*code.co_varnames, *(("train",) if name in ("EMNIST", "QMNIST") else ())}
        for arguments in parts.values():
            assert set(arguments) <= taken, name


@pytest.mark.data
def test_the_published_mnist_is_ours(published_data):
    theirs, ours = data.load("torchvision:MNIST", root=published_data), data.load("mnist", root=published_data)
    assert torch.equal(theirs.images, ours.images)
    assert torch.equal(theirs.labels, ours.labels)
