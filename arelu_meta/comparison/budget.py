"""A share of the full training: what counts steps or epochs is scaled, and the schedule with it. Imports no torch."""

import math
import re
from collections.abc import Iterable
from typing import Any

from arelu_meta.errors import InputError

# What training lasts, by section; the first of each kind of run is the length a budget is measured by.
LENGTHS = (("training", "iterations"), ("training", "epochs"), ("pretraining", "pretrain_epochs"))
WITHIN = (
    ("training", "milestones"),
    ("training", "halve_lr_every"),
    ("training", "warmup_epochs"),
    ("training", "freeze_epochs"),
    ("training", "patience"),
)


def check_budget(budget: float) -> float:
    """Refuse a budget that is no share."""
    if not 0 < budget <= 1:
        raise InputError(f"--budget {budget:g} must be above 0 and at most 1")
    return budget


def check_axes(names: Iterable[str], budget: float) -> None:
    """Refuse to scale what the experiment itself varies: its values would no longer be what tables call them."""
    lengths = {f"{section}.{name}" for section, name in (*LENGTHS, *WITHIN)} | {"report_epochs"}
    varied = [name for name in names if name in lengths]
    if budget < 1 and varied:
        raise InputError(
            f"--budget {budget:g} would scale {varied[0]}, which is an axis of the experiment; leave values of it "
            f"out instead: --only {varied[0].rpartition('.')[2]}=..."
        )


def scaled(values: dict[str, Any], budget: float) -> dict[str, Any]:
    """Scale a complete spec's values, rounding up, to at least 1; zero stays zero and absence absence.

    >>> scaled({"training": {"epochs": 25, "milestones": (10, 20), "warmup_epochs": 0}}, 0.1)["training"]
    {'epochs': 3, 'milestones': [1, 2], 'warmup_epochs': 0}
    """
    if budget == 1:
        return values
    changed = {key: dict(part) if isinstance(part, dict) else part for key, part in values.items()}
    for section, name in (*LENGTHS, *WITHIN):
        part = changed.get(section, {})
        if name in part:
            part[name] = _scaled(part[name], budget)
    if "report_epochs" in changed:
        changed["report_epochs"] = _scaled(changed["report_epochs"], budget)
    return changed


def scaled_metric(metric: str, budget: float) -> str:
    """Name a metric as it is called in a scaled run: those of a transfer carry an epoch.

    >>> scaled_metric("test/finetune_20", 0.1), scaled_metric("test/accuracy", 0.1)
    ('test/finetune_2', 'test/accuracy')
    """
    return re.sub(r"(?<=/finetune_)\d+$", lambda found: str(_count(int(found[0]), budget)), metric)


def share(full: dict[str, Any], given: dict[str, Any]) -> float:
    """Give the share of the full training that rounding left: 3 of 25 epochs are 0.12."""
    section, name = next(place for place in LENGTHS if place[1] in full.get(place[0], {}))
    return float(given[section][name] / full[section][name])


def _scaled(value: Any, budget: float) -> Any:
    if isinstance(value, (list, tuple)):
        return sorted({_count(number, budget) for number in value})
    return _count(value, budget) if value else value


def _count(number: int, budget: float) -> int:
    return max(1, math.ceil(round(number * budget, 9)))
