"""What is collected of runs, and that the metrics an experiment may name are those that runs leave in the store."""

from typing import Any

import pytest

from arelu_meta.analysis.speed import time_unit
from arelu_meta.comparison.collect import is_share, results
from arelu_meta.comparison.experiment import Experiment
from arelu_meta.comparison.runner import run_comparison
from arelu_meta.kinds import run
from arelu_meta.kinds.execution import TrainingExecution
from arelu_meta.kinds.sections import Spec
from arelu_meta.store.tracker import Tracker
from tests.comparison import tiny
from tests.supervised_runs import classify_spec, finetune_spec, no_model, segment_spec, transfer_spec
from tests.tiny_images import DIGITS
from tests.tiny_runs import MLFLOW_WARNINGS, tiny_spec

__all__ = ["no_model"]  # a fixture

KINDS = {
    "few_shot": tiny_spec,
    "classify": classify_spec,
    "finetune": finetune_spec,
    "transfer": transfer_spec,
    "segment": segment_spec,
}


def spec_of(kind: str, protocol: str) -> Spec:
    if kind == "few_shot":
        return tiny_spec(protocol=protocol)
    make: Any = KINDS[kind]
    return make(evaluation={"protocol": protocol})


@pytest.mark.usefixtures("store", "no_model")
@pytest.mark.parametrize("protocol", ["sound", "paper"])
@pytest.mark.parametrize("kind", KINDS)
def test_measures_are_logged(kind: str, protocol: str, monkeypatch: pytest.MonkeyPatch):
    """Every one of them by a real run, and nothing is left out that could be judged; shares lie between 0 and 1."""
    logged: dict[str, float] = {}
    monkeypatch.setattr(Tracker, "log_metrics", lambda _self, values, _step=0: logged.update(values))
    monkeypatch.setattr(Tracker, "log_figure", lambda *_: None)
    monkeypatch.setattr(Tracker, "log_few_shot_model", lambda *_, **__: None)
    spec = spec_of(kind, protocol)
    run(spec)
    of_five_classes = {name for name in spec.metrics() if name.endswith("top5")} - set(logged)
    never_reached = {name for name in spec.metrics() if time_unit(name)} - set(logged)
    assert spec.metrics() - of_five_classes - never_reached <= set(logged)
    beside = {name for name in set(logged) - spec.metrics() if not name.startswith(("activation/", "layers/"))}
    assert {name.rpartition("/")[2] for name in beside} <= {
        "n",
        "seconds",
        "images_per_second",
        "accuracy_ci95_low",
        "accuracy_ci95_high",
    }
    assert all(0 <= value <= 1 for name, value in logged.items() if name in spec.metrics() and is_share(name))
    no_shares = {"loss", "loss_by_step", "validation_loss", "gradient_norm", "collapsed"}
    no_shares |= {"largest_episode_norm", "clipped_episodes"}
    others = {name.rpartition("/")[2] for name in spec.metrics() if not is_share(name) and not time_unit(name)}
    assert others <= no_shares


def test_what_is_not_trained_or_not_watched_is_not_logged():
    """Prototypes of pixels have no training; without a choice of epoch there is no validation."""
    tested = {"test/accuracy", "test/accuracy_by_inner_step"}
    assert tiny_spec(method="centroid").metrics() == tested
    last = classify_spec(evaluation={"select": "last"})
    assert {name for name in last.metrics() if name.startswith("validation/")} == set()
    assert segment_spec(evaluation={"select": "last"}).metrics() == {
        "train/loss",
        "train/loss_by_step",
        "test/dice",
    }


@MLFLOW_WARNINGS
@pytest.mark.usefixtures("store", "no_model")
def test_metrics_of_single_layers_stay_out_of_the_table():
    """They are there to look at in MLflow: nine columns for a network of three layers."""
    experiment = Experiment(
        experiment="mine",
        summary="s",
        title="t",
        question="q",
        task="digits_classify",
        seeds=(0,),
        settings={"data.dataset": DIGITS, "training.epochs": 3, "training.batch_size": 32, "training.lr": 0.3},
        grid={"network.activation": ("relu",)},
    )
    done = run_comparison(experiment, workers=tiny.InProcess(), execution=TrainingExecution(log_layers=True))
    assert done.missing == ()
    (run,) = done.parent.ended_cells()
    assert any(name.startswith("layers/") for name in run.data.metrics)
    table = results("mine")
    assert "test/accuracy" in table.columns
    losses = done.parent.client.get_metric_history(run.info.run_id, "validation/loss")
    assert table["validation/loss"].tolist() == [min(entry.value for entry in losses)]  # the best, as of accuracies
    assert [name for name in table.columns if name.startswith(("layers/", "activation/", "system/"))] == []
    assert "layers/" not in (done.folder / "runs.csv").read_text()


@pytest.mark.slow
@MLFLOW_WARNINGS
@pytest.mark.usefixtures("store")
def test_a_comparison_by_an_error():
    """Less is better: the best validation is the smallest, the best run too, and episodes are not in per cent."""
    experiment = Experiment(
        experiment="waves",
        summary="s",
        title="t",
        question="q",
        task="sinusoid",
        seeds=(0, 1),
        settings={
            "training": {"iterations": 40, "meta_batch": 4, "test_steps": 2},
            "evaluation": {"test_episodes": 6, "validation_episodes": 3, "validate_every": 10},
        },
        grid={"network.activation": ("relu", "tanh")},
        report={"metric": "test/mse", "other_metrics": ("test/mse_step_1",), "validation_metric": "validation/mse"},
    )
    done = run_comparison(experiment, workers=tiny.InProcess())
    findings = done.report.analysis.findings
    assert not findings.higher_is_better
    assert findings.chance is None
    assert findings.units == {}
    for row in findings.runs.to_dict("records"):
        history = done.parent.client.get_metric_history(row["run_id"], "validation/mse")
        assert len(history) == 4
        assert row["validation/mse"] == min(entry.value for entry in history)
        assert findings.episodes[row["run_id"]][:, -1].mean() == pytest.approx(row["test/mse"], rel=1e-4)
    relu = done.report.analysis.fixed[0].arm("relu")
    assert relu.best == min(relu.results)
