"""`results(name)`: the finished runs of a comparison as a table."""

import pandas as pd

from arelu_meta.comparison.collect import runs_table
from arelu_meta.comparison.record import latest_record


def results(name: str) -> pd.DataFrame:
    """Give one row per finished cell: the axes, `seed`, metrics (shares in per cent), `run_id`, `seconds`.

    The comparison is looked for by name in the store of this environment: the last one, if its file was edited.
    """
    record = latest_record(name)
    return runs_table(record, record.finished_cells())
