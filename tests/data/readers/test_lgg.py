import numpy as np
import pytest
import torch
from PIL import Image

from arelu_meta import data
from arelu_meta.data.readers import UnverifiedData
from arelu_meta.data.readers.lgg import load_lgg
from arelu_meta.data.splits import by_group
from arelu_meta.errors import InputError

quiet = pytest.mark.filterwarnings("ignore::arelu_meta.data.readers.UnverifiedData")


def pixels(slice_number):
    return np.random.default_rng(slice_number).integers(0, 256, (8, 8, 3), dtype=np.uint8)


def write(folder, patient, slices):
    """Slices of a patient; those with an odd number have a tumour in one corner."""
    (folder / patient).mkdir(parents=True)
    for number in slices:
        mask = np.zeros((8, 8), np.uint8)
        mask[:2, :3] = 255 * (number % 2)
        Image.fromarray(pixels(number)).save(folder / patient / f"{patient}_{number}.tif")
        Image.fromarray(mask).save(folder / patient / f"{patient}_{number}_mask.tif")


@pytest.mark.parametrize("folder", ["kaggle_3m", "lgg-mri-segmentation/kaggle_3m", "."])
def test_reads_pairs_by_patient_and_slice(tmp_path, folder):
    write(tmp_path / folder, "TCGA_B_2", [1, 2])
    write(tmp_path / folder, "TCGA_A_1", [10, 9])
    with pytest.warns(UnverifiedData, match=r"^lgg: no checksums are published \(2 of 110 patients") as warned:
        images = load_lgg(root=tmp_path)
    assert len(warned) == 1
    assert images.group_names == ("TCGA_A_1", "TCGA_B_2")
    assert images.groups.tolist() == [0, 0, 1, 1]
    for image, number in zip(images.images, (9, 10, 1, 2), strict=True):
        assert np.array_equal(image.permute(1, 2, 0).numpy(), pixels(number))
    assert images.labels.tolist() == [1, 0, 1, 0]
    assert images.masks.dtype == torch.uint8
    assert images.masks.flatten(1).sum(1).tolist() == [6, 0, 6, 0]
    assert images.masks[0, 0, :2, :3].min() == 1
    assert not images.provenance.verified


@pytest.mark.parametrize("suffix", ["_1_mask.tif", "_1.tif"])
def test_a_pair_that_is_not_whole(tmp_path, suffix):
    write(tmp_path, "P", [1, 2])
    (tmp_path / "P" / f"P{suffix}").unlink()
    with pytest.raises(InputError, match=r"P_1_mask.tif and its image are not both there"):
        load_lgg(root=tmp_path)


def test_sizes_differ(tmp_path):
    write(tmp_path, "P", [1, 2])
    Image.fromarray(pixels(1)[:4]).save(tmp_path / "P" / "P_2.tif")
    with pytest.raises(InputError, match=r"P_2.tif is 4x8 and its mask 8x8, but the first slice is 8x8; .* copy"):
        load_lgg(root=tmp_path)


def test_a_mask_of_another_size(tmp_path):
    write(tmp_path, "P", [1, 2])
    Image.fromarray(pixels(1)[:6, :6, 0]).save(tmp_path / "P" / "P_1_mask.tif")
    with pytest.raises(InputError, match=r"P_1.tif is 8x8 and its mask 6x6, but the first slice is 8x8"):
        load_lgg(root=tmp_path)


def test_a_patient_without_masks(tmp_path):
    write(tmp_path, "P", [1, 2])
    write(tmp_path, "Q", [1, 2, 3])
    for mask in (tmp_path / "Q").glob("*_mask.tif"):
        mask.unlink()
    with pytest.raises(InputError, match=r"Q has 3 slices and not one mask \(\*_mask.tif\); copy its masks too"):
        load_lgg(root=tmp_path)


def test_a_truncated_tif(tmp_path):
    write(tmp_path, "P", [1])
    file = tmp_path / "P" / "P_1.tif"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InputError, match=r"P_1.tif is not a readable image") as caught:
        load_lgg(root=tmp_path)
    assert "\n" not in str(caught.value)


def test_not_there(tmp_path):
    with pytest.raises(InputError, match=r"download kaggle_3m from .* and put it into .*'phantom'") as caught:
        data.load("lgg", root=tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.data
def test_published_part_of_lgg(published_data):
    """Eight patients; each slice 256x256 with a mask; tumour pixels counted by an independent way through numpy."""
    with pytest.warns(UnverifiedData, match="8 of 110 patients"):
        images = data.load("lgg", root=published_data)
    files = sorted((published_data / "kaggle_3m").glob("*/*_mask.tif"))
    assert len(images) == len(files)
    assert (images.channels, images.image_size) == (3, (256, 256))
    assert len(images.group_names) == 8
    for group, patient in enumerate(images.group_names):
        own = [np.asarray(Image.open(file)) for file in files if file.parent.name == patient]
        assert int((images.groups == group).sum()) == len(own)
        assert int(images.masks[images.groups == group].sum()) == sum(int((mask == 255).sum()) for mask in own)
    split = by_group(images)
    seen = [set(getattr(split, part).groups.tolist()) for part in ("train", "validation", "test")]
    assert [len(groups) for groups in seen] == [4, 2, 2]
    assert set.union(*seen) == set(range(8))
