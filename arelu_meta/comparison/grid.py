"""Expand an experiment into cells: one frozen, validated spec each, known by its hash. Nothing here imports torch."""

import copy
import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arelu_meta import kinds
from arelu_meta.comparison import budget as budgets
from arelu_meta.comparison.experiment import Experiment
from arelu_meta.comparison.measures import check_measure
from arelu_meta.comparison.selection import Value, check_only, is_same, written
from arelu_meta.console import catalog
from arelu_meta.console.flags import validated
from arelu_meta.errors import InputError, unknown
from arelu_meta.kinds.sections import Spec


@dataclass(frozen=True)
class Cell:
    """One run of a comparison: where it lies in the grid, and what it is."""

    values: Mapping[str, Value]
    """by axis, without the seed"""
    spec: Spec
    share: float = 1.0
    """of the full training"""

    @property
    def label(self) -> str:
        """Name it in a line: the first axis by its value, the others with their names."""
        first, *others = self.values.items()
        rest = [f"{name}={written(value)}" for name, value in others]
        return " ".join([written(first[1]), *rest, f"seed {self.spec.seed}"])

    @property
    def place(self) -> str:
        """Where it lies, as JSON: kept in the store, so that values come back as what they were."""
        return json.dumps({**self.values, "seed": self.spec.seed})


def expand(
    experiment: Experiment,
    *,
    only: Mapping[str, Sequence[str]] | None = None,
    seeds: Sequence[int] | None = None,
    budget: float = 1.0,
) -> list[Cell]:
    """Make all cells that are chosen; seeds vary slowest, so that every arm has a result early.

    Every spec is built, also of cells that are not chosen: a file is right or wrong as a whole.
    """
    only = only or {}
    check_only(only, experiment.axes)
    budgets.check_budget(budget)
    budgets.check_axes(experiment.grid, budget)
    cells = [
        cell
        for seed in (experiment.seeds if seeds is None else seeds)
        for cell in _cells_of_seed(experiment, seed, budget)
    ]
    _check_identities(cells)
    for cell in cells:
        _check_report(experiment, cell.spec, budget)
    return [cell for cell in cells if _is_chosen(cell, only)]


def comparison_hash(experiment: Experiment, budget: float = 1.0) -> str:
    """Identify a comparison by its axes and all that its cells train and test, whatever its seeds and words."""
    identities = sorted(cell.spec.identity for cell in _cells_of_seed(experiment, 0, budget))
    return hashlib.sha256("\n".join([*sorted(experiment.axes), *identities]).encode()).hexdigest()


def _cells_of_seed(experiment: Experiment, seed: int, budget: float) -> Iterable[Cell]:
    base = catalog.read("task", experiment.task)
    if base.get("kind") not in kinds.names():
        raise unknown(f"kind of task {experiment.task!r}:", str(base.get("kind")), kinds.names())
    model, where = kinds.entry(base["kind"]).spec_class, f"experiment {experiment.experiment}"
    for name, value in experiment.settings.items():
        _put(base, name, value)
    for levels in itertools.product(*experiment.grid.values()):
        values = copy.deepcopy(base) | {"seed": seed}
        for name, value in zip(experiment.grid, levels, strict=True):
            _put(values, name, value)
        full = validated(model, values, where)
        spec = full
        if budget < 1:
            spec = validated(model, budgets.scaled(full.model_dump(), budget), f"{where} with budget {budget:g}")
        share = budgets.share(full.model_dump(), spec.model_dump())
        yield Cell(dict(zip(experiment.axes, levels, strict=True)), spec, share)


def _put(values: dict[str, Any], name: str, value: Any) -> None:
    *sections, key = name.split(".")
    for section in sections:
        values = values.setdefault(section, {})
        if not isinstance(values, dict):
            raise InputError(f"{name} names no setting: {section} has a value of its own")
    values[key] = value


def _is_chosen(cell: Cell, only: Mapping[str, Sequence[str]]) -> bool:
    return all(any(is_same(cell.values[axis], word) for word in words) for axis, words in only.items())


def _check_identities(cells: Iterable[Cell]) -> None:
    seen: dict[str, Cell] = {}
    for cell in cells:
        other = seen.setdefault(cell.spec.identity, cell)
        if other is not cell:
            raise InputError(
                f"two cells are the same run: {other.label!r} and {cell.label!r}; an axis lists a value twice or names "
                f"a setting that changes nothing"
            )


def _check_report(experiment: Experiment, spec: Spec, budget: float) -> None:
    report = experiment.report
    check_measure("metric", budgets.scaled_metric(report.metric, budget), spec)
    for name in report.further:
        check_measure("further metric", budgets.scaled_metric(name, budget), spec)
    if report.validation_metric is not None:
        check_measure("validation_metric", report.validation_metric, spec)
    for curve in report.curves:
        check_measure("curve", curve, spec)
