"""Any table of runs as findings, and the one answer that their analysis comes to."""

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pandas as pd

from arelu_meta.analysis.arms import Analysis
from arelu_meta.analysis.decisions import Outcome
from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.settings import same_value
from arelu_meta.analysis.speed import less_is_better
from arelu_meta.errors import InputError, unknown

PREFIXES = {"param": "params.", "tag": "tags.", "metric": "metrics."}
"""What a field may be called, and how `mlflow.search_runs` begins the name of its column."""
DIVERGED_TAG = "tags.diverged"
MOST_NAMED = 8  # seeds or cells that a line names
_OWN = ("seed", "run_id", "seconds")  # columns of findings


class Answer(StrEnum):
    """What a judgement comes to."""

    DIFFERENT = "different"
    NONE = "no difference detectable"
    EQUIVALENT = "equivalent"
    TOO_LITTLE = "too little data"


@dataclass(frozen=True)
class Fields:
    """Which columns of a table hold what."""

    arm: str
    metric: str
    pair_by: tuple[str, ...]
    """Two runs of different arms are a pair where they agree in all of these."""

    @property
    def named(self) -> dict[str, str]:
        """A short name for each column; the whole one where two would be the same, or one that findings have."""
        columns = (self.arm, self.metric, *self.pair_by)
        short = [_short(column) for column in columns]
        names = {}
        for column, name in zip(columns, short, strict=True):
            whole = short.count(name) > 1 or name in _OWN
            names[column] = (f"given {column}" if column in _OWN else column) if whole else name
        return names


def find_fields(
    columns: Collection[str], *, arm: str, metric: str, seed: str | None = None, pair_by: Sequence[str] = ()
) -> Fields:
    """Find the columns that a question names: `param:lr` is `params.lr` of `mlflow.search_runs`, or `lr`.

    Without `seed` runs are paired by `pair_by`, and without both by `seed`.

    Raises:
        InputError: A column is not there, or one is named twice.

    Example:
        >>> fields = find_fields(["params.lr", "params.seed", "metrics.lr"], arm="param:lr", metric="lr")
        >>> fields.arm, fields.metric, fields.pair_by
        ('params.lr', 'metrics.lr', ('params.seed',))
    """
    pairs = [*([seed] if seed is not None else [] if pair_by else ["seed"]), *pair_by]
    found = [_column(columns, arm, "param"), _column(columns, metric, "metric")]
    try:
        found += [_column(columns, name, "param") for name in pairs]
    except InputError as error:
        if seed is not None or pair_by:
            raise
        known = ", ".join(sorted(_short(column) for column in columns))
        raise InputError(
            f"nothing named 'seed' pairs runs of different arms; name with `seed` what does: {known}"
        ) from error
    twice = next((column for column in found if found.count(column) > 1), None)
    if twice is not None:
        raise InputError(f"{_short(twice)!r} is named twice among `arm`, `metric`, `seed` and `pair_by`; name it once")
    return Fields(found[0], found[1], tuple(found[2:]))


def _column(columns: Collection[str], name: str, role: str) -> str:
    """The column of a name; without a kind before the name, one of its own name, then one of its role."""
    kind, _, rest = name.partition(":")
    if rest and kind in PREFIXES:
        wanted, of_kind = [PREFIXES[kind] + rest, rest], [one for one in columns if one.startswith(PREFIXES[kind])]
        what, sought = kind, rest
    else:
        kinds = [role, *(other for other in PREFIXES if other != role)]
        wanted, of_kind = [name, *(PREFIXES[one] + name for one in kinds)], []
        what, sought = "metric" if role == "metric" else "column", name
        if role == "metric":
            of_kind = [one for one in columns if one.startswith(PREFIXES["metric"])]
    for column in wanted:
        if column in columns:
            return column
    raise unknown(what, sought, {_short(column) for column in of_kind or columns})


def _short(column: str) -> str:
    for prefix in PREFIXES.values():
        if column.startswith(prefix):
            return column.removeprefix(prefix)
    return column


def findings_of_table(
    table: pd.DataFrame,
    fields: Fields,
    *,
    name: str = "table",
    baseline: str | None = None,
    lower_is_better: bool | None = None,
    margin: float | None = None,
    remarks: Iterable[str] = (),
    protocol: Mapping[str, str] | None = None,
) -> Findings:
    """Make findings of a table with a row per run; what is left out or averaged is said in `remarks` and `missing`.

    Runs that have not finished (column `status`) are left out, as are runs without an arm, a pair or the metric. A
    metric that is not finite is a training that failed. Runs of one arm and one pair count once, by their mean.

    Without a baseline it is the arm whose first run is the earliest; whether less is better the metric's name says.

    Raises:
        InputError: There is no such baseline, a value is no number, or the margin is not above 0.
    """
    if margin is not None and not (math.isfinite(margin) and margin > 0):
        raise InputError(f"`margin` = {margin:g}: must be above 0")
    names = fields.named
    runs, said = _usable(table, fields)
    runs, averaged = _averaged(runs, fields)
    runs, paired = _numbered(runs, fields)
    arm, metric = names[fields.arm], names[fields.metric]
    arms = list(dict.fromkeys(runs[arm]))
    chosen = arms[0] if arms else ""
    if baseline is not None and arms:
        chosen = next((one for one in arms if same_value(one, baseline)), "")
        if not chosen:
            raise unknown("baseline", baseline, arms)
    facts = {"arm": arm, "paired by": ", ".join(map(_short, fields.pair_by)), "baseline": chosen or "none"}
    return Findings(
        name=name,
        title=f"{metric} by {arm}: {name}",
        question="",
        runs=runs,
        axes=(arm,),
        arm=arm,
        baseline=chosen,
        metric=metric,
        higher_is_better=not (less_is_better(metric) if lower_is_better is None else lower_is_better),
        margin=margin,
        missing=_missing(runs, arm),
        protocol={**facts, **(protocol or {})},
        remarks=(*remarks, *said, *averaged, *paired),
    )


def _usable(table: pd.DataFrame, fields: Fields) -> tuple[pd.DataFrame, list[str]]:
    """The runs that count, in the order they were started, arms as text; and what was left out."""
    runs = table.sort_values("start_time", kind="stable") if "start_time" in table else table
    said = []
    if "status" in runs:
        diverged = runs.get(DIVERGED_TAG, pd.Series(None, index=runs.index, dtype=object)).notna()
        diverged &= runs["status"] == "FAILED"
        unfinished = (runs["status"] != "FINISHED") & ~diverged
        counts = runs.loc[unfinished, "status"].value_counts()
        if len(counts):
            how = ", ".join(f"{count} {status}" for status, count in counts.items())
            said.append(f"Runs that have not finished are left out: {how}.")
        runs = runs.assign(**{fields.metric: runs[fields.metric].astype(object).where(~diverged, math.nan)})
        runs = runs[~unfinished]
    for column in (fields.arm, *fields.pair_by, fields.metric):
        # A metric that is NaN was measured; one that is None or empty was not.
        lacking = runs[column].map(lambda value: value is None or value is pd.NA or value == "").astype(bool)
        if column != fields.metric:
            lacking |= runs[column].isna()
        if lacking.any():
            said.append(f"Runs without {_short(column)} are left out: {int(lacking.sum())}.")
            runs = runs[~lacking]
    values = pd.to_numeric(runs[fields.metric], errors="coerce").astype(float)
    wrong = runs[fields.metric][values.isna() & (runs[fields.metric].astype(object).map(str).str.lower() != "nan")]
    if len(wrong):
        raise InputError(f"{_short(fields.metric)} = {wrong.iloc[0]!r} is no number; correct it or leave the run out")
    texts = {column: _as_text(runs[column]) for column in (fields.arm, *fields.pair_by)}
    return runs.assign(**texts, **{fields.metric: values}), said


def _as_text(values: pd.Series) -> pd.Series:
    """Values as text: where all are numbers, the same number written in two ways is one value."""
    numbers = pd.to_numeric(values.astype(object).map(str), errors="coerce")
    if not len(values) or not np.isfinite(numbers).all():
        return values.astype(object).map(str)
    return numbers.map(lambda number: str(int(number)) if float(number).is_integer() else repr(float(number)))


def _averaged(runs: pd.DataFrame, fields: Fields) -> tuple[pd.DataFrame, list[str]]:
    """One row per arm and pair, the mean of its runs: a training that was repeated is neither chosen nor doubled."""
    keys = [fields.arm, *fields.pair_by]
    repeated = runs.duplicated(keys, keep=False).to_numpy()
    several = runs[repeated]
    if several.empty:
        return runs, []
    cells = several.groupby(keys, sort=False)
    named = [
        f"{', '.join(map(str, values if isinstance(values, tuple) else (values,)))}: {len(rows)}"
        for values, rows in itertools.islice(cells, MOST_NAMED)
    ]
    more = f" and {cells.ngroups - MOST_NAMED} more" if cells.ngroups > MOST_NAMED else ""
    settings = [column for column in several if str(column).startswith(PREFIXES["param"]) and column not in keys]
    differing = [_short(column) for column in settings if (cells[column].nunique(dropna=False) > 1).any()]
    where = f"; they differ in {', '.join(differing[:MOST_NAMED])}" if differing else ""
    pairs = ", ".join(map(_short, fields.pair_by))
    remark = (
        f"Runs that share {_short(fields.arm)} and {pairs} count once, by their mean ({'; '.join(named)}{more}){where}."
    )
    # By pandas' own functions: one of ours would be called for each of thousands of cells. Theirs leave NaN out.
    missing = several.assign(**{fields.metric: several[fields.metric].isna()})
    failed = missing.groupby(keys, sort=False)[fields.metric].transform("any")
    means = runs[fields.metric].copy()
    means[repeated] = cells[fields.metric].transform("mean").mask(failed).to_numpy()
    return runs.assign(**{fields.metric: means}).drop_duplicates(keys), [remark]


def _numbered(runs: pd.DataFrame, fields: Fields) -> tuple[pd.DataFrame, list[str]]:
    """Name columns as findings do, each pair by a whole number: the seed itself where runs are paired by one."""
    said = []
    if len(fields.pair_by) == 1 and runs[fields.pair_by[0]].str.fullmatch(r"-?\d{1,18}").all():
        numbers = runs[fields.pair_by[0]].astype("int64")
    else:
        pairs = ", ".join(map(_short, fields.pair_by))
        said = [f"What tables call a seed is the number of a pair, of {pairs}; runs.csv says which."]
        numbers = runs.groupby(list(fields.pair_by), sort=True).ngroup()
    if len(fields.pair_by) > 1:
        said.append("Pairs are taken as independent of each other; those of one data set or one split may not be.")
    others = fields.pair_by if said else ()
    kept = runs[[fields.arm, fields.metric, *others]].rename(columns=fields.named)
    kept["run_id"] = runs.get("run_id", "")
    return kept.assign(seed=numbers, seconds=_seconds(runs)), said


def _seconds(runs: pd.DataFrame) -> "pd.Series | float":
    """How long each run took, where the table says; milliseconds as MLflow has them, or times."""
    if not {"start_time", "end_time"} <= set(runs):
        return math.nan
    taken = runs["end_time"] - runs["start_time"]
    if pd.api.types.is_timedelta64_dtype(taken):
        return taken.dt.total_seconds()
    return pd.to_numeric(taken, errors="coerce") / 1000


def _missing(runs: pd.DataFrame, arm: str) -> tuple[str, ...]:
    """A line for each arm that lacks pairs which another arm has."""
    known, lines = set(runs["seed"]), []
    for name, own in runs.groupby(arm, sort=False)["seed"]:
        lacking = sorted(known.difference(own))
        if lacking:
            more = f" and {len(lacking) - MOST_NAMED} more" if len(lacking) > MOST_NAMED else ""
            seeds = ", ".join(map(str, lacking[:MOST_NAMED]))
            lines.append(f"{arm} = {name}: no finished run of seed{'s' * (len(lacking) > 1)} {seeds}{more}")
    return tuple(lines)


def answer_of(analysis: Analysis) -> Answer:
    """What an analysis comes to: a difference where any arm differs, equivalence only where all arms are equivalent."""
    outcomes: list[Any] = [arm.outcome for one in analysis.primary for arm in one.arms if arm.outcome is not None]
    if Outcome.DIFFERENT in outcomes:
        return Answer.DIFFERENT
    if all(outcome is Outcome.UNTESTED for outcome in outcomes):
        return Answer.TOO_LITTLE
    if all(outcome in (Outcome.EQUIVALENT, Outcome.IDENTICAL) for outcome in outcomes):
        return Answer.EQUIVALENT
    return Answer.NONE
