"""Published values beside our own, by where they come from: protocols are never mixed in a column."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from arelu_meta.analysis.arms import Arm
from arelu_meta.analysis.settings import same

SourceKey = tuple[str, str, str]
"""Metric, protocol and source."""
PARTS = ("metric", "protocol", "source")


def published_rows(table: pd.DataFrame | None, values: Mapping[str, Any]) -> pd.DataFrame:
    """The published rows of these axis values; an axis that they leave out or leave empty fits any value."""
    if table is None or table.empty:
        return pd.DataFrame(columns=[*PARTS, "value"])
    fits = [
        all(axis not in table or _empty(row[axis]) or same(row[axis], value) for axis, value in values.items())
        for _, row in table.iterrows()
    ]
    return table[fits]


def _empty(value: Any) -> bool:
    return value == "" or bool(pd.isna(value))


def _source(row: pd.Series) -> SourceKey:
    metric, protocol, source = ("" if pd.isna(row.get(part)) else str(row[part]) for part in PARTS)
    return metric, protocol, source


def published_sources(arms: Sequence[Arm]) -> list[SourceKey]:
    """The different sources of the arms' published values, in order."""
    return list(dict.fromkeys(_source(row) for arm in arms for _, row in arm.published.iterrows()))


def published_value(arm: Arm, source: SourceKey) -> float:
    """What a source says of an arm; NaN for nothing."""
    values = [float(row["value"]) for _, row in arm.published.iterrows() if _source(row) == source]
    return values[0] if values else math.nan
