"""Few-shot models adapted to a folder answer files as `FewShotModel` does."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from arelu_meta import data
from arelu_meta.errors import InputError
from arelu_meta.kinds.few_shot.supported import load_with_support
from tests.tiny_model import tiny_model

NAMES = ("eight", "one", "three")  # in the order of the alphabet


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> Path:
    """Support of 2, 3 and 2 digits in class folders, ten others to ask for, and a model with a start of its own."""
    folder = tmp_path_factory.mktemp("few_shot")
    digits = data.load("digits")
    for name, digit, count in zip(NAMES, (8, 1, 3), (2, 3, 2), strict=True):
        (folder / "support" / name).mkdir(parents=True)
        for number in torch.nonzero(digits.labels == digit)[:count, 0].tolist():
            Image.fromarray(digits.images[number, 0].numpy()).save(folder / "support" / name / f"{number}.png")
    (folder / "new").mkdir()
    for number in range(1000, 1010):
        Image.fromarray(digits.images[number, 0].numpy()).save(folder / "new" / f"{number}.png")
    tiny_model().save(folder / "maml")
    tiny_model(method="protonet", ways=2).save(folder / "protonet")
    return folder


@pytest.mark.parametrize("name", ["maml", "protonet"])
def test_the_answers_are_those_of_the_adapted_model(folders, name):
    loaded = load_with_support(folders / name, folders / "support")
    assert list(loaded.class_names) == list(NAMES)
    table = loaded.predict(folders / "new")
    images = data.load("digits").images
    support = [[int(file.stem) for file in sorted((folders / "support" / each).iterdir())] for each in NAMES]
    labels = [number for number, files in enumerate(support) for _ in files]
    model = tiny_model() if name == "maml" else tiny_model(method="protonet", ways=2)
    expected = model.probabilities(images[[number for files in support for number in files]], labels, images[1000:1010])
    assert [Path(file).stem for file in table["file"]] == [str(number) for number in range(1000, 1010)]
    assert table["class"].tolist() == [NAMES[number] for number in expected.argmax(1).tolist()]
    np.testing.assert_allclose(table["probability"], expected.amax(1), rtol=1e-4, atol=1e-6)
    array = loaded.predict(images[1000:1010])
    np.testing.assert_allclose(array["probability"], table["probability"], rtol=1e-4, atol=1e-6)


def test_what_the_model_cannot_take_is_one_line(folders, tmp_path):
    for name in "abcd":
        (tmp_path / "four" / name).mkdir(parents=True)
        Image.new("L", (28, 28)).save(tmp_path / "four" / name / "1.png")
    with pytest.raises(InputError, match="the support has 4 classes, but the network's head was trained for 3"):
        load_with_support(folders / "maml", tmp_path / "four")
    assert len(load_with_support(folders / "protonet", tmp_path / "four").class_names) == 4
    (tmp_path / "one" / "a").mkdir(parents=True)
    Image.new("L", (28, 28)).save(tmp_path / "one" / "a" / "1.png")
    with pytest.raises(InputError, match="one holds one class, 'a'; a classifier needs two or more"):
        load_with_support(folders / "maml", tmp_path / "one")
    with pytest.raises(InputError, match="no folder 'nothing'; `support` is a folder with a folder of images"):
        load_with_support(folders / "maml", "nothing")
    (tmp_path / "four" / "a" / "1.png").write_bytes(b"none")
    with pytest.raises(InputError, match=r"four/a/1\.png is not a readable image"):
        load_with_support(folders / "protonet", tmp_path / "four")


def test_other_models_take_no_support(folders, tmp_path):
    from arelu_meta.data.inputs import Inputs
    from arelu_meta.store.models import WEIGHTS_FILE, save_weights

    save_weights({"w": torch.ones(2)}, tmp_path / WEIGHTS_FILE, Inputs(3, 28), ("cat", "dog"))
    with pytest.raises(InputError, match="is no few-shot model and adapts to no images; leave `support` out"):
        load_with_support(tmp_path, folders / "support")
