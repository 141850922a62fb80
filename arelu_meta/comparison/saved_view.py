"""How the page of a comparison opens in the MLflow UI: grouped by arm, all runs, the charts that answer the question.

The UI keeps a view in a tag of the experiment, in a format of its own that MLflow does not promise: JSON, deflated, in
base64 (`mlflow.demo.generators.saved_views` writes one for traces). Read in MLflow 3.17.2. A UI that does not
understand it says so and shows what it always shows.
"""

import base64
import json
import zlib
from typing import Any

from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.resampling import SPLIT_AXIS
from arelu_meta.analysis.settings import tuned_axes

VIEW = "arelu-meta-1"
"""Name of the view in links; to be raised with the format."""
PREFIX = "mlflow.sharedViewState."
MOST = 20_000  # characters of an experiment's tag
_SECTION = "arelu-meta-answer"


def experiment_tags(findings: Findings, parent_run_id: str, created: int) -> dict[str, str]:
    """Tags by which the page of a comparison opens on its answer.

    Args:
        findings: What is compared, and by which metric.
        parent_run_id: The runs shown are those below it.
        created: When, in milliseconds.
    """
    tags = {
        "mlflow.experimentKind": "custom_model_development",
        "mlflow.experiment.primaryMetric.name": findings.metric,
        "mlflow.experiment.primaryMetric.greaterIsBetter": str(findings.higher_is_better),
    }
    packed = zlib.compress(json.dumps(view_state(findings, parent_run_id)).encode())
    view = {"name": findings.name, "createdAt": created, "state": f"deflate;{base64.b64encode(packed).decode()}"}
    text = json.dumps(view, separators=(",", ":"))
    return {**tags, PREFIX + VIEW: text} if len(text) <= MOST else tags


def view_state(findings: Findings, parent_run_id: str) -> dict[str, Any]:
    """What the view shows, in the words of the UI: runs below the parent, grouped by arm, and up to four charts."""
    arm = findings.arm.rpartition(".")[2]
    curves = list(dict.fromkeys(findings.curves["metric"])) if findings.curves is not None else []
    inner = [metric for metric in curves if "inner_step" in metric]
    over_steps = [metric for metric in curves if metric not in inner]
    charts: list[dict[str, Any]] = [
        {"type": "BAR", "metricKey": findings.metric, "displayName": f"{findings.metric} by {arm}"}
    ]
    for metric in [*over_steps[:1], *inner[:1]]:
        charts.append({"type": "LINE", "metricKey": metric, "selectedMetricKeys": [metric], "displayName": metric})
    for axis in tuned_axes(findings)[:1]:
        x, y = {"key": axis.rpartition(".")[2], "type": "PARAM"}, {"key": findings.metric, "type": "METRIC"}
        charts.append({"type": "SCATTER", "xaxis": x, "yaxis": y, "displayName": f"{findings.metric} over {x['key']}"})
    common = {"metricSectionId": _SECTION, "deleted": False, "isGenerated": False, "runsCountToCompare": 100}
    line = {"lineSmoothness": 0, "scaleType": "linear", "xAxisScaleType": "linear", "xAxisKey": "step"}
    line |= {"range": {}, "yAxisKey": "metric", "yAxisExpressions": [], "selectedXAxisMetricKey": ""}
    for number, chart in enumerate(charts):
        chart |= {**common, "uuid": f"{_SECTION}-{number}", **(line if chart["type"] == "LINE" else {})}
    # A mean over settings would hide what a setting does; over splits it is what is compared.
    axes = [findings.arm, *(axis for axis in findings.axes if axis not in (findings.arm, SPLIT_AXIS))]
    groups = [{"mode": "param", "groupByData": axis.rpartition(".")[2]} for axis in axes]
    section = {"uuid": _SECTION, "name": "The answer", "display": True, "isReordered": True}
    return {
        "searchFilter": f"tags.`mlflow.parentRunId` = '{parent_run_id}'",
        "orderByKey": f"metrics.`{findings.metric}`",
        "orderByAsc": not findings.higher_is_better,
        "selectedColumns": [f"metrics.`{findings.metric}`", f"params.`{arm}`", "params.`seed`"],
        "runsHiddenMode": "SHOW_ALL",
        "groupBy": {"aggregateFunction": "average", "groupByKeys": groups},
        "useGroupedValuesInCharts": True,
        "hideEmptyCharts": True,
        "isAccordionReordered": True,
        "compareRunCharts": charts,
        "compareRunSections": [{**section, "deleted": False, "isGenerated": False}],
        "globalLineChartConfig": {"xAxisKey": "step", "lineSmoothness": 0, "selectedXAxisMetricKey": ""},
    }
