"""What a model hub wants beside the tensors of a network: a configuration, and a card that says what it is."""

import re
from dataclasses import asdict
from typing import Any

import torch

from arelu_meta import __version__
from arelu_meta.errors import InputError, RunError
from arelu_meta.reading import shown
from arelu_meta.store.connection import get_run
from arelu_meta.store.models import StoredModel

_CARD = """---
library_name: arelu_meta
pipeline_tag: {pipeline}
tags:
- arelu_meta
- {tag}
---

# {title}

| | |
|---|---|
{table}

## Use

```python
import arelu_meta

model = arelu_meta.load_model("FOLDER")  # this folder
model.predict(["photo.jpg"])  # {answer}
```

The files hold tensors and a graph of operations on tensors, and no code: `weights.safetensors`, `model.pt2`
(torch.export), `config.json`. Images are resized and normalised as `config.json` says.

## Intended use and limits

*To be written by whoever publishes it.*

## Training data and its license

*To be written by whoever publishes it.*

## License

*To be written by whoever publishes it* (`license:` in the head of this file).
"""

_SECTIONS = ("network", "data", "target", "evaluation")


def configuration(stored: StoredModel) -> dict[str, Any]:
    """Give what `config.json` holds: settings of the run as far as they are known, inputs, classes, versions."""
    return {
        "library_name": "arelu_meta",
        "arelu_meta_version": __version__,
        "torch_version": torch.__version__.partition("+")[0],
        "source": stored.source,
        "inputs": asdict(stored.inputs) if stored.inputs else {},
        "class_names": list(stored.class_names),
        "settings": _settings(stored),
    }


def model_card(stored: StoredModel, parameters: int) -> str:
    """Write the card as Markdown: what is known of the run, and headings for what only its publisher knows.

    Args:
        stored: the network.
        parameters: how many numbers it has.
    """
    settings = _settings(stored)
    network, data, target, evaluation = (_section(settings, name) for name in _SECTIONS)
    name = str(network.get("model") or network.get("backbone") or settings.get("kind") or "network")
    segments = settings.get("kind") == "segment"
    activation = str(network.get("activation") or "own")
    rows = {
        "network": f"{name}, activations: {activation}, {parameters:,} parameters",
        "classes": "a mask for each image" if segments else ", ".join(map(str, stored.class_names)) or "not known",
        "images": str(stored.inputs) if stored.inputs else "not known",
        "trained on": str(data.get("dataset") or target.get("dataset") or "not known"),
        "protocol": str(evaluation.get("protocol") or "not known"),
        **_measured(stored.run_id),
        "run": stored.source,
        "made with": f"arelu_meta {__version__}, torch {torch.__version__.partition('+')[0]}",
    }
    return _CARD.format(
        pipeline="image-segmentation" if segments else "image-classification",
        tag=re.sub(r"[^\w.-]", "-", name),  # of the YAML at the head of the card
        title=_plain(f"{settings.get('task', name)}: {name}"),
        table="\n".join(f"| {key} | {_plain(value)} |" for key, value in rows.items()),
        answer="masks" if segments else "class, probability, runner-up",
    )


def _section(settings: dict[str, Any], name: str) -> dict[str, Any]:
    """Give a section of settings that came with a network, where they have it as one."""
    values = settings.get(name)
    return values if isinstance(values, dict) else {}


def _plain(text: str) -> str:
    """Write a name so that Markdown shows it as it is: classes and settings of a stranger's network hold anything.

    >>> _plain("a|b <i>")
    'a\\\\|b \\\\<i\\\\>'
    """
    return re.sub(r"([\\`*\[\]|<>&])", r"\\\1", shown(text))


def _settings(stored: StoredModel) -> dict[str, Any]:
    """Read the settings of the run; none where neither the folder nor the store has them."""
    try:
        return stored.spec()
    except (InputError, RunError):
        return {}


def _measured(run_id: str) -> dict[str, str]:
    """Give the measured scores of a run with their intervals, as rows of the card; without its store, none."""
    try:
        metrics = get_run(run_id).data.metrics if run_id else {}
    except (InputError, RunError):
        metrics = {}
    rows: dict[str, str] = {}
    for name in ("test/accuracy", "cross_validation/accuracy", "test/dice"):
        if name in metrics:
            low, high = (metrics.get(f"{name}_ci95_{end}") for end in ("low", "high"))
            interval = f" (95 % interval {low:.2%} to {high:.2%})" if low is not None and high is not None else ""
            count = metrics.get(f"{name.partition('/')[0]}/n")
            rows[name] = f"{metrics[name]:.2%}{interval}" + (f", n = {count:.0f}" if count else "")
    return rows or {"measured": "nothing is known of it here"}
