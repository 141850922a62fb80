"""Formats of a stored network that surgery has rewritten: each computes what the run's network does."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from arelu_meta.export import main
from arelu_meta.kinds import run
from arelu_meta.kinds.finetune.run import prepare
from arelu_meta.store import formats
from tests.supervised_runs import finetune_spec
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = MLFLOW_WARNINGS
SPEC = finetune_spec(training={"epochs": 1})


@pytest.fixture(scope="module")
def trained(tmp_path_factory, new_store):
    """One finished run with its store, for all tests here."""
    folder = tmp_path_factory.mktemp("trained")
    shutil.copy(new_store, folder / "mlflow.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlflow.db'}")
        patch.setenv("ARELU_META_RUNS", str(folder / "runs"))
        yield run(SPEC)


@pytest.fixture
def images():
    split, _ = prepare(SPEC)
    return split.test.pixels(torch.arange(7)), split


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, trained):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", trained.tracking_uri)
    monkeypatch.chdir(tmp_path)


def logits(network, x):
    with torch.no_grad():
        return network.eval()(x)


def test_torch_export_takes_any_number_of_images(trained, images, capsys):
    assert main([f"runs:/{trained.run_id}/model", "--to", "torch_export", "--output", "out"]) == 0
    reloaded = torch.export.load("out/network.pt2").module()
    torch.testing.assert_close(reloaded(images[0]), logits(trained.network, images[0]), rtol=1e-5, atol=1e-5)
    assert "differs by 0 of the largest output" in capsys.readouterr().out


def test_two_networks_in_one_folder_are_not_mixed(trained, capsys):
    """Formats of one network stand beside each other; those of another would go with the wrong inputs.json."""
    assert main([trained.run_id, "--output", "out"]) == 0
    assert main([trained.run_id, "--to", "torch_export", "--output", "out"]) == 0
    declared = Path("out/inputs.json")
    declared.write_text(declared.read_text().replace(trained.run_id, "0" * 32))
    before = {path: path.read_bytes() for path in Path("out").iterdir()}
    assert main([trained.run_id, "--output", "out"]) == 2
    assert f"out holds another network (runs:/{'0' * 32}/model); choose another" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in Path("out").iterdir()} == before


def test_onnx(trained, images, capsys):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    assert main([trained.run_id, "--to", "onnx", "--output", "out"]) == 0
    session = runtime.InferenceSession("out/network.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: images[0].numpy()})
    np.testing.assert_allclose(found, logits(trained.network, images[0]).numpy(), rtol=1e-4, atol=1e-5)
    assert "out/network.onnx: read again" in capsys.readouterr().out


def test_what_computes_something_else_is_not_passed_over(trained, monkeypatch, capsys):
    monkeypatch.setattr(formats, "TOLERANCE", -1.0)
    assert main([trained.run_id, "--to", "torch_export", "--output", "out"]) == 1
    assert "network.pt2 computes something else" in capsys.readouterr().err


def test_without_the_packages_of_onnx(trained, monkeypatch, capsys):
    monkeypatch.setattr(formats.importlib.util, "find_spec", lambda name: None if name == "onnxscript" else object())
    assert main([trained.run_id, "--to", "onnx", "--output", "out"]) == 2
    assert capsys.readouterr().err == "error: ONNX needs the package onnxscript; pip install 'arelu-meta[onnx]'\n"
