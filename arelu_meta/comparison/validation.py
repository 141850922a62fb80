"""What the cells of a comparison name is found, imported and built before the first of them runs.

Each distinct network is built once, and nothing is trained: ours without memory on torch's device `meta`, others as
they are. Images are read only where their shape is not known otherwise: sets of one's own.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from arelu_meta import activations, backbones, data, kinds
from arelu_meta.comparison.cells import Cell
from arelu_meta.errors import InputError, first_line
from arelu_meta.kinds.finetune.spec import OWN
from arelu_meta.kinds.sections import Spec
from arelu_meta.registry import load_attribute, own_code

if TYPE_CHECKING:
    from arelu_meta.data.imageset import ImageSet

T = TypeVar("T")
_PARTS = ("backbone", "activation", "method")  # ours are known to be built without memory too
# Settings that decide whether a network can be built; cells that differ in others alone need no look of their own.
_DECIDING = {
    *("dataset", "dataset_options", "source", "target", "channels", "image_size", "resize"),
    *("backbone", "backbone_options", "filters", "norm", "activation", "activation_options"),
    *("model", "model_options", "ways", "method", "engine", "inner_optimizer", "head", "loss"),
}


def check_cells(cells: Sequence[Cell], *, root: str = "") -> None:
    """Find, import and build what cells name, each distinct network once.

    Args:
        cells: the cells that are to be run.
        root: folder of the published sets.

    Raises:
        InputError: a name, an option or a network is wrong; a line for each that is, with the first cell that has it.
    """
    distinct: dict[str, Cell] = {}
    for cell in cells:
        settings = {name: value for name, value in cell.spec.flat().items() if name in _DECIDING}
        distinct.setdefault(json.dumps(settings, sort_keys=True), cell)
    problems: dict[str, str] = {}

    def attempt(cell: Cell, call: Callable[..., T], *arguments: Any) -> T | None:
        try:
            return call(*arguments)
        except (Exception, SystemExit) as error:  # code of anyone's is imported and called
            kind = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
            problems.setdefault(f"{kind}{first_line(error)}", cell.label.rpartition(" seed ")[0])
            return None

    examples: dict[str, ImageSet | None] = {}
    for cell in distinct.values():
        keys = {json.dumps(chosen, sort_keys=True): chosen for chosen in cell.spec.datasets().items()}
        for key, (name, options) in keys.items():
            if key not in examples:
                examples[key] = attempt(cell, _example, name, options, root)
        attempt(cell, _check, cell.spec, [examples[key] for key in keys])
    if problems:
        raise InputError("\n".join(f"{label}: {reason}" for reason, label in problems.items()))


def _check(spec: Spec, examples: "Sequence[ImageSet | None]") -> None:
    """Look at what a spec names, and build its network for an image of each set that there is one of."""
    import torch

    from arelu_meta.data.inputs import fit_images

    settings = spec.flat()
    if settings["activation"] != OWN:
        activations.factory(settings["activation"], **settings.get("activation_options", {}))
    foreign = backbones.is_pretrained(settings.get("backbone", ""))
    if "backbone" in settings and not foreign:
        backbones.check_options(settings["backbone"], settings.get("backbone_options", {}))
    parts = [] if foreign else [part for part in _PARTS if part in settings]
    ours = "model" not in settings and not foreign and not any(own_code(part, settings[part]) for part in parts)
    for images in (images for images in examples if images is not None):
        if hasattr(spec, "fit"):
            shape = {name: settings[name] for name in ("channels", "image_size", "resize")}
            images = fit_images(images, **shape)
        with torch.device("meta" if ours else "cpu"):
            load_attribute(kinds.entry(spec.kind).check)(spec, images)


def _example(name: str, options: Mapping[str, Any], root: str) -> "ImageSet | None":
    """Give one image of a set, with the names of all its classes; None of a set that would have to be downloaded."""
    import torch

    from arelu_meta.data.imageset import ImageSet

    data.check_options(name, options)
    entry = next((entry for entry in data.entries() if entry.name == name), None)
    if entry is not None and entry.shape is not None:
        blank, label = torch.zeros(1, *entry.shape, dtype=torch.uint8), torch.zeros(1, dtype=torch.int64)
        return ImageSet(name, blank, label, tuple(map(str, range(entry.classes))))
    if not data.is_local(name, root or None):
        return None
    return data.load(name, root=root or None, **options).subset(torch.zeros(1, dtype=torch.int64))
