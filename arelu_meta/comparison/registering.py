"""The best model of a comparison in MLflow's registry."""

import pandas as pd
from mlflow.exceptions import MlflowException

from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.speed import less_is_better
from arelu_meta.comparison.parent_run import ParentRun
from arelu_meta.errors import InputError, RunError, first_line
from arelu_meta.store.linking import model_of_run

ALIAS = "candidate"


def register_best(findings: Findings, parent: ParentRun, name: str, verdict: str) -> str:
    """Register the model that validated best as a new version of a name, and point the alias `candidate` to it.

    Args:
        findings: What the comparison collected.
        parent: Its parent run.
        name: The name in the registry, which is made where it is missing.
        verdict: What the comparison comes to, for the description.

    Returns:
        The address of the version: `models:/NAME@candidate`.

    Raises:
        InputError: The comparison has no validation metric to choose by.
        RunError: The run that validated best has no model, or the registry refuses it.
    """
    metric = findings.validation_metric
    if metric is None or metric not in findings.runs or findings.runs[metric].isna().all():
        raise InputError("`register` chooses by validation, and this comparison has no validation metric")
    scores = pd.to_numeric(findings.runs[metric])
    best = findings.runs.loc[scores.idxmin() if less_is_better(metric) else scores.idxmax()]
    model = model_of_run(parent.client, parent.experiment_id, str(best["run_id"]))
    if model is None:
        raise RunError(f"run {best['run_id']}, the best by {metric}, has no model to register")
    cell = ", ".join(f"{axis} = {best[axis]}" for axis in (*findings.axes, "seed"))
    described = f"Best of comparison {findings.name} by {metric}, {best[metric]:.4g}: {cell}.\n\n{verdict}"
    client = parent.client
    try:
        if not client.search_registered_models(f"name = '{name}'"):
            client.create_registered_model(name)
        source = f"models:/{model.model_id}"
        made = client.create_model_version(
            name, source, str(best["run_id"]), description=described, model_id=model.model_id
        )
        client.set_registered_model_alias(name, ALIAS, made.version)
    except MlflowException as error:
        raise RunError(f"MLflow does not register {name!r}: {first_line(error)}") from error
    return f"models:/{name}@{ALIAS}"
