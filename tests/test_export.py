"""The command `python -m arelu_meta.export`, on a network that surgery has rewritten."""

import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from arelu_meta.export import main
from arelu_meta.kinds.finetune.run import prepare
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = MLFLOW_WARNINGS


def test_a_missing_package_is_said_before_anything_is_loaded(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "onnx" else object())
    monkeypatch.setattr("arelu_meta.store.models.open_model", lambda *_: pytest.fail("was begun"))
    assert main(["nobody", "--to", "onnx"]) == 2
    assert capsys.readouterr().err == "error: ONNX needs the package onnx; pip install 'arelu-meta[onnx]'\n"


@pytest.fixture
def images(finetuned):
    split, _ = prepare(finetuned.spec)
    return split.test.pixels(torch.arange(7)), split


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, finetuned):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", finetuned.tracking_uri)
    monkeypatch.chdir(tmp_path)


def logits(network, x):
    with torch.no_grad():
        return network.eval()(x)


def test_safetensors(finetuned, images, capsys):
    assert main([finetuned.run_id]) == 0
    folder = Path(f"export-{finetuned.run_id}")
    state = load_file(folder / "weights.safetensors")
    assert state.keys() == finetuned.network.state_dict().keys()
    assert all(torch.equal(state[name], value) for name, value in finetuned.network.state_dict().items())
    declared = json.loads((folder / "inputs.json").read_text())
    assert (declared["channels"], declared["image_size"]) == (3, 28)
    assert declared["mean"] == list(images[1].test.mean)
    assert declared["expects"] == "float32 (N, 3, H, W): bytes / 255, less `mean`, divided by `std`, channel by channel"
    assert (declared["resize"], declared["read_size"]) == ("scale", 0)
    assert declared["class_names"] == [str(digit) for digit in range(10)]
    assert "each equal to the graph's" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["0" * 32], "cannot fetch runs:/"),
        (["x", "--to", "pickle"], "invalid choice: 'pickle'"),
        ([], "the following arguments are required: RUN"),
    ],
)
def test_wrong_input_is_one_line(capsys, flags, message):
    assert main(flags) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


def test_a_folder_that_cannot_be_written(finetuned, capsys):
    Path("taken").write_text("a file")
    assert main([finetuned.run_id, "--output", "taken"]) == 2
    assert "cannot write to taken: File exists; choose another folder" in capsys.readouterr().err
    assert "torch" in sys.modules
