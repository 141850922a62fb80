"""`results(name)` and `curves(name, metric)`: the finished runs of a comparison as tables."""

import pandas as pd

from arelu_meta.comparison.collect import curves_table, runs_table
from arelu_meta.comparison.record import latest_record, place
from arelu_meta.errors import unknown
from arelu_meta.store.connection import has_diverged


def results(name: str, *, budget: float = 1.0) -> pd.DataFrame:
    """Give one row per finished cell: the axes, `seed`, metrics (shares in per cent), `run_id`, `seconds`.

    A cell that diverged has a row without metrics.

    The comparison is looked for by name in the store of this environment: the one run last, if its file was edited.
    What was run with `--budget` is asked for by its budget.
    """
    record = latest_record(name, budget)
    return runs_table(record, record.finished_cells())


def curves(name: str, metric: str, *, budget: float = 1.0) -> pd.DataFrame:
    """Give a metric of every finished cell over its steps: the axes, `seed`, `metric`, `step`, `value`."""
    record = latest_record(name, budget)
    runs = [run for run in record.finished_cells() if not has_diverged(run)]
    axes = [axis for axis in place(runs[0]) if axis != "seed"] if runs else []
    found = curves_table(record, runs, axes, [metric])
    if found is None:
        raise unknown("metric", metric, sorted({key for run in runs for key in run.data.metrics}))
    return found
