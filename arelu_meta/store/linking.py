"""Results of a run, linked to the model that gave them and to the images they were measured on."""

from contextlib import suppress
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import LoggedModel, Metric
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT

from arelu_meta.analysis.speed import less_is_better

SUBSETS = ("test", "validation")


def model_of_run(client: MlflowClient, experiment_id: str, run_id: str) -> LoggedModel | None:
    """Give the model that a run stored; None without one."""
    found = client.search_logged_models([experiment_id], filter_string=f"source_run_id = '{run_id}'", max_results=1)
    return next(iter(found), None)


def link_metrics(client: MlflowClient, run_id: str) -> None:
    """Log the results of a run for its model too, each with the data set it is of; the run's own points stay the same.

    Of a metric over steps that is the last value, of a validation metric the best: that of the parameters stored. Then
    `mlflow.search_logged_models` ranks models by them. A store that knows no such links is left as it is.
    """
    with suppress(MlflowException):
        run = client.get_run(run_id)
        model = model_of_run(client, run.info.experiment_id, run_id)
        if model is None:
            return
        datasets: dict[str, dict[str, Any]] = {}
        for given in run.inputs.dataset_inputs if run.inputs else ():
            context = next((tag.value for tag in given.tags if tag.key == MLFLOW_DATASET_CONTEXT), "")
            datasets[context] = {"dataset_name": given.dataset.name, "dataset_digest": given.dataset.digest}
        points = []
        for key in run.data.metrics:
            subset = key.partition("/")[0]
            if subset not in SUBSETS or "_by_" in key:
                continue
            history = sorted(client.get_metric_history(run_id, key), key=lambda one: (one.step, one.timestamp))
            chosen = history[-1]
            if subset == "validation":
                chosen = (min if less_is_better(key) else max)(history, key=lambda one: one.value)
            place = (chosen.value, chosen.timestamp, chosen.step)
            points.append(Metric(key, *place, model_id=model.model_id, run_id=run_id, **datasets.get(subset, {})))
        client.log_batch(run_id, metrics=points)
