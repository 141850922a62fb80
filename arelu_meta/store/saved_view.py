"""Saved views of the MLflow UI: which runs the page of an experiment opens with, how they are grouped, which charts.

The UI keeps a view in a tag of the experiment, in a format of its own that MLflow does not promise: JSON, deflated, in
base64; since MLflow 3.15 with a name around it, by which the UI lists it. Read in MLflow 3.13 and 3.17, looked at in
3.17. A UI that does not understand it says so and shows what it always shows.
"""

import base64
import json
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import mlflow
from mlflow.utils.validation import MAX_EXPERIMENT_TAG_VAL_LENGTH

PREFIX = "mlflow.sharedViewState."
MOST = MAX_EXPERIMENT_TAG_VAL_LENGTH  # characters of a tag
MODEL_TRAINING = {"mlflow.experimentKind": "custom_model_development"}
"""Tag of an experiment that is not about language models: the UI need not ask."""
_SECTION = "arelu-meta-answer"
_WHOLE_WIDTH = {"columns": 1, "cardHeight": 1200}  # the UI's own are 3 and 360, room for one picture
_FIRST_WITH_NAMES = (3, 15)
UNLISTED = "keep this link: MLflow lists such views by name since 3.15"


@dataclass(frozen=True, kw_only=True)
class SavedView:
    """What a view shows.

    Args:
        name: what the UI lists it as.
        condition: which runs, in MLflow's language.
        metric: what they are ranked by, in the first column.
        higher_is_better: whether its best is its highest.
        groups: parameters or tags whose values are a group, which the UI shows by the mean of its runs; may be empty.
        columns: further columns, as `params.NAME` or `tags.NAME`.
        charts: `bar`, `line`, `scatter` and `picture`, in their order.
        by_run: whether charts show single runs, as pictures need it, in cards that have the whole page.
    """

    name: str
    condition: str
    metric: str
    higher_is_better: bool = True
    groups: Sequence[tuple[Literal["param", "tag"], str]]
    columns: Sequence[str] = ()
    charts: Sequence[dict[str, Any]]
    by_run: bool = False

    def state(self) -> dict[str, Any]:
        """The view in the words of the UI."""
        common = {"metricSectionId": _SECTION, "deleted": False, "isGenerated": False, "runsCountToCompare": 100}
        section = {
            "uuid": _SECTION,
            "name": "Pictures" if self.by_run else "The answer",
            "display": True,
            "isReordered": True,
            **(_WHOLE_WIDTH if self.by_run else {}),
        }
        columns = [f"{kind}.`{key}`" for kind, _, key in (column.partition(".") for column in self.columns)]
        groups = [{"mode": mode, "groupByData": key} for mode, key in self.groups]
        return {
            "searchFilter": self.condition,
            "orderByKey": f"metrics.`{self.metric}`",
            "orderByAsc": self.higher_is_better == self.by_run,  # the UI shows the pictures of the last run first
            "selectedColumns": [f"metrics.`{self.metric}`", *columns],
            "runsHiddenMode": "SHOW_ALL",
            "runListHidden": self.by_run,
            "groupBy": {"aggregateFunction": "average", "groupByKeys": groups} if groups else None,
            "useGroupedValuesInCharts": not self.by_run,
            "hideEmptyCharts": True,
            "isAccordionReordered": True,
            "compareRunCharts": [
                {**chart, **common, "uuid": f"{_SECTION}-{number}"} for number, chart in enumerate(self.charts)
            ],
            "compareRunSections": [{**section, "deleted": False, "isGenerated": False}],
            "globalLineChartConfig": {"xAxisKey": "step", "lineSmoothness": 0, "selectedXAxisMetricKey": ""},
        }

    def tags(self, key: str) -> dict[str, str]:
        """Tags of the experiment that hold it, under the key that links name it by; none where it is too long."""
        packed = f"deflate;{base64.b64encode(zlib.compress(json.dumps(self.state()).encode())).decode()}"
        named = {"name": self.name, "createdAt": int(time.time() * 1000), "state": packed}
        text = json.dumps(named, separators=(",", ":")) if lists_views() else packed
        return {PREFIX + key: text} if len(text) <= MOST else {}


def lists_views() -> bool:
    """Whether the UI of this MLflow lists views by their names; before, one has to have the link."""
    major, minor = mlflow.__version__.split(".")[:2]
    return (int(major), int(minor)) >= _FIRST_WITH_NAMES


def bar(metric: str, by: str) -> dict[str, Any]:
    """A bar for each group: its mean."""
    return {"type": "BAR", "metricKey": metric, "displayName": f"{metric} by {by}"}


def line(metric: str) -> dict[str, Any]:
    """A line for each group over the steps."""
    axes = {"scaleType": "linear", "xAxisScaleType": "linear", "xAxisKey": "step", "yAxisKey": "metric", "range": {}}
    more = {"lineSmoothness": 0, "yAxisExpressions": [], "selectedXAxisMetricKey": ""}
    return {
        "type": "LINE",
        "metricKey": metric,
        "selectedMetricKeys": [metric],
        "displayName": metric,
        **axes,
        **more,
    }


def picture(key: str, step: int) -> dict[str, Any]:
    """The images of runs side by side, see `grid_images`; all parameters of each run would leave them no room."""
    return {"type": "IMAGE", "imageKeys": [key], "step": step, "showRunParams": False, "displayName": key}


def scatter(metric: str, over: str, kind: Literal["PARAM", "METRIC"] = "PARAM") -> dict[str, Any]:
    """A point for each group: the metric over a parameter, or over another metric."""
    axes = {"xaxis": {"key": over, "type": kind}, "yaxis": {"key": metric, "type": "METRIC"}}
    return {"type": "SCATTER", **axes, "displayName": f"{metric} over {over}"}
