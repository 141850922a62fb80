"""How the page of a comparison opens in the MLflow UI: all runs, grouped by arm, and the charts that answer it."""

from collections.abc import Mapping
from dataclasses import replace

from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.resampling import SPLIT_AXIS
from arelu_meta.analysis.settings import tuned_axes
from arelu_meta.store.saved_view import MODEL_TRAINING, SavedView, bar, line, picture, scatter

VIEW = "arelu-meta-1"
"""Name of the view in links; to be raised with the format."""
PICTURES = "arelu-meta-pictures-1"
"""Name of the view that has the pictures of runs side by side."""


def experiment_tags(
    findings: Findings, parent_run_id: str, pictures: Mapping[str, int] | None = None
) -> dict[str, str]:
    """Tags by which the page of a comparison opens on its answer.

    Args:
        findings: What is compared, and by which metric.
        parent_run_id: The runs shown are those below it.
        pictures: Keys and steps of the images that runs have; with any, a second view shows these side by side.
    """
    view = comparison_view(findings, parent_run_id)
    cards = [picture(key, step) for key, step in sorted((pictures or {}).items())]
    # Of one seed: the UI shows the pictures of ten runs, which three seeds of four arms would fill without the last.
    condition = f"{view.condition} AND params.seed = '{_common_seed(findings)}'" if cards else ""
    beside = replace(view, name=f"{view.name}: pictures", condition=condition, groups=(), charts=cards, by_run=True)
    return {
        **MODEL_TRAINING,
        "mlflow.experiment.primaryMetric.name": findings.metric,
        "mlflow.experiment.primaryMetric.greaterIsBetter": str(findings.higher_is_better),
        **view.tags(VIEW),
        **(beside.tags(PICTURES) if cards else {}),
    }


def _common_seed(findings: Findings) -> int:
    """The seed that most runs have, of several the first."""
    runs = findings.runs if findings.single_runs is None else findings.single_runs
    return int(runs["seed"].mode().min())


def comparison_view(findings: Findings, parent_run_id: str) -> SavedView:
    """Runs below the parent, grouped by arm and setting, and up to four charts."""
    arm = findings.arm.rpartition(".")[2]
    curves = list(dict.fromkeys(findings.curves["metric"])) if findings.curves is not None else []
    inner = [metric for metric in curves if "inner_step" in metric]
    over_steps = [metric for metric in curves if metric not in inner]
    tuned = [axis.rpartition(".")[2] for axis in tuned_axes(findings)]
    # A mean over settings would hide what a setting does; over splits it is what is compared.
    axes = [findings.arm, *(axis for axis in findings.axes if axis not in (findings.arm, SPLIT_AXIS))]
    return SavedView(
        name=findings.name,
        condition=f"tags.`mlflow.parentRunId` = '{parent_run_id}'",
        metric=findings.metric,
        higher_is_better=findings.higher_is_better,
        groups=[("param", axis.rpartition(".")[2]) for axis in axes],
        columns=[f"params.{arm}", "params.seed"],
        charts=[
            bar(findings.metric, arm),
            *(line(metric) for metric in (*over_steps[:1], *inner[:1])),
            *(scatter(findings.metric, axis) for axis in tuned[:1]),
        ],
    )
