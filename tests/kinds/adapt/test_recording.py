"""What an adaptation leaves in the store: a run for each method and draw, and a view that groups them by method."""

from dataclasses import replace

import mlflow
import pytest
from mlflow import MlflowClient

from arelu_meta.kinds.adapt.recording import DRAWS_OF, record_adaptation, view_key
from arelu_meta.kinds.adapt.result import AdaptResult
from arelu_meta.store.saved_view import PREFIX, UNLISTED
from arelu_meta.store.tracking import open_run
from tests.kinds.adapt.test_result import outcome, result
from tests.store.test_saved_view import decoded
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = [MLFLOW_WARNINGS, pytest.mark.usefixtures("store")]


def two_draws() -> AdaptResult:
    found = result([outcome({"knn": 4, "linear": 1}, "linear"), outcome({"knn": 0, "linear": 3}, "knn")])
    return replace(found, view=view_key(found.spec))


def recorded(found: AdaptResult) -> MlflowClient:
    with open_run("tests", name="adapt", tags={}) as tracker:
        record_adaptation(found, tracker)
    return MlflowClient()


def test_the_view_shows_the_runs_of_its_adaptation_by_method():
    """The condition of the view is asked of the store: it gives two draws of two methods, and no other run."""
    client = recorded(two_draws())
    recorded(replace(two_draws(), seconds=2.0))  # the same spec once more: the view is of the later one
    experiment = client.get_experiment_by_name("tests")
    state = decoded(experiment.tags[PREFIX + view_key(two_draws().spec)])
    assert state["groupBy"]["groupByKeys"] == [{"mode": "tag", "groupByData": "method"}]
    runs = client.search_runs([experiment.experiment_id], state["searchFilter"])
    values = {(run.data.tags["method"], run.data.tags["draw"]): run.data.metrics for run in runs}
    accuracies = {place: metrics["test/accuracy"] for place, metrics in values.items()}
    assert len(runs) == 4
    assert accuracies == {("knn", "0"): 0.6, ("linear", "0"): 0.9, ("knn", "1"): 1.0, ("linear", "1"): 0.7}
    charted = {chart.get("metricKey") or chart["xaxis"]["key"] for chart in state["compareRunCharts"]}
    assert all(charted <= set(metrics) for metrics in values.values())
    assert {run.data.tags["chosen"] for run in runs if run.data.tags["draw"] == "1"} == {"True", "False"}
    parents = client.search_runs([experiment.experiment_id], "attributes.run_name = 'adapt'")
    assert len({run.data.tags[DRAWS_OF] for run in runs}) == 1
    assert len(parents) == 2


def test_the_printed_link_opens_the_view():
    found = two_draws()
    link = f"/#/experiments/1/runs?workflowType=machine_learning&compareRunsMode=CHART&viewStateShareKey={found.view}"
    assert link in found.report()


@pytest.mark.parametrize(("version", "lines"), [("3.13.0", 1), ("3.15.0", 0)])
def test_that_an_older_ui_does_not_list_the_view_is_said_in_one_line(
    version: str, lines: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(mlflow, "__version__", version)
    found = two_draws()
    assert found.report().count(UNLISTED) == lines
    assert UNLISTED not in replace(found, view="").report()


def test_a_single_answer_has_nothing_beside_it():
    found = result([outcome({"linear": 1}, "linear")])
    assert view_key(found.spec) == ""
    client = recorded(found)
    experiment = client.get_experiment_by_name("tests")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "adapt"
    assert not [tag for tag in experiment.tags if tag.startswith(PREFIX)]
