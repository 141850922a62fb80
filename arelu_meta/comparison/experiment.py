"""`Experiment`: what an experiment file says, frozen and strict. Nothing here imports torch.

A base task, settings that replace some of its values, a grid of axes, seeds, and how the results are judged.
"""

import csv
import io
import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from arelu_meta.console import catalog
from arelu_meta.console.flags import validated
from arelu_meta.errors import InputError, unknown
from arelu_meta.kinds.execution import seed_numbers
from arelu_meta.kinds.sections import Section
from arelu_meta.reading import check_inside, parsing, read_text

Value = bool | int | float | str
_PUBLISHED_COLUMNS = {"metric", "value", "protocol", "source"}


def format_value(value: Value) -> str:
    """Write a value of an axis as tables do.

    >>> format_value(2.0), format_value(1e-4), format_value("relu")
    ('2', '0.0001', 'relu')
    """
    return f"{value:g}" if isinstance(value, float) else str(value)


def flatten(tree: Any, path: str = "") -> dict[str, Any]:
    """Turn nested tables into one level of dotted names; an empty table is a value of its own.

    >>> flatten({"training": {"lr": 0.1}, "network": {"activation_options": {}}})
    {'training.lr': 0.1, 'network.activation_options': {}}
    """
    if not isinstance(tree, dict) or (path and not tree):
        return {path: tree}
    return {
        key: leaf for name, part in tree.items() for key, leaf in flatten(part, f"{path}.{name}".strip(".")).items()
    }


_Dotted = BeforeValidator(flatten)
_Seeds = Annotated[
    tuple[Annotated[int, Field(ge=0)], ...],
    Field(min_length=1),
    BeforeValidator(lambda value: seed_numbers(value) if isinstance(value, str) else value),
]
_Levels = Annotated[tuple[Value, ...], Field(min_length=1)]


class ReportSection(Section):
    """How the runs are judged."""

    arm: str = "activation"
    """axis whose values are compared"""
    baseline: str = "relu"
    """value of the arm that all others are tested against"""
    metric: str = "test/accuracy"
    """metric judged first"""
    other_metrics: tuple[str, ...] = ()
    """metrics shown beside it, untested but for those of speed"""
    validation_metric: str | None = None
    """metric that may choose among settings, such as learning rates"""
    higher_is_better: bool | None = None
    """whether more of the metric is better; without it true, but for losses, errors, and steps to a stated accuracy"""
    curves: tuple[str, ...] = ()
    """metrics drawn over their steps"""
    explained: str | None = None
    """arm that the verdict is about and that controls explain; without it arelu, or the only one there can be"""
    primary: str | None = None
    """arm whose comparison with the baseline is tested by itself; all others are corrected together"""
    margin: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """smallest difference that would matter, in points of per cent or the metric's unit; makes arms equivalent"""
    chance: Annotated[float, Field(ge=0, lt=100)] | None = None
    """result of guessing in per cent, to tell trainings that learned nothing; few-shot runs know it by `ways`"""
    controls: dict[str, str] = Field(default_factory=dict)
    """arms that explain another, with what each takes away"""
    published: tuple[str, ...] = ()
    """tables of published figures, in the folder published/ beside the file"""


class Experiment(Section):
    """A comparison: every value of every axis, with every seed, is one cell."""

    experiment: str
    summary: str
    title: str
    question: str
    task: str
    """base task, by name or path"""
    seeds: _Seeds
    """seeds of every cell"""
    settings: Annotated[dict[str, Any], _Dotted] = Field(default_factory=dict)
    """values that replace the task's, by dotted name"""
    grid: Annotated[dict[str, _Levels], _Dotted]
    """axes by dotted name, each with its values"""
    report: ReportSection = ReportSection()

    @property
    def axes(self) -> dict[str, tuple[Value, ...]]:
        """Values by the last part of the axis's name, as reports call it."""
        return {name.rpartition(".")[2]: values for name, values in self.grid.items()}

    @model_validator(mode="after")
    def _consistent(self) -> "Experiment":
        if not re.fullmatch(r"[\w.-]+", self.experiment):
            raise InputError(f"the name {self.experiment!r} has more than letters, digits, _ . and -; choose another")
        if not self.grid:
            raise InputError("the grid has no axis; give one, such as network.activation = ['relu', 'arelu']")
        if len(self.axes) < len(self.grid):
            raise InputError(f"two axes of the grid end in one name: {', '.join(self.grid)}")
        for name in self.grid:
            if name.rpartition(".")[2] == "seed":
                raise InputError("seed is no axis; list seeds under `seeds`")
            if name in self.settings:
                raise InputError(f"{name} is an axis of the grid and a setting; leave one out")
        if len(set(self.seeds)) < len(self.seeds):
            raise InputError(f"seeds {list(self.seeds)} name a seed twice")
        report = self.report
        if report.chance is not None and report.higher_is_better is False:
            raise InputError(f"chance = {report.chance:g} is what guessing gives, but less is better; leave it out")
        if report.arm not in self.axes:
            raise unknown("arm", report.arm, self.axes)
        arms = [format_value(value) for value in self.axes[report.arm]]
        named = [("baseline", report.baseline), *(("control", name) for name in report.controls)]
        named += [("explained arm", report.explained)] if report.explained is not None else []
        named += [("primary arm", report.primary)] if report.primary is not None else []
        for role, name in named:
            if name not in arms:
                raise unknown(f"{role} of the report", name, arms)
        if report.explained == report.baseline or report.explained in report.controls:
            role = "baseline" if report.explained == report.baseline else "control"
            raise InputError(f"explained = {report.explained!r} is the {role} of the report; name another arm")
        if report.primary == report.baseline:
            raise InputError(f"primary = {report.primary!r} is the baseline of the report; name another arm")
        return self


def read_experiment(name_or_path: str) -> Experiment:
    """Read an experiment file.

    Args:
        name_or_path: a built-in experiment by name, or the path of a TOML file.

    Returns:
        The experiment, validated; `expand` makes its cells.

    Raises:
        InputError: the file does not exist, is not TOML, or names something unknown.

    Example:
        >>> read_experiment("maml_digits").axes
        {'activation': ('relu', 'arelu', 'arelu_frozen', 'relu_gain', 'arelu_unit')}
    """
    path = catalog.find("experiment", name_or_path)
    return validated(Experiment, catalog.read("experiment", name_or_path), str(path))


def read_published(experiment: Experiment, name_or_path: str) -> list[dict[str, str]]:
    """Read the published figures that are shown beside the grid: the axes, metric, value, protocol, source."""
    folder = catalog.find("experiment", name_or_path).parent / "published"
    expected = {*experiment.axes, *_PUBLISHED_COLUMNS}
    published: list[dict[str, str]] = []
    for path in (folder / name for name in experiment.report.published):
        with parsing(path, remedy="correct it", what="no table of published figures"):
            check_inside(path, folder)
            if not path.is_file():
                raise InputError(f"published figures {path} do not exist")
            reader = csv.DictReader(io.StringIO(read_text(path, remedy="correct it"), newline=""))
            columns = set(reader.fieldnames or ())
            if columns != expected:
                raise InputError(
                    f"{path} has the columns {', '.join(sorted(columns))}; it must have {', '.join(sorted(expected))}"
                )
            rows = list(reader)
        for line, row in enumerate(rows, 2):
            try:
                float(row["value"])
            except (TypeError, ValueError):
                raise InputError(f"{path}, line {line}: value {row['value']!r} is not a number") from None
        published += rows
    return published
