"""Judge the runs of any MLflow experiment, or any table of results, by the statistics of comparisons."""

import difflib
import hashlib
import io
import json
import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from arelu_meta.analysis.judging import Answer, answer_of, find_fields, findings_of_table
from arelu_meta.console.output import plain
from arelu_meta.errors import InputError
from arelu_meta.reading import parsing, read_text
from arelu_meta.reporting import Report, make_report, report_metrics, report_summary, write_report
from arelu_meta.reporting.markdown import markdown_note
from arelu_meta.reporting.side_tables import power_table
from arelu_meta.reporting.table import numbers_frame

EXIT_CODES = {Answer.DIFFERENT: 0, Answer.NONE: 3, Answer.EQUIVALENT: 4, Answer.TOO_LITTLE: 5}
MOST_TABLE = 500 * 2**20  # bytes of a CSV file


@dataclass(frozen=True, eq=False, repr=False)
class Judgement:
    """What runs come to: `str()` gives the text, `report` the analysis and its words, `write` and `log` keep it."""

    report: Report
    answer: Answer
    source: str
    """The experiment or the file; empty for a DataFrame."""

    @property
    def exit_code(self) -> int:
        """0 a difference, 3 none detectable, 4 equivalent within the margin, 5 too little data."""
        return EXIT_CODES[self.answer]

    def __str__(self) -> str:
        """The verdict, the tables and what limits them."""
        return report_summary(self.report)

    __repr__ = __str__

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values for JSON; a number that does not exist is None."""
        findings, (verdict, *_) = self.report.analysis.findings, self.report.verdicts
        tests = {arm.name: arm.test for one in self.report.analysis.primary for arm in one.arms if arm.test}
        arms = numbers_frame(self.report.analysis).to_dict("records") if len(findings.runs) else []
        for arm in arms:
            test = tests.get(str(arm[findings.arm]))
            size = (test.margin or abs(test.difference.estimate.mean)) if test else math.nan
            arm["detectable_difference"] = test.detectable if test else math.nan
            arm["further_seeds"] = test.further_seeds_for(size) if test else None
        return {
            "answer": str(self.answer),
            "exit_code": self.exit_code,
            "verdict": verdict.sentences,
            "evidence": verdict.evidence,
            "source": self.source,
            "arm": findings.arm,
            "metric": findings.metric,
            "baseline": findings.baseline,
            "lower_is_better": not findings.higher_is_better,
            "margin": findings.margin,
            "runs": len(findings.runs),
            "arms": plain(arms),
            "notes": list(self.report.notes),
            "missing": list(self.report.missing),
        }

    def write(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write report.html, report.md and what else a report has into a folder; gives the files."""
        return write_report(self.report, Path(folder))

    def log(self, experiment: str) -> str:
        """Store the report as a run of an MLflow experiment, again in the same one where the question is the same.

        The runs that were judged are left as they are; `report/runs.csv` names them.

        Returns:
            The id of the run.
        """
        from mlflow.utils.mlflow_tags import MLFLOW_RUN_NOTE

        from arelu_meta.comparison.parent_run import open_judgement

        findings = self.report.analysis.findings
        kept = ("arm", "paired by", "baseline", "condition", "value")
        question = {
            **{key: value for key, value in findings.protocol.items() if key in kept},
            "metric": findings.metric,
        }
        question |= {"source": self.source, "margin": str(findings.margin)}
        identity = hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()
        parent = open_judgement(experiment, identity, name=f"judgement of {findings.metric} by {findings.arm}")
        metrics = report_metrics(self.report) if len(findings.runs) else {}
        with tempfile.TemporaryDirectory() as folder:
            if len(findings.runs):
                self.write(folder)
            (Path(folder) / "judgement.json").write_text(json.dumps(self.as_dict(), indent=1))
            tags = {f"judgement.{key.replace(' ', '_')}": value for key, value in question.items()}
            note = markdown_note(self.report, run_id=parent.run_id, experiment_id=parent.experiment_id)
            parent.write_report(
                Path(folder), metrics, {**tags, "judgement.answer": str(self.answer), MLFLOW_RUN_NOTE: note}
            )
        parent.end("FINISHED")
        return parent.run_id


def judge(
    data: "pd.DataFrame | str | os.PathLike[str]",
    *,
    arm: str,
    metric: str,
    seed: str | None = None,
    pair_by: Sequence[str] = (),
    baseline: str | None = None,
    lower_is_better: bool | None = None,
    margin: float | None = None,
    where: str = "",
    value: str = "last",
) -> Judgement:
    """Judge whether arms differ: paired differences, simultaneous intervals, corrected tests, equivalence, power.

    A field is a parameter, tag or metric of a run (`param:lr`, `tag:model`, `metric:val/acc`) or a column of a table.

    Args:
        data: An MLflow experiment by name or id, a CSV file, or a DataFrame with a row per run.
        arm: The field whose values are compared.
        metric: The field that they are compared by.
        seed: The field that pairs runs of different arms; without it `seed`, or only those of `pair_by`.
        pair_by: Further fields that a pair agrees in, such as the data set.
        baseline: The arm that all others are compared with; without it the one whose first run is the earliest.
        lower_is_better: Whether less of the metric is better; without it a loss or an error by its name.
        margin: The smallest difference that would matter, in the unit of the metric; with it arms can be equivalent.
        where: Of an experiment, only runs that fulfil this condition in MLflow's language.
        value: Of a metric that a run logged at several steps the `last`, `min`, `max` or `mean`.

    Returns:
        The judgement: `answer`, `exit_code`, `report`, and its text by `str`.

    Raises:
        InputError: There is no such experiment, file, field or baseline, or a value is no number.

    Example:
        >>> runs = pd.DataFrame({"lr": [0.1] * 3 + [0.01] * 3, "seed": [0, 1, 2] * 2,
        ...                      "accuracy": [0.80, 0.82, 0.84, 0.85, 0.88, 0.895]})
        >>> found = judge(runs, arm="lr", metric="accuracy")
        >>> str(found.answer), found.exit_code, found.report.verdicts[0].sentences.partition(",")[0]
        ('different', 0, '0.01 is detectably better than 0.1 on accuracy: +0.0550')
    """
    table, name, remarks, facts = _table(data, arm, metric, where, value)
    fields = find_fields([str(one) for one in table], arm=arm, metric=metric, seed=seed, pair_by=pair_by)
    given: dict[str, Any] = {"baseline": baseline, "lower_is_better": lower_is_better, "margin": margin}
    findings = findings_of_table(table, fields, name=name or "table", remarks=remarks, protocol=facts, **given)
    report = make_report(findings)
    power = [power_table(findings, one, report.numbers) for one in report.analysis.primary]
    beside = tuple((*own, *([more] if more else [])) for own, more in zip(report.side_tables, power, strict=True))
    return Judgement(replace(report, side_tables=beside), answer_of(report.analysis), name)


def _table(
    data: "pd.DataFrame | str | os.PathLike[str]", arm: str, metric: str, where: str, value: str
) -> tuple[pd.DataFrame, str, list[str], dict[str, str]]:
    """The runs as a table, what it is called, and what is to be said of it."""
    if not isinstance(data, pd.DataFrame) and not (Path(data).is_file() or Path(data).suffix.lower() == ".csv"):
        from arelu_meta.store.run_tables import runs_of_experiment

        table, remarks = runs_of_experiment(str(data), arm=arm, metric=metric, where=where, value=value)
        return table, str(data), remarks, {"condition": where or "none", "value": value}
    if where or value != "last":
        raise InputError("`where` and `value` are for MLflow experiments; choose the rows of a table before")
    return (data, "", [], {}) if isinstance(data, pd.DataFrame) else (_read_csv(Path(data)), str(data), [], {})


def _read_csv(path: Path) -> pd.DataFrame:
    """A table of text: an empty field is no value, `nan` one that is not finite."""
    near = difflib.get_close_matches(path.name, [one.name for one in path.parent.glob("*.csv")], n=1)
    remedy = "name a CSV file" if path.exists() or not near else f"did you mean {str(path.with_name(near[0]))!r}?"
    text = read_text(path, most=MOST_TABLE, remedy=remedy, what="no table")
    with parsing(path, remedy="write it with a header and a row per run", what="no table"):
        return pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)
