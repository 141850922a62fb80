"""Small files of every format that is read, with their readers: what mutants are made of."""

import csv
import functools
import gzip
import io
import json
import pickle
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from scipy.io import savemat
from torch import nn

from arelu_meta import data
from arelu_meta.comparison.cells import expand
from arelu_meta.comparison.experiment import read_experiment
from arelu_meta.console import catalog
from arelu_meta.console.flags import validated
from arelu_meta.data.files.download import unpack
from arelu_meta.data.files.mat import read_mat
from arelu_meta.data.inputs import Inputs
from arelu_meta.data.readers.cifar import load_cifar10
from arelu_meta.data.readers.mnist import read_idx
from arelu_meta.data.readers.omniglot import load_omniglot
from arelu_meta.kinds.few_shot.model import FewShotModel
from arelu_meta.kinds.few_shot.spec import FewShotSpec
from arelu_meta.pretrained.networks import find_model
from arelu_meta.pretrained.weights import read_weights
from arelu_meta.store.graphs import trace
from arelu_meta.store.models import WEIGHTS_FILE, open_model, save_weights
from arelu_meta.store.run_folder import RunFolder
from tests.faults.journal_specimen import journal
from tests.faults.specimen import Specimen
from tests.tiny_model import tiny_model
from tests.tiny_runs import tiny_spec

RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(0, 256, (4, 8, 8, 3)).astype(np.uint8)
MLMODEL = """flavors:
  python_function:
    loader_module: arelu_meta.kinds.few_shot.model
    data: data/model
    python_version: 3.11.7
model_uuid: 5f1c
run_id: 0123456789abcdef0123456789abcdef
"""


def _one(name: str, file: str, content: bytes, read: Callable[[Path], object]) -> Specimen:
    return Specimen(name, {file: content}, lambda folder: read(folder / file), (file,))


def _written(write: Callable[[Path], object]) -> dict[str, bytes]:
    """Files that something writes into a folder."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        paths = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def idx(*, packed: bool) -> Specimen:
    content = bytes((0, 0, 8, 3)) + np.array([4, 8, 8], ">u4").tobytes() + PIXELS[..., 0].tobytes()
    name, content = ("gz", gzip.compress(content)) if packed else ("idx", content)
    return _one(name, "x.gz" if packed else "x", content, lambda path: read_idx(path, dims=3))


def mat(*, packed: bool) -> Specimen:
    out = io.BytesIO()
    savemat(out, {"X": PIXELS.transpose(1, 2, 3, 0), "y": np.ones((4, 1), np.uint8)}, do_compression=packed)
    name = "mat, packed" if packed else "mat"
    return _one(name, "x.mat", out.getvalue(), lambda path: read_mat(path, ("X", "y")))


def cifar(*, binary: bool) -> Specimen:
    rows, labels = RANDOM.integers(0, 256, (3, 3072)).astype(np.uint8), [0, 5, 9]
    if binary:
        names = "\n".join(f"class{number}" for number in range(10)).encode()
        content = b"".join(bytes([label]) + row.tobytes() for label, row in zip(labels, rows, strict=True))
        files = {"cifar-10-batches-bin/data_batch_1.bin": content, "cifar-10-batches-bin/batches.meta.txt": names}
    else:
        content = pickle.dumps({"data": rows, "labels": labels, "batch_label": "one"}, protocol=2)
        meta = pickle.dumps({"label_names": [f"class{number}" for number in range(10)]}, protocol=2)
        files = {"cifar-10-batches-py/data_batch_1": content, "cifar-10-batches-py/batches.meta": meta}
    name = "cifar binary" if binary else "cifar pickle"
    return Specimen(name, files, lambda folder: load_cifar10(root=folder), tuple(files))


def image_folder(suffix: str) -> Specimen:
    files = {}
    for number, pixels in enumerate(PIXELS):
        out = io.BytesIO()
        Image.fromarray(pixels).save(out, format={"jpg": "jpeg", "tif": "tiff"}.get(suffix, suffix))
        files[f"set/{'ab'[number % 2]}/{number}.{suffix}"] = out.getvalue()
    return Specimen(f"folder of {suffix}", files, lambda folder: data.load(str(folder / "set")), tuple(files))


def table() -> Specimen:
    out, pictures = io.StringIO(), image_folder("png").files
    writer = csv.writer(out)
    writer.writerow(["filename", "label", "split"])
    for number, name in enumerate(pictures):
        writer.writerow([name.removeprefix("set/"), "ab"[number % 2], ("train", "test")[number // 2]])
    files = {**pictures, "set/all.csv": out.getvalue().encode()}
    return Specimen("csv", files, lambda folder: data.load(str(folder / "set")), ("set/all.csv",))


def npz(*, packed: bool) -> Specimen:
    out = io.BytesIO()
    (np.savez_compressed if packed else np.savez)(out, x=PIXELS, y=np.array([0, 1, 0, 1]))
    return _one("npz, packed" if packed else "npz", "x.npz", out.getvalue(), lambda path: data.load(str(path)))


def archive() -> Specimen:
    """The zip files of Omniglot."""
    files = {}
    for part in ("background", "evaluation"):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
            for number in range(2):
                drawing = io.BytesIO()
                Image.fromarray(PIXELS[number, ..., 0]).save(drawing, format="png")
                file.writestr(f"images_{part}/Greek/character0{number}/000{number}.png", drawing.getvalue())
        files[f"omniglot-py/images_{part}.zip"] = out.getvalue()
    return Specimen("zip", files, lambda folder: load_omniglot(root=folder), tuple(files))


def tar() -> Specimen:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as file:
        for name in ("set/a", "set/b"):
            member = tarfile.TarInfo(name)
            member.size = 1000
            file.addfile(member, io.BytesIO(RANDOM.bytes(1000)))
    return _one("tar", "x.tar.gz", out.getvalue(), lambda path: unpack(path, path.parent, "set"))


def task() -> Specimen:
    content = (catalog.folder("task") / "digits.toml").read_bytes()

    def read(path: Path) -> object:
        return validated(FewShotSpec, {"kind": "few_shot", **catalog.read("task", str(path))}, str(path))

    return _one("task", "mine.toml", content, read)


def experiment() -> Specimen:
    content = (catalog.folder("experiment") / "maml_digits.toml").read_bytes()
    return _one("experiment", "mine.toml", content, lambda path: expand(read_experiment(str(path))))


def checkpoint() -> Specimen:
    def write(folder: Path) -> None:
        made = RunFolder(tiny_spec())
        made.path, made.checkpoint_path = folder, folder / "checkpoint.pt"
        weights = nn.Linear(20, 3).state_dict()
        moments = {number: {"step": 1, "exp_avg": torch.rand(20, 3)} for number in range(2)}
        optimizer = {"state": moments, "param_groups": [{"lr": 0.1, "betas": (0.9, 0.999), "params": [0, 1]}]}
        state = {"state": weights, "optimizer": optimizer, "run_id": "0" * 32}
        made.save({**state, "curves": {"train": [(1, 0.5), (2, 0.6)]}, "random": torch.get_rng_state()})

    return Specimen("checkpoint", _written(write), RunFolder.read_last, ("checkpoint.pt",))


def weights(suffix: str) -> Specimen:
    state = {"a.weight": torch.rand(40, 30), "a.bias": torch.rand(40), "n": torch.tensor(3)}
    out = _written(lambda folder: save_weights(state, folder / "x.safetensors", Inputs(3, 8), ("a", "b")))
    if suffix == "pth":
        out = _written(lambda folder: torch.save({"state_dict": state, "epoch": 3}, folder / "x.pth"))
    model = find_model("resnet18")
    return _one(suffix, f"x.{suffix}", out[f"x.{suffix}"], lambda path: read_weights(str(path), model=model).digest)


def few_shot() -> Specimen:
    files = _written(lambda folder: tiny_model(ways=2).save(folder / "model"))
    return Specimen("few-shot model", files, lambda folder: FewShotModel.load(folder / "model"), tuple(files))


def mlmodel() -> Specimen:
    files = _written(lambda folder: tiny_model(ways=2).save(folder / "data" / "model"))
    return Specimen("MLmodel", files | {"MLmodel": MLMODEL.encode()}, FewShotModel.load, ("MLmodel",))


def network() -> Specimen:
    """A stored network: its graph, and its weights with what images it takes."""

    def write(folder: Path) -> None:
        made = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2)).eval()
        torch.export.save(trace(made, torch.rand(2, 1, 4, 4)), folder / "model.pt2")
        save_weights(made.state_dict(), folder / WEIGHTS_FILE, Inputs(1, 4), ("a", "b"))

    files = _written(write)

    def read(folder: Path) -> object:
        stored = open_model(folder)
        return stored.program(), stored.state_dict()

    return Specimen("stored network", files, read, tuple(files))


def header() -> Specimen:
    """Settings in the header of weights, damaged as JSON."""
    values = {"channels": 3, "image_size": 8, "mean": [0.5] * 3, "std": [0.2] * 3, "class_names": ["a", "b"]}

    def read(path: Path) -> object:
        text = path.read_bytes().decode("utf-8", "replace")
        save_file({"w": torch.zeros(1)}, path.parent / WEIGHTS_FILE, metadata={"arelu_meta_inputs": text})
        return open_model(path.parent)

    return _one("header", "header.json", json.dumps(values).encode(), read)


SPECIMENS: dict[str, Callable[[], Specimen]] = {
    "idx": functools.partial(idx, packed=False),
    "gz": functools.partial(idx, packed=True),
    "mat": functools.partial(mat, packed=False),
    "matz": functools.partial(mat, packed=True),
    "cifar_pickle": functools.partial(cifar, binary=False),
    "cifar_binary": functools.partial(cifar, binary=True),
    **{f"folder_{suffix}": functools.partial(image_folder, suffix) for suffix in ("png", "jpg", "tif")},
    "csv": table,
    "npz": functools.partial(npz, packed=False),
    "npzc": functools.partial(npz, packed=True),
    "zip": archive,
    "tar": tar,
    "task": task,
    "experiment": experiment,
    "checkpoint": checkpoint,
    "safetensors": functools.partial(weights, "safetensors"),
    "pth": functools.partial(weights, "pth"),
    "few_shot": few_shot,
    "mlmodel": mlmodel,
    "network": network,
    "header": header,
    "journal": functools.partial(journal, checked=True),
    "journal_lines": functools.partial(journal, checked=False),
}
