"""Results of a run are linked to its model and data sets, and models are ranked by them."""

import math
import warnings
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric

from arelu_meta.store.linking import link_metrics, model_of_run, say_unlinked
from tests.tiny_runs import MLFLOW_WARNINGS, metric_history

pytestmark = MLFLOW_WARNINGS


def run_with_model(client: MlflowClient, accuracy: float) -> str:
    """A run that validated best at its second step, with its model."""
    run_id = client.create_run("0").info.run_id
    points = [
        ("validation/accuracy", 0.5, 1, 1),
        ("validation/accuracy", 0.9, 2, 2),
        ("validation/accuracy", 0.7, 3, 3),
    ]
    points += [("validation/loss", 2.0, 1, 1), ("validation/loss", 3.0, 2, 2), ("train/loss", 1.0, 1, 1)]
    points += [
        ("test/accuracy", accuracy, 4, 0),
        ("test/accuracy_by_inner_step", 0.3, 4, 0),
        ("test/nan", math.nan, 4, 0),
    ]
    client.log_batch(run_id, metrics=[Metric(*point) for point in points])
    data = Dataset("digits", "0123456789", "code", "{}")
    client.log_inputs(run_id, [DatasetInput(data, [InputTag("mlflow.data.context", "test")])])
    client.create_logged_model("0", "model", source_run_id=run_id)
    return run_id


def test_results_are_those_of_the_model_and_points_stay_the_same(store_uri: str):
    client = MlflowClient(store_uri)
    runs = {accuracy: run_with_model(client, accuracy) for accuracy in (0.6, 0.8)}
    before = metric_history(store_uri, runs[0.8])
    for run_id in (*runs.values(), runs[0.8]):  # one of them again, as after a failure
        assert link_metrics(client, run_id) == ""
    after = metric_history(store_uri, runs[0.8])
    assert {key: len(points) for key, points in after.items()} == {key: len(points) for key, points in before.items()}
    model = client.get_logged_model(model_of_run(client, "0", runs[0.8]).model_id)
    linked = {metric.key: metric for metric in model.metrics}
    assert set(linked) == {"validation/accuracy", "validation/loss", "test/accuracy"}  # MLflow would store NaN as 0.0
    assert (linked["validation/accuracy"].value, linked["validation/loss"].value) == (0.9, 2.0)
    assert (linked["test/accuracy"].dataset_name, linked["test/accuracy"].dataset_digest) == ("digits", "0123456789")
    order = [{"field_name": "metrics.test/accuracy", "ascending": False}]
    assert [one.source_run_id for one in client.search_logged_models(["0"], order_by=order)] == [runs[0.8], runs[0.6]]


@pytest.mark.usefixtures("store")
def test_a_run_without_a_model_is_left_as_it_is(store_uri: str):
    client = MlflowClient(store_uri)
    run_id = client.create_run("0").info.run_id
    client.log_metric(run_id, "test/accuracy", 0.5)
    assert link_metrics(client, run_id) == ""
    assert "no such run" in link_metrics(client, "no such run")
    assert model_of_run(client, "0", run_id) is None


def test_a_store_that_takes_no_links_is_known_by_what_it_has_afterwards(store_uri: str, monkeypatch: Any):
    client = MlflowClient(store_uri)
    run_id, log_batch = run_with_model(client, 0.8), MlflowClient.log_batch

    def without_models(self: MlflowClient, run_id: str, metrics: list[Metric]) -> None:
        log_batch(self, run_id, [Metric(one.key, one.value, one.timestamp, one.step) for one in metrics])

    monkeypatch.setattr(MlflowClient, "log_batch", without_models)
    assert link_metrics(client, run_id) == "it took them for the run alone"


def test_what_is_missing_is_said_in_one_line_and_once():
    client = MlflowClient("http://user:secret@127.0.0.1:1")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(2):
            say_unlinked(client, "it does not know them")
    line = "the MLflow store http://user:***@127.0.0.1:1 links no metrics to models (it does not know them)"
    assert [str(one.message) for one in caught] == [f"{line}: runs have them, the list of models does not"]
