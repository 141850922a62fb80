"""Segmentation networks in use: masks have the size and place of what was marked in the file."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from arelu_meta.data.inputs import Inputs
from arelu_meta.errors import InputError
from arelu_meta.store.marking import Marked, SegmentationModel, marks_pixels, volume_note


def model(inputs: Inputs, maps: int = 1) -> SegmentationModel:
    """Marks what is lighter than half."""
    served = SimpleNamespace(inputs=inputs, class_names=(), network=lambda x: (x - 0.5).expand(-1, maps, -1, -1))
    return SegmentationModel("it", served)


def half_lit(path: Path, size: tuple[int, int]) -> Path:
    """White on the left quarter of its width."""
    image = Image.new("L", size, 10)
    image.paste(250, (0, 0, size[0] // 4, size[1]))
    image.save(path)
    return path


def test_files_of_any_size_have_masks_of_their_size(tmp_path):
    file = half_lit(tmp_path / "a.png", (40, 24))
    found = model(Inputs(1, 8, resize="squash")).mark_files([file])
    assert found.table().to_dict("records") == [{"file": str(file), "foreground": pytest.approx(0.25)}]
    mask = np.asarray(found.mask(0, (40, 24)))
    assert mask.shape == (24, 40)
    assert (mask == np.asarray(Image.open(file)) // 250 * 255).all()
    array = model(Inputs(1, 8)).predict(np.asarray(Image.open(file).resize((8, 8)))[None, None])
    assert array.to_dict("records") == [{"foreground": 0.25}]


@pytest.mark.parametrize("inputs", [Inputs(1, 8), Inputs(1, 8, read_size=8), Inputs(1, 8, read_size=16)])
def test_beside_the_square_that_was_scaled_nothing_is_marked(tmp_path, inputs):
    """Out of 48x24 the middle 24x24, from column 12 on, is what the network gets."""
    file = tmp_path / "white.png"
    Image.new("L", (48, 24), 255).save(file)
    mask = np.asarray(model(inputs).mark_files([file]).mask(0, (48, 24)))
    expected = np.zeros((24, 48), np.uint8)
    expected[:, 12:36] = 255
    assert (mask == expected).all()


def test_of_a_cut_out_centre_the_rest_is_not_marked(tmp_path):
    """16 pixels out of 20x20 start at 2; the file is 40x40, read at 20."""
    inputs = Inputs(1, 16, resize="crop", read_size=20)
    file = tmp_path / "white.png"
    Image.new("L", (40, 40), 255).save(file)
    mask = np.asarray(model(inputs).mark_files([file]).mask(0, (40, 40)))
    expected = np.zeros((40, 40), np.uint8)
    expected[4:36, 4:36] = 255
    assert (mask == expected).all()


def test_a_cut_without_resampling():
    found = Marked([Path("a")], torch.ones(1, 4, 4, dtype=torch.bool), Inputs(1, 4, resize="crop"))
    mask = np.asarray(found.mask(0, (8, 6)))
    assert mask.sum() == 16 * 255
    assert (mask[1:5, 2:6] == 255).all()


def test_several_kinds_of_pixels_are_refused():
    with pytest.raises(InputError, match="it tells 3 kinds of pixels apart"):
        model(Inputs(1, 8), maps=3).predict(np.zeros((2, 1, 8, 8), np.uint8))


def test_maps_are_told_from_logits():
    def served(network):
        return SimpleNamespace(inputs=Inputs(3, 8), network=network)

    assert marks_pixels(served(lambda x: x[:, :1]))
    assert not marks_pixels(served(lambda x: x.mean((2, 3))))


@pytest.mark.parametrize(
    ("volumes", "note"),
    [
        ({}, ""),
        ({"drop_ends": True, "percentiles": []}, ""),
        ({"percentiles": [10, 99], "crop_volumes": True}, "patient by patient (crop_volumes, percentiles)"),
    ],
)
def test_images_prepared_by_patient_are_noted(volumes, note):
    stored = SimpleNamespace(source="it", spec=lambda: {"volumes": volumes})
    assert note in volume_note(stored)
    assert bool(volume_note(stored)) == bool(note)
