"""`Findings`: what the finished runs of a comparison hold, before anything is concluded from it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Findings:
    """Finished runs of one comparison, as tables: the runner collects them, the analysis and the report read them.

    A notebook can build its own from any table of results and hand it to `analysis.analyse` or
    `reporting.make_report`; only the first eight arguments are required.

    Args:
        name: Name of the experiment.
        title: Heading of the report; empty for the name.
        question: What the comparison is to answer; may be empty.
        runs: One row per finished run: a column per axis, `seed`, a column per metric (named as in MLflow, in the unit
            shown), and, where they are known, `run_id` and `seconds`.
        axes: Columns that tell settings apart, the seed aside: `("activation", "lr")`.
        arm: The axis whose values are compared.
        baseline: The value of `arm` that all others are tested against.
        metric: The column that is tested.
        other_metrics: Columns shown beside it, untested, each with the metric that published figures of it are under.
        validation_metric: The column that may choose among settings, such as learning rates.
        higher_is_better: Whether more of the metric is better.
        units: Unit of each metric that has one: `{"test/accuracy": "%"}`.
        controls: Arms that are there to explain another, with what each of them lacks.
        explained: The arm that the verdict is about and that controls explain; without it `arelu`, or the only arm that
            is neither control nor baseline.
        primary: The one arm whose comparison with the baseline was declared before any run; it is tested without
            correction, all others are corrected together.
        margin: The smallest difference that would matter, in the unit of a difference; with it arms can be equivalent.
        chance: The result of guessing in per cent; with it trainings that learned nothing are told from others.
        failure_metric: The column that tells them, where that is not the tested one: the accuracy beside a speed.
        planned_seeds: Seeds that the experiment was to have; runs of others are later looks at the same question.
        overlap: Test images per training image, where runs have an axis `split_seed`: splits are compared then, seeds
            averaged, and intervals and tests know that splits share training images (`analysis.resampling`).
        single_runs: What `runs` are averages of, over splits.
        tuned: Axes whose value each arm may choose by the validation metric; without it those named `lr` or `..._lr`.
        groups: The group of each arm, such as `learnable`: where there are published figures, the explained arm is
            compared with the best of each group.
        published: Columns: the axes, `metric`, `value`, `protocol`, `source`.
        curves: Long table of metrics over steps: the axes, `seed`, `metric`, `step`, `value`.
        step: What curves are drawn over.
        episodes: Per-episode results of the metric by `run_id`, (episodes,) or (episodes, inner steps + 1), in the unit
            shown; all runs were judged on the same episodes in the same order.
        missing: Cells without a result, each with the reason.
        budget: Share of the full training every run was given.
        protocol: Facts shown with the tables, in order: task, data digest, split, protocol, versions, command.
        execution: How the runs of each arm were executed, by arm and tag: `{"relu": {"exec.threads": ("1", "2")}}`.
        remarks: What else limits the conclusions, as whoever collected the runs knows; notes of the report.

    Example:
        >>> runs = pd.DataFrame({"activation": ["relu", "relu", "arelu", "arelu"], "seed": [0, 1, 0, 1],
        ...                      "test/accuracy": [80.0, 82.0, 85.0, 88.0]})
        >>> found = Findings("mine", "", "", runs, ("activation",), "activation", "relu", "test/accuracy")
        >>> found.higher_is_better, found.units
        (True, {})
    """

    name: str
    title: str
    question: str
    runs: pd.DataFrame
    axes: tuple[str, ...]
    arm: str
    baseline: str
    metric: str
    other_metrics: Mapping[str, str] = field(default_factory=dict)
    validation_metric: str | None = None
    higher_is_better: bool = True
    units: Mapping[str, str] = field(default_factory=dict)
    controls: Mapping[str, str] = field(default_factory=dict)
    explained: str | None = None
    tuned: tuple[str, ...] | None = None
    primary: str | None = None
    margin: float | None = None
    chance: float | None = None
    failure_metric: str | None = None
    planned_seeds: tuple[int, ...] = ()
    overlap: float | None = None
    single_runs: pd.DataFrame | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    published: pd.DataFrame | None = None
    curves: pd.DataFrame | None = None
    step: str = "training step"
    episodes: Mapping[str, np.ndarray] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    budget: float = 1.0
    protocol: Mapping[str, str] = field(default_factory=dict)
    execution: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    @property
    def correction(self) -> float:
        """The overlap that intervals and tests are corrected for; 0 where seeds are compared."""
        return self.overlap if self.single_runs is not None and self.overlap is not None else 0.0

    def limits(self, metric: str | None = None) -> tuple[float, float]:
        """What a metric, by default the tested one, cannot go beyond: 0 and 100 % of a share, 0 of steps and epochs."""
        unit = self.units.get(metric or self.metric)
        return (-math.inf if unit not in ("%", "steps", "epochs") else 0.0, 100.0 if unit == "%" else math.inf)
