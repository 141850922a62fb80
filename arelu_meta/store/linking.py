"""Results of a run, linked to the model that gave them and to the images they were measured on."""

import math
import warnings
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import LoggedModel, Metric, Run
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT

from arelu_meta.analysis.speed import less_is_better
from arelu_meta.errors import first_line, without_password

SUBSETS = ("test", "validation")


def model_of_run(client: MlflowClient, experiment_id: str, run_id: str) -> LoggedModel | None:
    """Give the model that a run stored; None without one."""
    found = client.search_logged_models([experiment_id], filter_string=f"source_run_id = '{run_id}'", max_results=1)
    return next(iter(found), None)


def link_metrics(client: MlflowClient, run_id: str) -> str:
    """Log the results of a run for its model too, each with the data set it is of; the run's own points stay the same.

    Of a metric over steps that is the last value, of a validation metric the best: that of the parameters stored. Then
    `mlflow.search_logged_models` ranks models by them. A store that knows no such links is left as it is.

    Returns:
        Why the store did not take them; empty where it did, or there is nothing to link.
    """
    try:
        run = client.get_run(run_id)
        model = model_of_run(client, run.info.experiment_id, run_id)
        points = [] if model is None else _points(client, run, model.model_id)
        if model is None or not points:
            return ""
        client.log_batch(run_id, metrics=points)
        linked = client.get_logged_model(model.model_id).metrics
    except MlflowException as error:
        return first_line(error)
    return "" if linked else "it took them for the run alone"


def say_unlinked(client: MlflowClient, reason: str) -> None:
    """Warn that models cannot be ranked in a store; Python shows a warning once, and a comparison that of all cells."""
    line = f"the MLflow store {client.tracking_uri} links no metrics to models ({reason[:200]})"
    warnings.warn(without_password(f"{line}: runs have them, the list of models does not"), stacklevel=2)


def _points(client: MlflowClient, run: Run, model_id: str) -> list[Metric]:
    """Results of a run as metrics of its model.

    Not those that are no number: as a metric of a model MLflow stores 0.0 for NaN, the best loss there is, and 3.13
    refuses it together with all others.
    """
    datasets: dict[str, dict[str, Any]] = {}
    for given in run.inputs.dataset_inputs if run.inputs else ():
        context = next((tag.value for tag in given.tags if tag.key == MLFLOW_DATASET_CONTEXT), "")
        datasets[context] = {"dataset_name": given.dataset.name, "dataset_digest": given.dataset.digest}
    points = []
    for key in run.data.metrics:
        subset = key.partition("/")[0]
        if subset not in SUBSETS or "_by_" in key:
            continue
        history = sorted(client.get_metric_history(run.info.run_id, key), key=lambda one: (one.step, one.timestamp))
        numbers, chosen = [one for one in history if not math.isnan(one.value)], history[-1]
        if subset == "validation" and numbers:
            chosen = (min if less_is_better(key) else max)(numbers, key=lambda one: one.value)
        if math.isnan(chosen.value):
            continue
        place = (chosen.value, chosen.timestamp, chosen.step)
        points.append(Metric(key, *place, model_id=model_id, run_id=run.info.run_id, **datasets.get(subset, {})))
    return points
