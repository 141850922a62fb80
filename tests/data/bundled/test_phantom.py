import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy import ndimage

from arelu_meta import data
from arelu_meta.data.bundled.phantom import PATIENTS, SLICES, patient


@pytest.fixture(scope="module")
def phantom():
    return data.load("phantom")


def by_patient(tensor):
    return tensor.view(PATIENTS, SLICES, *tensor.shape[1:])


def test_size(phantom):
    assert phantom.images.shape == (360, 3, 64, 64)
    assert phantom.masks.shape == (360, 1, 64, 64)
    assert set(phantom.masks.unique().tolist()) == {0, 1}
    assert torch.bincount(phantom.groups).tolist() == [12] * 30


def test_labels_say_whether_the_mask_is_empty(phantom):
    filled = phantom.masks.numpy().reshape(360, -1).max(1)
    np.testing.assert_array_equal(phantom.labels.numpy(), filled)


def test_many_masks_are_empty_and_every_patient_has_a_lesion(phantom):
    """As in LGG: of its slices 35 % show a tumour, of its patients all."""
    assert 0.25 < phantom.labels.double().mean() < 0.65
    lesions = by_patient(phantom.labels).sum(1)
    assert (lesions > 0).all()
    assert (lesions < 12).any()
    for numbers in phantom.subsets.values():
        assert set(phantom.labels[numbers].tolist()) == {0, 1}


def test_patients_stay_together(phantom):
    patients_of = [set(phantom.groups[numbers].tolist()) for numbers in phantom.subsets.values()]
    assert [len(patients) for patients in patients_of] == [20, 4, 6]
    assert len(set.union(*patients_of)) == 30


def test_a_lesion_is_one_lump_over_neighbouring_slices(phantom):
    for masks in by_patient(phantom.masks[:, 0]).numpy():
        assert ndimage.label(masks)[1] <= 1


def test_lesions_are_irregular(phantom):
    """Filling the convex hull would leave a disc as it is (compactness near 1); these have a longer edge.

    Compactness is 4 pi area / perimeter^2, with the perimeter counted in pixel edges (4/pi too long for a disc), so
    a disc has about (pi/4)^2 = 0.62. Lesions above 60 pixels must lie below it on average, and differ among each other.
    """
    values = []
    for mask in phantom.masks[:, 0].numpy().astype(int):
        if mask.sum() > 60:
            edges = np.abs(np.diff(mask, axis=0)).sum() + np.abs(np.diff(mask, axis=1)).sum()
            values.append(4 * np.pi * mask.sum() / edges**2)
    assert len(values) > 20
    assert np.mean(values) < 0.5
    assert np.std(values) > 0.05


def test_lesions_are_bright_in_flair_on_average_but_no_threshold_finds_them(phantom):
    """The scalp is as bright as a lesion, so the best threshold on FLAIR alone stays below a Dice of 0.5."""
    flair, mask = phantom.images[:, 1].float(), phantom.masks[:, 0].bool()
    inside = (flair > 60) & ~mask
    assert flair[mask].mean() > flair[inside].mean() * 1.15
    dice = [
        float(2 * ((flair > level) & mask).sum() / ((flair > level).sum() + mask.sum())) for level in range(60, 250, 10)
    ]
    assert max(dice) < 0.5


def test_the_head_is_surrounded_by_air(phantom):
    corners = phantom.images[:, :, [0, 0, -1, -1], [0, -1, 0, -1]].float()
    assert corners.mean() < 30
    assert phantom.images[:, :, 28:36, 28:36].float().mean() > 60


def test_neighbouring_slices_resemble_each_other_more_than_other_patients(phantom):
    images = by_patient(phantom.images.float() / 255)
    neighbours = (images[:, 5] - images[:, 6]).abs().mean()
    strangers = (images[:-1, 5] - images[1:, 5]).abs().mean()
    assert neighbours < 0.8 * strangers


def test_a_patient_is_drawn_from_its_own_number():
    first, again, other = (patient(np.random.default_rng(seed))[0] for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.slow
def test_same_digest_when_two_processes_draw_it(phantom, tmp_path):
    code = "from arelu_meta import data; print(data.load('phantom').digest)"
    environment = {"ARELU_META_CACHE": str(tmp_path), "PATH": "", "PYTHONHASHSEED": "1"}
    other = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == phantom.digest
