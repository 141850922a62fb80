"""The runs of an experiment that plain MLflow calls made, as a table."""

import gc
import math
import shutil
from pathlib import Path

import pandas as pd
import pytest
from mlflow import MlflowClient

from arelu_meta.errors import InputError
from arelu_meta.store import run_tables
from arelu_meta.store.run_tables import runs_of_experiment
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = MLFLOW_WARNINGS


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, new_store: Path) -> str:
    """A store with an experiment `plain`: three runs with an `lr` (one failed), one with a tag, one with neither."""
    path = shutil.copy(new_store, tmp_path_factory.mktemp("plain") / "mlflow.db")
    client = MlflowClient(f"sqlite:///{path}")
    experiment = client.create_experiment("plain")
    for number, (params, status) in enumerate(
        [({"lr": "0.1", "seed": "0"}, "FINISHED"), ({"lr": "0.01", "seed": "0"}, "FINISHED"), ({"lr": "1"}, "FAILED")]
    ):
        run = client.create_run(experiment, start_time=number + 1).info.run_id
        for key, value in params.items():
            client.log_param(run, key, value)
        for step, value in enumerate([3.0, 1.0, 2.0] if number == 0 else [math.nan] if number == 1 else []):
            client.log_metric(run, "val/loss", value, step=step)
        client.set_terminated(run, status, end_time=number + 1000)
    client.create_run(experiment, tags={"model": "resnet"})
    client.create_run(experiment)
    client.create_run(experiment, tags={"model": "resnet", run_tables.JUDGEMENT: "0123"})
    return f"sqlite:///{path}"


@pytest.fixture(autouse=True)
def here(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)


def test_runs_that_have_the_arm(monkeypatch: pytest.MonkeyPatch):
    """A metric that is NaN is there, one that was not logged is None; pages of one give the same."""
    monkeypatch.setitem(run_tables.run_pages.__kwdefaults__, "size", 1)
    table, said = runs_of_experiment("plain", arm="param:lr", metric="val/loss")
    table = table.set_index("params.lr").loc[["0.1", "0.01", "1"]]
    assert list(table["status"]) == ["FINISHED", "FINISHED", "FAILED"]
    assert list(table["params.seed"].iloc[:2]) == ["0", "0"]
    first, second, third = table["metrics.val/loss"]
    assert (first, math.isnan(second), third) == (2.0, True, None)
    assert said == ["Runs logged val/loss at several steps, up to 3 of them; of each run the last value counts."]
    assert gc.isenabled()


@pytest.mark.parametrize(("value", "expected"), [("min", 1.0), ("max", 3.0), ("mean", 2.0)])
def test_one_of_several_values(value: str, expected: float):
    table, said = runs_of_experiment(
        "plain", arm="lr", metric="metric:val/loss", value=value, where="params.lr = '0.1'"
    )
    assert list(table["metrics.val/loss"]) == [expected]
    assert f"the {value} value counts" in said[0]


@pytest.mark.parametrize("arm", ["lr", "tag:model"])
def test_a_database_is_read_as_mlflow_reads_it(arm: str, monkeypatch: pytest.MonkeyPatch):
    """The same table, column by column and in the same order."""
    table, said = runs_of_experiment("plain", arm=arm, metric="val/loss")
    monkeypatch.setattr(run_tables, "is_database", lambda _client: False)
    slow, said_slowly = runs_of_experiment("plain", arm=arm, metric="val/loss")
    pd.testing.assert_frame_equal(table, slow[table.columns])
    assert set(table) == set(slow)
    assert said == said_slowly


def test_an_arm_may_be_a_tag_and_judgements_are_no_runs():
    table, _ = runs_of_experiment("plain", arm="model", metric="val/loss")
    assert list(table["tags.model"]) == ["resnet"]
    assert "metrics.val/loss" not in table


@pytest.mark.parametrize(
    ("experiment", "given", "message"),
    [
        ("plian", {"arm": "lr"}, "unknown experiment 'plian'; did you mean 'plain'?"),
        ("plain", {"arm": "param:lrr"}, "unknown param 'lrr'; did you mean 'lr'?"),
        ("plain", {"arm": "modle"}, "unknown param or tag 'modle'; did you mean 'model'?"),
        ("Default", {"arm": "lr"}, "the experiment has no runs; log some"),
        ("plain", {"arm": "lr", "where": "lr is 3"}, "MLflow refuses the condition"),
        ("plain", {"arm": "lr", "value": "best"}, "unknown value 'best'"),
    ],
)
def test_wrong_input(experiment: str, given: dict[str, str], message: str):
    with pytest.raises(InputError) as refused:
        runs_of_experiment(experiment, metric="val/loss", **given)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_experiment_by_its_id(address: str):
    experiment = MlflowClient(address).get_experiment_by_name("plain").experiment_id
    assert len(runs_of_experiment(experiment, arm="lr", metric="val/loss")[0]) == 3


def test_no_store_is_made_by_asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    with pytest.raises(InputError, match="unknown experiment 'plain'; known: none"):
        runs_of_experiment("plain", arm="lr", metric="val/loss")
    assert list(tmp_path.iterdir()) == []
