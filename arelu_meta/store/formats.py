"""Write a stored network in a format that others read, and check that what was written computes the same."""

import importlib.util
import json
import shutil
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import asdict
from io import StringIO
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.export import ExportedProgram

from arelu_meta.errors import InputError, RunError, require
from arelu_meta.store.graphs import GRAPH_FILE
from arelu_meta.store.model_card import configuration, model_card
from arelu_meta.store.models import WEIGHTS_FILE, StoredModel, open_model

TOLERANCE = 1e-4  # of the largest logit: another library adds up in another order


def write(stored: StoredModel, kind: str, folder: Path) -> list[str]:
    """Write one format into a folder and say what was written and how it was checked."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        declared = folder / "inputs.json"
        _check_same_network(declared, stored.source)
        line = FORMATS[kind](stored, folder)
        inputs = {**asdict(stored.inputs), "class_names": stored.class_names} if stored.inputs else {}
        if stored.inputs:
            scale = ", less `mean`, divided by `std`, channel by channel" if stored.inputs.mean else ""
            inputs["expects"] = f"float32 (N, {stored.inputs.channels}, H, W): bytes / 255{scale}"
        declared.write_text(json.dumps({**inputs, "source": stored.source}) + "\n")
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}; choose another folder with `output`") from error
    return [line, f"{declared}: what it expects, size and normalisation of its images, and its classes"]


def _check_same_network(declared: Path, source: str) -> None:
    """Refuse to mix two networks in one folder; formats of one network may stand beside each other."""
    if not declared.exists():
        return
    try:
        other = json.loads(declared.read_text()).get("source")
    except (ValueError, AttributeError):
        other = None
    if other != source:
        whose = other or "of unknown source"
        raise InputError(f"{declared.parent} holds another network ({whose}); choose another folder with `output`")


def _write_safetensors(stored: StoredModel, folder: Path) -> str:
    path = folder / WEIGHTS_FILE
    shutil.copyfile(stored.weights, path)
    written, own = load_file(path), stored.program().state_dict
    if any(name not in written or not torch.equal(written[name], value) for name, value in own.items()):
        raise RunError(f"{path} is not what the graph of the run holds; the store was changed")
    return f"{path}: {len(written)} tensors, each equal to the graph's"


def _write_torch_export(stored: StoredModel, folder: Path) -> str:
    path, program = folder / "network.pt2", stored.program()
    torch.export.save(program, path)
    return _check_outputs(path, program, torch.export.load(path).module())


def _write_onnx(stored: StoredModel, folder: Path) -> str:
    require("onnx", "onnxscript", what="ONNX", extra="onnx")
    path, program = folder / "network.onnx", stored.program()
    with warnings.catch_warnings(), redirect_stdout(StringIO()):  # the exporter tells its steps
        warnings.simplefilter("ignore")
        torch.onnx.export(program, (), path, dynamo=True, external_data=False, verbose=False)
    if importlib.util.find_spec("onnxruntime") is None:
        return f"{path}: not checked, as the package onnxruntime is missing"
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return _check_outputs(
        path, program, lambda x: torch.from_numpy(np.asarray(session.run(None, {name: x.numpy()})[0]))
    )


def _check_outputs(path: Path, program: ExportedProgram, reloaded: Callable[[Tensor], Tensor]) -> str:
    """Compare on three images of noise what was written with the run's graph; the batch was two in the trace."""
    example = program.example_inputs[0][0]
    noise = torch.randn(3, *example.shape[1:], generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected, actual = program.module()(noise), reloaded(noise)
    error = ((actual - expected).abs().max() / expected.abs().max()).item()
    if not error <= TOLERANCE:
        raise RunError(f"{path} computes something else: off by {error:.2g} of the largest output")
    return f"{path}: read again, it differs by {error:.1g} of the largest output on three images of noise"


def _write_hub(stored: StoredModel, folder: Path) -> str:
    """Write a folder for a model hub, which `load_model` reads; what was written is opened again and compared."""
    tensors = load_file(stored.weights)
    shutil.copyfile(stored.weights, folder / WEIGHTS_FILE)
    shutil.copyfile(stored.graph(), folder / GRAPH_FILE)
    (folder / "config.json").write_text(json.dumps(configuration(stored), indent=2) + "\n", encoding="utf-8")
    card = model_card(stored, sum(tensor.numel() for tensor in tensors.values()))
    (folder / "README.md").write_text(card, encoding="utf-8")
    line = _check_outputs(folder / GRAPH_FILE, stored.program(), open_model(folder).network())
    return f"{line}\n{folder}: {WEIGHTS_FILE}, config.json and the card README.md; complete it before you upload it"


FORMATS: dict[str, Callable[[StoredModel, Path], str]] = {
    "safetensors": _write_safetensors,
    "torch_export": _write_torch_export,
    "onnx": _write_onnx,
    "hub": _write_hub,
}
