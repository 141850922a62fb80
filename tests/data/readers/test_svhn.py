import numpy as np
import pytest
import torch
from scipy.io import savemat

from arelu_meta import data
from arelu_meta.data.readers import UnverifiedData
from arelu_meta.data.readers.svhn import load_svhn
from arelu_meta.errors import InputError

quiet = pytest.mark.filterwarnings("ignore::arelu_meta.data.readers.UnverifiedData")


def write(folder, name, images, labels, **options):
    """The publisher's layout: X (32, 32, 3, N), y (N, 1)."""
    folder.mkdir(parents=True, exist_ok=True)
    savemat(folder / name, {"X": images.transpose(2, 3, 1, 0), "y": np.array(labels, np.uint8)[:, None]}, **options)


def tiny(n):
    return np.random.default_rng(n).integers(0, 256, (n, 3, 32, 32), dtype=np.uint8)


@pytest.mark.parametrize("folder", ["svhn", "SVHN", "."])
def test_reads_mat_files_and_calls_ten_zero(tmp_path, folder):
    write(tmp_path / folder, "train_32x32.mat", tiny(4), [1, 10, 9, 10])
    write(tmp_path / folder, "test_32x32.mat", tiny(2), [5, 10])
    with pytest.warns(UnverifiedData) as warned:
        images = load_svhn(root=tmp_path)
    assert len(warned) == 1
    assert images.labels.tolist() == [1, 0, 9, 0, 5, 0]
    assert torch.equal(images.images, torch.from_numpy(np.concatenate([tiny(4), tiny(2)])))
    assert {part: index.tolist() for part, index in images.subsets.items()} == {"train": [0, 1, 2, 3], "test": [4, 5]}
    assert not images.provenance.verified


@pytest.mark.parametrize("label", [0, 11])
def test_labels_out_of_range(tmp_path, label):
    write(tmp_path, "train_32x32.mat", tiny(2), [1, label])
    write(tmp_path, "test_32x32.mat", tiny(1), [1])
    with pytest.raises(InputError, match=rf"train_32x32.mat: label {label} is outside 1\.\.10"):
        load_svhn(root=tmp_path)


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("keep", [0, 60, 130, 2000, -1])
def test_truncated_mat(tmp_path, compressed, keep):
    write(tmp_path, "train_32x32.mat", tiny(4), [1, 2, 3, 4], do_compression=compressed)
    write(tmp_path, "test_32x32.mat", tiny(1), [1])
    file = tmp_path / "train_32x32.mat"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(InputError, match=r"train_32x32.mat is damaged .*; delete it") as caught:
        load_svhn(root=tmp_path)
    assert "\n" not in str(caught.value)


def test_another_layout_is_refused(tmp_path):
    savemat(tmp_path / "train_32x32.mat", {"X": tiny(2), "y": np.ones((2, 1), np.uint8)})
    write(tmp_path, "test_32x32.mat", tiny(1), [1])
    with pytest.raises(InputError, match=r"not uint8 \(H, W, 3, N\)"):
        load_svhn(root=tmp_path)


def test_offline_names_the_missing_file_only(tmp_path):
    write(tmp_path / "svhn", "train_32x32.mat", tiny(2), [1, 2])
    with pytest.raises(
        InputError, match=r"^svhn: cannot download test_32x32.mat \(ARELU_META_OFFLINE is set\).*'street'"
    ):
        load_svhn(root=tmp_path)


@pytest.mark.data
def test_published_part_of_svhn(published_data):
    """All 26,032 test crops and all or the first 20,000 to train on; means near those of the whole training part."""
    with pytest.warns(UnverifiedData, match="^svhn: "):
        images = data.load("svhn", root=published_data)
    assert not images.provenance.verified
    assert len(images.subsets["test"]) == 26032
    train = images.subset(images.subsets["train"])
    assert len(train) == 73257
    means, deviations = train.channel_statistics()
    assert means == pytest.approx((0.4377, 0.4438, 0.4728), abs=0.01)
    assert deviations == pytest.approx((0.1980, 0.2010, 0.1970), abs=0.01)
    assert images.subset(images.subsets["test"]).counts().tolist() == [
        *(1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595)  # the test part as the literature tabulates it
    ]


@pytest.mark.data
def test_published_part_of_svhn_as_torchvision_reads_it(published_data, monkeypatch):
    from torchvision.datasets import SVHN

    monkeypatch.setattr(SVHN, "_check_integrity", lambda _: True)  # it refuses files with other sums
    with pytest.warns(UnverifiedData):
        images = load_svhn(root=published_data)
    for part in ("train", "test"):
        peer = SVHN(published_data / "svhn", split=part, download=False)
        assert torch.equal(images.images[images.subsets[part]], torch.from_numpy(peer.data))
        assert images.labels[images.subsets[part]].tolist() == peer.labels.tolist()
