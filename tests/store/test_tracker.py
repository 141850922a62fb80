import inspect
from collections.abc import Callable
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Metric

from arelu_meta.store.sending import Sender
from arelu_meta.store.tracker import NoTracker, Tracker
from arelu_meta.store.tracking import track


def open_run(spec: Any):
    return track(spec, experiment="tests", name="a run", tags={})


@pytest.mark.usefixtures("store")
def test_metrics_go_in_batches(tiny_spec: Callable, monkeypatch: pytest.MonkeyPatch):
    """1,200 values, 3 at a time, then one flush: requests of 500, 500 and 200; the flush after it sends nothing."""
    sent: list[list[Metric]] = []
    log_batch = MlflowClient.log_batch

    def noted(self: MlflowClient, run_id: str, metrics: Any = (), **others: Any) -> None:
        sent.extend([list(metrics)] if metrics else [])
        log_batch(self, run_id, metrics=metrics, **others)

    monkeypatch.setattr(MlflowClient, "log_batch", noted)
    with open_run(tiny_spec()) as tracker:
        for step in range(400):
            tracker.log_metrics({"a": step, "b": step, "c": step}, step)
        tracker.flush()
        tracker.flush()
    assert [len(batch) for batch in sent] == [500, 500, 200]
    assert [(metric.key, metric.value, metric.step) for batch in sent for metric in batch] == [
        (key, step, step) for step in range(400) for key in "abc"
    ]


def test_no_tracker_takes_every_call():
    """Each method of a tracker, with its own number of arguments, and without a client."""
    for name, method in vars(Tracker).items():
        if callable(method) and not name.startswith("_"):
            parameters = list(inspect.signature(method).parameters.values())[1:]
            positional = [None for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
            named = {one.name: None for one in parameters if one.kind is one.KEYWORD_ONLY}
            assert getattr(NoTracker(), name)(*positional, **named) is None, name


@pytest.mark.usefixtures("store")
def test_ctrl_c_while_the_store_takes_the_end_of_a_run_ends_the_waiting_alone(
    tiny_spec: Callable, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def interrupted(*_: Any, **__: Any) -> bool:
        raise KeyboardInterrupt

    with open_run(tiny_spec()) as tracker:
        monkeypatch.setattr(Sender, "leave", interrupted)
    assert f"run {tracker.run_id} is not yet in the MLflow store" in capsys.readouterr().err
