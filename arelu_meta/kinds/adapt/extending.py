"""Add classes to a stored model of adapt, from a folder of class folders; what it has of the others stays as it is."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from arelu_meta.data.files.image_folders import SUFFIXES
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.inputs import Inputs
from arelu_meta.data.raw_images import prepare_images
from arelu_meta.errors import InputError
from arelu_meta.kinds.execution import Execution
from arelu_meta.kinds.results import block, places, where_to_look
from arelu_meta.learners.frozen_heads import HEADS, FrozenHead, Strength
from arelu_meta.reading import parsing
from arelu_meta.store.image_files import AT_ONCE
from arelu_meta.store.models import StoredModel, open_model
from arelu_meta.store.support import ExtendedNetwork, StoredSupport, read_support, with_features
from arelu_meta.store.tracking import open_run
from arelu_meta.training.added_classes import add_classes


@dataclass(frozen=True)
class ExtendedModel:
    """A model that got classes: its run, the classes that are new with their number of images, and all of them."""

    source: str
    run_id: str
    experiment_id: str
    tracking_uri: str
    added: dict[str, int]
    class_names: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values for JSON."""
        where = places(self.run_id, self.experiment_id, self.tracking_uri)
        return {"source": self.source, "added": self.added, "classes": list(self.class_names), **where}

    def report(self) -> str:
        """Say what was added, and how to use it."""
        added = ", ".join(f"{name} ({count} images)" for name, count in self.added.items())
        rows = [("added", added), ("classes", f"{len(self.class_names)}: {', '.join(self.class_names)}")]
        rows.append(("the others", "their rows, and so their logits, are as they were"))
        rows += where_to_look(self.run_id, self.experiment_id, self.tracking_uri, use="IMAGES...")
        return block(f"{self.source} with {len(self.added)} more", rows)


def extend_model(source: str | Path, folder: str | Path, execution: Execution | None = None) -> ExtendedModel:
    """Add the classes of a folder to a stored model of adapt, and store the model that comes of it as a run of its own.

    Args:
        source: the model, by method prototypes, knn or linear, as in `open_model`.
        folder: holds a folder of images for each new class.
        execution: says in which MLflow experiment; None: the default one.

    Raises:
        InputError: a model of another kind, a class that it has, a folder without class folders or images.
    """
    stored = open_model(source)
    support, files = read_support(stored), _class_files(Path(folder).expanduser(), stored)
    if stored.inputs is None:
        raise InputError(f"{stored.source} does not say what images its network takes; store it again")
    network = with_features(stored)
    features, labels = list[Tensor](), list[int]()
    for label, paths in enumerate(files.values(), start=len(stored.class_names)):
        for first in range(0, len(paths), AT_ONCE):
            with torch.no_grad():
                features.append(network(prepare_images(paths[first : first + AT_ONCE], stored.inputs))[1])
        labels += [label] * len(paths)
    with parsing(stored.source, remedy="fetch or store the model anew"):
        head = _stored_head(stored, support)
    new, new_labels = torch.cat(features), torch.tensor(labels)
    add_classes(head, support.features, support.labels, new, new_labels, _strength(support))
    names = (*stored.class_names, *files)
    both = torch.cat([support.features, new]), torch.cat([support.labels, new_labels])
    with open_run(
        (execution or Execution()).experiment,
        name=f"adapt-add-{'-'.join(files)}"[:100],
        tags={"kind": "adapt", "method": support.method, "strength": support.strength, "extends": stored.run_id},
        params={"source": stored.source, "folder": str(folder), "classes": len(names)},
        artifacts={"spec.json": stored.spec()} if stored.run_id else None,
    ) as tracker:
        extended = StoredSupport(*both, support.method, support.strength)
        tracker.log_network(
            ExtendedNetwork(stored, head), _examples(files, stored.inputs, names), stored.inputs, extended.write
        )
    added = {name: len(paths) for name, paths in files.items()}
    return ExtendedModel(stored.source, tracker.run_id, tracker.experiment_id, tracker.uri, added, names)


def _class_files(folder: Path, stored: StoredModel) -> dict[str, list[Path]]:
    """Image files by class, each in a folder of its name."""
    if not folder.is_dir():
        raise InputError(f"no folder {str(folder)!r}; `add` takes one that holds a folder of images for each new class")
    found = {}
    for place in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        inside = sorted(file for file in place.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
        if not inside:
            raise InputError(f"{place} holds no images ({', '.join(sorted(SUFFIXES))}); add some, or remove the folder")
        if place.name in stored.class_names:
            raise InputError(
                f"{stored.source} has a class {place.name!r} already; `add` takes new ones: rename the folder, or fit "
                "a model to all images"
            )
        found[place.name] = inside
    if not found:
        raise InputError(f"{folder} holds no class folders; put the images of each new class into one of its name")
    return found


def _stored_head(stored: StoredModel, support: StoredSupport) -> FrozenHead:
    """Build the head of a model again, with the numbers that were stored."""
    state = {name.removeprefix("head."): value for name, value in stored.state_dict().items() if name[:5] == "head."}
    build = HEADS[support.method].build
    head = build(support.features, support.labels, len(stored.class_names), _strength(support))
    for name, value in state.items():
        head.get_buffer(name).data = value  # rows that were added before have no other source
    return head.eval()


def _strength(support: StoredSupport) -> Strength:
    """The strength as its method takes it: a word, a number of neighbours, or C."""
    tried = HEADS[support.method].strengths
    return next((one for one in tried if str(one) == support.strength), support.strength)


def _examples(files: dict[str, list[Path]], inputs: Inputs, names: tuple[str, ...]) -> ImageSet:
    """Two of the images, at the size that the network takes, for the trace."""
    first = next(iter(files.values()))
    pixels = prepare_images([first[0], first[-1]], replace(inputs, mean=(), std=()))  # in [0, 1]
    images = (pixels * 255).round().to(torch.uint8)
    return ImageSet("added", images, torch.zeros(2, dtype=torch.int64), names, mean=inputs.mean, std=inputs.std)
