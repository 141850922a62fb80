"""Formats of a stored network that surgery has rewritten: each computes what the run's network does."""

from pathlib import Path

import numpy as np
import pytest
import torch

from arelu_meta.export import main
from arelu_meta.kinds.finetune.run import prepare
from arelu_meta.store import formats
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = MLFLOW_WARNINGS


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


def test_torch_export_takes_any_number_of_images(finetuned, images, capsys):
    assert main([f"runs:/{finetuned.run_id}/model", "--to", "torch_export", "--output", "out"]) == 0
    reloaded = torch.export.load("out/network.pt2").module()
    torch.testing.assert_close(reloaded(images[0]), logits(finetuned.network, images[0]), rtol=1e-5, atol=1e-5)
    assert "differs by 0 of the largest output" in capsys.readouterr().out


def test_two_networks_in_one_folder_are_not_mixed(finetuned, capsys):
    """Formats of one network stand beside each other; those of another would go with the wrong inputs.json."""
    assert main([finetuned.run_id, "--output", "out"]) == 0
    assert main([finetuned.run_id, "--to", "torch_export", "--output", "out"]) == 0
    declared = Path("out/inputs.json")
    declared.write_text(declared.read_text().replace(finetuned.run_id, "0" * 32))
    before = {path: path.read_bytes() for path in Path("out").iterdir()}
    assert main([finetuned.run_id, "--output", "out"]) == 2
    assert f"out holds another network (runs:/{'0' * 32}/model); choose another" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in Path("out").iterdir()} == before


def test_onnx(finetuned, images, capsys):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    assert main([finetuned.run_id, "--to", "onnx", "--output", "out"]) == 0
    session = runtime.InferenceSession("out/network.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: images[0].numpy()})
    np.testing.assert_allclose(found, logits(finetuned.network, images[0]).numpy(), rtol=1e-4, atol=1e-5)
    assert "out/network.onnx: read again" in capsys.readouterr().out


def test_what_computes_something_else_is_not_passed_over(finetuned, monkeypatch, capsys):
    monkeypatch.setattr(formats, "TOLERANCE", -1.0)
    assert main([finetuned.run_id, "--to", "torch_export", "--output", "out"]) == 1
    assert "network.pt2 computes something else" in capsys.readouterr().err


def test_without_the_packages_of_onnx(finetuned, monkeypatch, capsys):
    monkeypatch.setattr(formats.importlib.util, "find_spec", lambda name: None if name == "onnxscript" else object())
    assert main([finetuned.run_id, "--to", "onnx", "--output", "out"]) == 2
    assert capsys.readouterr().err == "error: ONNX needs the package onnxscript; pip install 'arelu-meta[onnx]'\n"
