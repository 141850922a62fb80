"""Expand an experiment into cells: one frozen, validated spec each, known by its hash. Nothing here imports torch.

A part of them can be chosen by value (`only`) or by number (`shard`); a budget shortens their training.
"""

import copy
import hashlib
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from arelu_meta import kinds
from arelu_meta.comparison.experiment import Experiment, Value, format_value
from arelu_meta.console import catalog
from arelu_meta.console.flags import validated
from arelu_meta.errors import InputError, unknown
from arelu_meta.kinds.sections import Spec

MOST_CELLS = 100_000
Shard = tuple[int, int]  # which, counted from 1, of how many


@dataclass(frozen=True)
class Cell:
    """One run of a comparison: its values on the axes of the grid, and its spec."""

    values: Mapping[str, Value]
    """by axis, without the seed"""
    spec: Spec
    share: float = 1.0
    """of the full training"""

    @cached_property
    def identity(self) -> str:
        """The identity of its spec, computed once: a comparison of a thousand cells asks for it ten thousand times."""
        return self.spec.identity

    @property
    def label(self) -> str:
        """Name it in a line: the first axis by its value, the others with their names."""
        first, *others = self.values.items()
        rest = [f"{name}={format_value(value)}" for name, value in others]
        return " ".join([format_value(first[1]), *rest, f"seed {self.spec.seed}"])


def expand(
    experiment: Experiment,
    *,
    only: Mapping[str, Sequence[str]] | None = None,
    seeds: Sequence[int] | None = None,
    budget: float = 1.0,
) -> list[Cell]:
    """Make all cells that are chosen; seeds vary slowest, so that every arm has a result early.

    Every spec is built, also of cells that are not chosen: a file is right or wrong as a whole.

    Args:
        experiment: what is compared.
        only: values to keep, by axis; numbers may be written in any form.
        seeds: seeds in place of the experiment's.
        budget: share of the full training, above 0 and at most 1.

    Returns:
        The chosen cells; no two have the same identity.

    Raises:
        InputError: a setting, value, metric or budget is wrong, or two cells are the same run.

    Example:
        >>> from arelu_meta.comparison.experiment import read_experiment
        >>> cells = expand(read_experiment("maml_digits"), only={"activation": ["relu", "arelu"]}, seeds=[0])
        >>> [cell.label for cell in cells]
        ['relu seed 0', 'arelu seed 0']
    """
    only = only or {}
    _check_only(only, experiment.axes)
    cells = _cells(experiment, experiment.seeds if seeds is None else seeds, budget)
    by_identity: dict[str, Cell] = {}
    for cell in cells:
        other = by_identity.setdefault(cell.identity, cell)
        if other is not cell:
            raise InputError(
                f"two cells are the same run: {other.label!r} and {cell.label!r}; an axis lists a value twice or names "
                f"a setting that changes nothing"
            )
        _check_metrics(experiment, cell.spec, budget)
    return [
        cell
        for cell in cells
        if all(any(is_same(cell.values[axis], word) for word in words) for axis, words in only.items())
    ]


def comparison_hash(experiment: Experiment, budget: float = 1.0) -> str:
    """Identify a comparison by its axes and all that its cells train and test, whatever its seeds and words."""
    identities = sorted(cell.identity for cell in _cells(experiment, [0], budget))
    return hashlib.sha256("\n".join([*sorted(experiment.axes), *identities]).encode()).hexdigest()


def _cells(experiment: Experiment, seeds: Iterable[int], budget: float) -> list[Cell]:
    """Build the specs of all values with these seeds."""
    base = catalog.read("task", experiment.task)
    if base.get("kind") not in kinds.names():
        raise unknown(f"kind of task {experiment.task!r}:", str(base.get("kind")), kinds.names())
    kind, where = kinds.entry(base["kind"]), f"experiment {experiment.experiment}"
    lengths = _scaled_lengths(budget, kind.lengths, experiment.grid)
    cells, seeds = [], list(seeds)
    count = len(seeds) * math.prod(len(values) for values in experiment.grid.values())
    if count > MOST_CELLS:
        raise InputError(f"{where} has {count:,} cells, more than {MOST_CELLS:,}; leave out axes, values or seeds")
    for seed, levels in itertools.product(seeds, itertools.product(*experiment.grid.values())):
        replacing = {**experiment.settings, **dict(zip(experiment.grid, levels, strict=True))}
        values = kind.task_values(base, replacing) | {"seed": seed}
        for name, value in replacing.items():
            _put(values, name, copy.deepcopy(value))
        spec, share = validated(kind.spec_class, values, where), 1.0
        if budget < 1:
            full = spec.model_dump()
            shorter = scale_lengths(full, lengths, budget)
            spec = validated(kind.spec_class, shorter, f"{where} with budget {budget:g}")
            section, length = kind.lengths[0]
            share = shorter[section][length] / full[section][length]
        cells.append(Cell(dict(zip(experiment.axes, levels, strict=True)), spec, share))
    return cells


def _put(values: dict[str, Any], name: str, value: Any) -> None:
    """Set a value by its dotted name."""
    *sections, key = name.split(".")
    for section in sections:
        values = values.setdefault(section, {})
        if not isinstance(values, dict):
            raise InputError(f"{name} names no setting: {section} has a value of its own")
    values[key] = value


def _check_only(only: Mapping[str, Sequence[str]], axes: Mapping[str, Sequence[Value]]) -> None:
    """Refuse axes and values that the grid does not have."""
    for axis, words in only.items():
        if axis not in axes:
            raise InputError(f"`only` {axis}: no such axis; axes here: {', '.join(axes)}")
        for word in words:
            if not any(is_same(value, word) for value in axes[axis]):
                known = ", ".join(map(format_value, axes[axis]))
                raise InputError(f"`only` {axis}={word}: the experiment has no such value; known: {known}")


def _check_metrics(experiment: Experiment, spec: Spec, budget: float) -> None:
    """Refuse metrics of the report that no run of this kind logs."""
    report, logged = experiment.report, spec.metrics()
    named = [("metric", scale_metric(report.metric, budget))]
    named += [("other metric", scale_metric(name, budget)) for name in report.other_metrics]
    named += [("validation_metric", report.validation_metric)] if report.validation_metric is not None else []
    named += [("curve", name) for name in report.curves]
    for role, name in named:
        if name not in logged and name.startswith("validation/") and spec.flat()["protocol"] == "paper":
            raise InputError(
                f"{role} of the report {name!r}: protocol 'paper' holds no images back to validate, so it can choose "
                f"no setting; leave it out, or use protocol 'sound'"
            )
        if name not in logged:
            raise unknown(f"{role} of the report", name, logged)


def _scaled_lengths(budget: float, lengths: Sequence[kinds.Place], axes: Iterable[str]) -> list[kinds.Place]:
    """Give the lengths that a budget scales: not an axis, whose values would no longer be what tables call them.

    The length of an earlier stage, such as epochs of pre-training, may be an axis and stays; one of the training itself
    is refused.
    """
    if not 0 < budget <= 1:
        raise InputError(f"`budget` {budget:g} must be above 0 and at most 1")
    scaled = {".".join(filter(None, place)): place for place in lengths}
    kept = [name for name in axes if name in scaled]
    varied = [name for name in kept if scaled[name][0] == lengths[0][0]]
    if budget < 1 and varied:
        raise InputError(
            f"`budget` {budget:g} would scale {varied[0]}, which is an axis of the experiment; leave values of it "
            f"out instead: `only` {varied[0].rpartition('.')[2]}=..."
        )
    return [place for name, place in scaled.items() if name not in kept]


def scale_lengths(values: dict[str, Any], lengths: Sequence[kinds.Place], budget: float) -> dict[str, Any]:
    """Scale the lengths in a complete spec's values, rounding up, to at least 1; zero and None stay as they are.

    >>> lengths = [("training", "epochs"), ("training", "milestones"), ("training", "warmup_epochs")]
    >>> scale_lengths({"training": {"epochs": 25, "milestones": (10, 20), "warmup_epochs": 0}}, lengths, 0.1)
    {'training': {'epochs': 3, 'milestones': [1, 2], 'warmup_epochs': 0}}
    """
    scaled = copy.deepcopy(values)
    for section, name in lengths:
        part = scaled.get(section, {}) if section else scaled
        value = part.get(name)
        if isinstance(value, (list, tuple)):
            part[name] = sorted({_scale(number, budget) for number in value})
        elif value:
            part[name] = _scale(value, budget)
    return scaled


def _scale(number: int, budget: float) -> int:
    # Rounded first: 0.07 * 100 is 7.000000000000001, which is 7 and not 8.
    return max(1, math.ceil(round(number * budget, 9)))


def scale_metric(metric: str, budget: float) -> str:
    """Name a metric as it is called in a scaled run: those of a transfer carry an epoch.

    >>> scale_metric("test/finetune_20", 0.1), scale_metric("test/accuracy", 0.1)
    ('test/finetune_2', 'test/accuracy')
    """
    return re.sub(r"(?<=/finetune_)\d+$", lambda match: str(_scale(int(match[0]), budget)), metric)


def parse_only(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Read `AXIS=VALUE,VALUE` words.

    >>> parse_only(["activation=relu,arelu"])
    {'activation': ('relu', 'arelu')}
    """
    chosen: dict[str, tuple[str, ...]] = {}
    for word in words:
        axis, equals, values = word.partition("=")
        if not equals or not values:
            raise InputError(f"`only` {word!r} is not of the form AXIS=VALUE,VALUE")
        chosen[axis] = chosen.get(axis, ()) + tuple(values.split(","))
    return chosen


def is_same(value: Value, word: str) -> bool:
    """Tell whether a word names a value; numbers are compared as numbers, so that 1e-4 is 0.0001.

    >>> is_same(0.0001, "1e-4"), is_same("relu", "relu6")
    (True, False)
    """
    if isinstance(value, (bool, str)):
        return str(value).lower() == word.lower()
    try:
        return float(word) == float(value)
    except ValueError:
        return False


def parse_shard(text: str) -> Shard:
    """Read which shard of how many: `2/8` is the second of eight.

    >>> parse_shard("2/8")
    (2, 8)
    """
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise InputError(f"`shard` {text!r} is not of the form NUMBER/COUNT with 1 <= NUMBER <= COUNT, such as 2/8")
    return int(match[1]), int(match[2])


def shard_of(cells: Sequence[Cell], shard: Shard) -> list[Cell]:
    """Choose a shard of the cells, in their order: every COUNT-th of the sorted identities.

    So it depends neither on the order of the file nor on what has finished, shards differ by at most one cell, and
    no arm or setting is left to one shard.

    Args:
        cells: all cells that are shared out.
        shard: which, counted from 1, of how many.

    Returns:
        Its cells; the shards of all numbers together are all cells, each once.
    """
    number, count = shard
    chosen = set(sorted(cell.identity for cell in cells)[number - 1 :: count])
    return [cell for cell in cells if cell.identity in chosen]
