"""Look into trained runs: Grad-CAM and feature maps of one or more of them, as files and as their artifacts."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from arelu_meta.console.command_line import output_folder
from arelu_meta.console.flags import validated
from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import InputError
from arelu_meta.kinds.classify.run import build_classifier
from arelu_meta.kinds.classify.spec import ClassifySpec
from arelu_meta.kinds.split import load_split
from arelu_meta.pictures.explain import feature_maps_figure, find_layer, grad_cam, grad_cam_figure
from arelu_meta.store.connection import attach_figure, run_tags
from arelu_meta.store.run_folder import RunFolder


@dataclass(frozen=True)
class Looked:
    """What was drawn: files, and the runs that have them as artifacts now."""

    files: list[Path]
    run_ids: list[str]


@dataclass(frozen=True)
class _Trained:
    name: str
    network: nn.Module
    images: ImageSet
    run_id: str


def look_into(
    runs: Sequence[str], *, layer: str, maps_layer: str = "", images: int = 4, root: str | None = None, out: Path
) -> Looked:
    """Draw Grad-CAM on `layer`, and feature maps before and after `maps_layer` when it is given.

    `runs` are MLflow run ids or run folders of classification runs on the same test images. Grad-CAM explains the label
    of each image.
    """
    trained = [_open(run, root) for run in runs]
    test = trained[0].images
    for other in trained[1:]:
        if other.images.digest != test.digest:
            raise InputError(f"{runs[0]} and {other.name} were tested on other images; look at them one by one")
    for one in trained:
        for name in filter(None, (layer, maps_layer)):
            find_layer(one.network, name)
    output_folder(out)
    numbers = torch.arange(min(images, len(test))) * (len(test) // min(images, len(test)))
    x, labels = test.pixels(numbers), test.labels[numbers]
    names = _distinct([one.name for one in trained])
    heat = {name: grad_cam(one.network, x, labels, layer=layer) for name, one in zip(names, trained, strict=True)}
    figures = {"grad_cam.png": _titled_cam(x, heat, labels, test, layer)}
    if maps_layer:
        networks = {name: one.network.eval() for name, one in zip(names, trained, strict=True)}
        figures["feature_maps.png"] = feature_maps_figure(networks, x[0], layer=maps_layer)
    for file, figure in figures.items():
        figure.savefig(out / file, dpi=150)
        for one in trained:
            attach_figure(one.run_id, figure, f"figures/{file}")
    return Looked([out / file for file in figures], [one.run_id for one in trained])


def _titled_cam(x: Tensor, heat: dict[str, Tensor], labels: Tensor, test: ImageSet, layer: str) -> Figure:
    figure = grad_cam_figure(x, heat, titles=[test.class_names[label] for label in labels.tolist()])
    figure.suptitle(f"Grad-CAM of the label at {layer!r} (n = {len(x)} test images)", fontsize="medium")
    return figure


def _open(run: str, root: str | None) -> _Trained:
    """Build the network of a run again, with the weights of its selected epoch."""
    folder = Path(run) if Path(run).is_dir() else None
    if folder is None:
        tags = run_tags(run)
        folder = RunFolder.place(tags["task"], tags["spec_hash"])
    if not (folder / "spec.json").is_file() or not (folder / "checkpoint.pt").is_file():
        raise InputError(
            f"{folder} has no spec.json and checkpoint.pt of run {run!r}; set ARELU_META_RUNS to its folder"
        )
    values = json.loads((folder / "spec.json").read_text())
    if values.get("kind") != "classify":
        raise InputError(f"{folder} holds a {values.get('kind')} run; Grad-CAM here takes classify runs")
    spec = validated(ClassifySpec, values, f"{folder / 'spec.json'}")
    checkpoint = RunFolder.read(folder / "checkpoint.pt")
    if not Path(run).is_dir() and checkpoint["run_id"] != run:
        raise InputError(
            f"{folder} now holds a later run of the same settings, {checkpoint['run_id']}, not {run}; look at that one"
        )
    last = spec.evaluation.select == "last"
    split = load_split(spec.data, root=root, fit=spec.fit, train_on_validation=last)
    network = build_classifier(spec.network, split.train, seed=spec.seed)
    network.load_state_dict(checkpoint["fitted"]["best_state"])
    return _Trained(spec.network.activation, network, split.test, checkpoint["run_id"])


def _distinct(names: list[str]) -> list[str]:
    """Number names that occur more than once, so that each has a row."""
    return [
        f"{name} {names[: place + 1].count(name)}" if names.count(name) > 1 else name
        for place, name in enumerate(names)
    ]
