"""`Findings`: what the finished runs of a comparison hold, before anything is concluded from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Findings:
    """Finished runs of one comparison, as tables: the runner collects them, the analysis and the report read them.

    `runs` has one row per finished cell: a column per axis, `seed`, a column per metric (named as in MLflow, in the
    unit shown), `run_id` and `seconds`. `curves` is long: axes, `seed`, `metric`, `step`, `value`. `episodes` holds
    per-episode results of the metric by `run_id`, (episodes,) or (episodes, inner steps + 1), in the unit shown; all
    runs were judged on the same episodes in the same order.
    """

    name: str
    title: str
    question: str
    runs: pd.DataFrame
    axes: tuple[str, ...]
    """Columns that tell settings apart, the seed aside: ("activation", "lr")."""
    arm: str
    """The axis whose values are compared."""
    baseline: str
    """The value of `arm` that all others are tested against."""
    metric: str
    """The column judged first."""
    further: Mapping[str, str] = field(default_factory=dict)
    """Columns shown beside it, untested, each with the metric that published figures of it are under."""
    validation_metric: str | None = None
    """The column that may choose among settings, such as learning rates."""
    higher_is_better: bool = True
    controls: Mapping[str, str] = field(default_factory=dict)
    """Arms that are there to explain another, with what each of them takes away."""
    published: pd.DataFrame | None = None
    """Columns: the axes, `metric`, `value`, `protocol`, `source`."""
    curves: pd.DataFrame | None = None
    step: str = "training step"
    """What curves are drawn over."""
    episodes: Mapping[str, np.ndarray] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    """Cells without a result, each with the reason."""
    budget: float = 1.0
    """Share of the full training every cell was given."""
    protocol: Mapping[str, str] = field(default_factory=dict)
    """Facts shown over the tables, in order: task, data digest, split, protocol, transduction, versions, command."""
    unit: str | None = None
    """Written behind values of the metric; without it "%" where an accuracy or a Dice score lies above 1."""
    explained: str | None = None
    """The arm that controls take apart; without it `arelu`, or the only arm that is neither control nor baseline."""
    tuned: tuple[str, ...] | None = None
    """Axes whose value each arm may choose by the validation metric; without it those named `lr` or `..._lr`."""
