"""The finished runs of a comparison that one figure is drawn from."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from mlflow.entities import Run

from arelu_meta.comparison.cells import expand, is_same, parse_only
from arelu_meta.comparison.collect import curves_table
from arelu_meta.comparison.experiment import format_value, read_experiment
from arelu_meta.comparison.parent_run import ParentRun, coordinates, latest_parent_run
from arelu_meta.errors import InputError
from arelu_meta.store.connection import has_diverged


@dataclass(frozen=True)
class Finished:
    """Runs of a comparison with a result, at the chosen values of its axes."""

    experiment: str
    parent: ParentRun
    runs: Sequence[Run]
    planned: int
    """how many the experiment file has of them"""

    def curves(self, metric: str) -> pd.DataFrame:
        """Give a metric of the runs over its steps, as `arelu_meta.curves` does.

        Raises:
            InputError: no run has it.
        """
        table = curves_table(self.parent, self.runs, [metric])
        if table is None:
            raise InputError(f"no finished run of {self.experiment} has logged {metric}")
        return table

    def metrics(self) -> list[str]:
        """Names of all metrics that the runs have."""
        return sorted({name for run in self.runs for name in run.data.metrics})

    def one_of_each(self, axis: str, values: Sequence[str]) -> list[str]:
        """Give the id of a run with each of these values, all of the first seed that has them all.

        Raises:
            InputError: no seed has them all.
        """
        by_seed: dict[int, dict[str, str]] = {}
        for run in self.runs:
            place = coordinates(run)
            by_seed.setdefault(place["seed"], {}).setdefault(format_value(place[axis]), run.info.run_id)
        for _, found in sorted(by_seed.items()):
            if set(values) <= set(found):
                return [found[value] for value in values]
        raise InputError(f"no seed of {self.experiment} has finished runs of {' and '.join(values)}")


def finished_runs(
    experiment: str, only: Sequence[str] = (), *, budget: float = 1.0, seeds: Sequence[int] | None = None
) -> Finished:
    """Find the finished runs of a built-in experiment in the store.

    Args:
        experiment: its name.
        only: values of its axes, as `compare` takes them: `lr=1e-4,1e-5`.
        budget: the budget it was run with.
        seeds: those that are planned, in place of the file's.

    Raises:
        InputError: the store has no such comparison, or none of its runs has finished.
    """
    chosen = parse_only(only)
    planned = len(expand(read_experiment(experiment), only=chosen, seeds=seeds))
    parent = latest_parent_run(experiment, budget)
    runs = [run for run in parent.ended_cells() if not has_diverged(run)]
    for axis, words in chosen.items():
        runs = [run for run in runs if any(is_same(coordinates(run)[axis], word) for word in words)]
    if not runs:
        raise InputError(f"none of the {planned} runs has finished")
    return Finished(experiment, parent, runs, planned)


def by_step(table: pd.DataFrame) -> pd.DataFrame:
    """Lay a table of curves out by step and seed, as panels take it."""
    return table.pivot_table(index="step", columns="seed", values="value", aggfunc="last")
