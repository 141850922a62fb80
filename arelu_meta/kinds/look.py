"""Look into trained runs: Grad-CAM and feature maps of one or more of them, as files and as their artifacts."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import nn

from arelu_meta import data
from arelu_meta.backbones import side_for
from arelu_meta.console.command_line import output_folder
from arelu_meta.console.flags import validated
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.inputs import fit_images
from arelu_meta.errors import InputError
from arelu_meta.kinds.classify.spec import ClassifySpec
from arelu_meta.kinds.images import is_folder, load_split
from arelu_meta.kinds.networks import build_classifier
from arelu_meta.kinds.segment.run import read_split
from arelu_meta.kinds.segment.spec import SegmentSpec
from arelu_meta.pictures.grad_cam import (
    feature_maps_figure,
    find_layer,
    grad_cam,
    grad_cam_figure,
    layers_with_maps,
)
from arelu_meta.reading import parsing, read_json
from arelu_meta.store.connection import attach_figure, get_run, read_artifact
from arelu_meta.store.grid_images import attach_image
from arelu_meta.store.models import StoredModel, open_model
from arelu_meta.store.run_folder import RunFolder
from arelu_meta.trust import registered_only

MOST_LAYERS = 12  # that one line names


@dataclass(frozen=True)
class Drawn:
    """The files that were drawn, and the runs that have them as artifacts now."""

    files: list[Path]
    run_ids: list[str]


@dataclass(frozen=True)
class Trained:
    """A trained network with the images that its run was tested on; `name` is its activation."""

    name: str
    network: nn.Module
    images: ImageSet
    run_id: str


def look_into(
    runs: Sequence[str],
    *,
    layer: str,
    maps_layer: str = "",
    images: int = 4,
    root: str | None = None,
    out: Path,
    trust: Iterable[str] = (),
) -> Drawn:
    """Draw Grad-CAM of the test images of trained runs, and feature maps before and after an activation.

    Args:
        runs: MLflow run ids, model URIs or run folders of runs that were tested on the same images.
        layer: layer for Grad-CAM, as in `network.named_modules()`; it explains the label of each image, or its mask.
            Empty: the error names those that can be drawn.
        maps_layer: layer to draw feature maps before and after; empty: none.
        images: number of test images, evenly spread.
        root: folder of the published data sets.
        out: folder of the files.
        trust: packages or modules whose code the settings of a run may name, as `package.module:function`.

    Returns:
        The files, and the ids of the runs that have them as artifacts; each also has its own row in the image grid.

    Raises:
        InputError: a run or layer is not there, or the runs were tested on different images.
    """
    if images < 1:
        raise InputError(f"`images` {images}: must be at least 1")
    trained = open_runs(runs, layers=(layer, maps_layer), root=root, trust=trust)
    if not layer:
        raise InputError(f"which layer? {_layers_of(trained[0])}")
    output_folder(out)
    figures = {"grad_cam.png": cam_of_runs(trained, layer=layer, images=images)}
    if maps_layer:
        figures["feature_maps.png"] = maps_of_runs(trained, layer=maps_layer)
    for file, figure in figures.items():
        figure.savefig(out / file, dpi=150)
        for one in trained:
            attach_figure(one.run_id, figure, f"figures/{file}")
    for one in trained:  # each its own: in the grid the runs stand side by side
        own = figures["grad_cam.png"] if len(trained) == 1 else cam_of_runs([one], layer=layer, images=images)
        attach_image(one.run_id, own, f"grad_cam/{layer}")
    return Drawn([out / file for file in figures], [one.run_id for one in trained])


def _layers_of(one: Trained) -> str:
    """Say which layers can be drawn: blocks by name, and how many are inside of them."""
    names = layers_with_maps(one.network, one.images.pixels(torch.tensor([0])))
    outer = [name for name in names if not any(name.startswith(f"{other}.") for other in names)]
    shown = ", ".join(outer[:MOST_LAYERS]) + (", ..." if len(outer) > MOST_LAYERS else "")
    inner = len(names) - len(outer)
    return f"`layer` can be {shown}" + (f", or one of {inner} inside of them, such as {names[0]}" if inner else "")


def cam_of_runs(trained: Sequence[Trained], *, layer: str, images: int) -> Figure:
    """Draw Grad-CAM of so many test images, evenly spread, the networks below each other."""
    test = trained[0].images
    numbers = torch.arange(min(images, len(test))) * (len(test) // min(images, len(test)))
    x, labels = test.pixels(numbers), test.labels[numbers]
    # A segmentation network has one logit per pixel.
    explained, target = ("label", labels) if test.masks is None else ("mask", torch.zeros_like(labels))
    heat = {name: grad_cam(network, x, target, layer=layer) for name, network in _networks(trained).items()}
    figure = grad_cam_figure(x, heat, titles=[test.class_names[label] for label in labels.tolist()])
    figure.suptitle(f"Grad-CAM of the {explained} at {layer!r} (n = {len(x)} test images)", fontsize="medium")
    return figure


def maps_of_runs(trained: Sequence[Trained], *, layer: str) -> Figure:
    """Draw feature maps of the first test image before and after an activation, the networks below each other."""
    return feature_maps_figure(_networks(trained), trained[0].images.pixels(torch.tensor([0]))[0], layer=layer)


def _networks(trained: Sequence[Trained]) -> dict[str, nn.Module]:
    """Networks by name, those of one name with their number."""
    names = [one.name for one in trained]
    names = [f"{name} {names[: i + 1].count(name)}" if names.count(name) > 1 else name for i, name in enumerate(names)]
    return {name: one.network for name, one in zip(names, trained, strict=True)}


def open_runs(
    runs: Sequence[str], *, layers: Iterable[str] = (), root: str | None = None, trust: Iterable[str] = ()
) -> list[Trained]:
    """Open runs that were tested on the same images and have the layers; arguments are those of `look_into`."""
    trained = [_open_run(run, root, tuple(trust)) for run in runs]
    for other in trained[1:]:
        if other.images.digest != trained[0].images.digest:
            raise InputError(f"{runs[0]} and {other.name} were tested on other images; look at them one by one")
    for one in trained:
        for name in filter(None, layers):
            find_layer(one.network, name)
    return trained


def _open_run(source: str, root: str | None, trust: Iterable[str]) -> Trained:
    """Open a run as data: code that its settings name is not imported unless it is trusted."""
    with registered_only(source, trust), parsing(source, remedy="name another run"):
        return _read_run(source, root)


def _read_run(source: str, root: str | None) -> Trained:
    """Open the network of a run and its test images; where the store has no network, from the run's checkpoint."""
    try:
        stored = open_model(source)
    except InputError as error:
        folder, run_id = Path(source), ""
        if RunFolder.read_last(folder) is None:
            if ":/" in source or folder.is_dir():
                raise
            run, run_id = get_run(source), source
            folder = RunFolder.path_of(run.data.params["task"], run.data.tags["spec_hash"])
        return _from_checkpoint(folder, run_id, root, error)
    values = stored.spec()
    section = values["network"]
    return Trained(
        section.get("activation") or section["model"], stored.network(), _test_images(stored, root), stored.run_id
    )


def _test_images(stored: StoredModel, root: str | None) -> ImageSet:
    """Read the images that a run was tested on, as its network takes them."""
    values = stored.spec()
    if values.get("kind") == "segment":
        # Volumes are prepared before they are divided.
        test = read_split(validated(SegmentSpec, values, f"spec.json of run {stored.run_id}"), root).test
        _check_tested_on(test, stored.run_id)
        return test
    section = values.get("data") or {"dataset": values["domains"]["target"]}
    inputs, options = stored.inputs, dict(section.get("dataset_options", {}))
    if inputs is not None and inputs.read_size:
        options |= {"image_size": inputs.read_size, "resize": inputs.read_resize or "squash"}
    elif inputs is not None and inputs.image_size and is_folder(section["dataset"]):  # cut out of files as they are
        options = {"mixed_size": inputs.image_size, "resize": inputs.resize, **options}
    images = data.load(section["dataset"], root=root, **options)
    numbers = torch.tensor(json.loads(read_artifact(stored.run_id, "split.json"))["test"], dtype=torch.int64)
    if not len(numbers):
        raise InputError(f"run {stored.run_id} held no images out that could be drawn; name another")
    if inputs is None or len(images) <= int(numbers.max()):
        raise InputError(f"{images.name} is not the set that run {stored.run_id} was tested on")
    images = fit_images(
        images.subset(numbers),
        channels=inputs.channels,
        image_size=inputs.image_size,
        resize=inputs.resize,
        crop_pct=inputs.crop_pct,
    )
    _check_tested_on(images, stored.run_id)
    return replace(images, mean=inputs.mean, std=inputs.std)


def _check_tested_on(images: ImageSet, run_id: str) -> None:
    logged = get_run(run_id).inputs
    digests = [entry.dataset.digest for entry in logged.dataset_inputs] if logged else []
    if images.digest[:32] not in digests:
        raise InputError(f"{images.name} is not the set that run {run_id} was tested on")


def _from_checkpoint(folder: Path, run_id: str, root: str | None, reason: InputError) -> Trained:
    """Build the network of a classification run again, with the weights of its selected epoch."""
    checkpoint = RunFolder.read_last(folder)
    if not (folder / "spec.json").is_file() or checkpoint is None:
        raise reason
    values = read_json(folder / "spec.json")
    if values.get("kind") != "classify":
        raise InputError(
            f"{folder} is of a {values.get('kind')} run without a stored network; only classify runs "
            "can be rebuilt from their checkpoint"
        ) from reason
    if run_id and checkpoint["run_id"] != run_id:
        raise InputError(
            f"run {run_id} stored no network, and {folder} holds a later run of the same settings, "
            f"{checkpoint['run_id']}; look at that one"
        ) from reason
    spec = validated(ClassifySpec, values, f"{folder / 'spec.json'}")
    split = load_split(
        spec.data,
        root=root,
        shape=spec.fit,
        train_on_validation=not spec.evaluation.validates,
        side=side_for(spec.network.backbone),
    )
    network = build_classifier(spec.network, split.train, seed=spec.seed).eval()
    network.load_state_dict(checkpoint["selection"]["best_state"])
    return Trained(spec.network.activation, network, split.test, checkpoint["run_id"])
