"""Judgements of experiments: our own sweep, plain MLflow calls, scikit-learn's autologging, an Optuna study."""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient
from mlflow.entities import Metric, Param
from scipy import stats

import arelu_meta
from arelu_meta.comparison.cells import expand
from arelu_meta.comparison.experiment import read_experiment
from arelu_meta.comparison.overview import Overview
from arelu_meta.comparison.runner import Plan, run_plan
from arelu_meta.comparison.saved_view import VIEW
from arelu_meta.comparison.worker import CellOutcome, Job
from arelu_meta.errors import InputError
from arelu_meta.store.connection import open_store
from arelu_meta.store.saved_view import PREFIX
from tests.comparison import tiny
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = MLFLOW_WARNINGS


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, new_store: Path) -> str:
    return f"sqlite:///{shutil.copy(new_store, tmp_path_factory.mktemp('judged') / 'mlflow.db')}"


@pytest.fixture(autouse=True)
def here(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    monkeypatch.setenv("ARELU_META_RUNS", str(tmp_path / "runs"))
    return


class Recorded:
    """Workers that train nothing: each cell is recorded as a run records itself, with a made-up accuracy."""

    count = 1

    def run(self, jobs: Sequence[Job], overview: Overview) -> Iterator[CellOutcome]:
        random = np.random.default_rng(0)
        for job in jobs:
            client, experiment_id = open_store(job.execution.experiment)
            tags = {**job.execution.tags, "spec_hash": job.cell.spec.identity}
            run = client.create_run(experiment_id, tags=tags).info.run_id
            settings = [Param(key, str(job.cell.spec.flat()[key])) for key in ("activation", "seed")]
            level = {"relu": 0.8, "arelu": 0.86, "elu": 0.81}[job.cell.values["activation"]]
            client.log_batch(run, [Metric("test/accuracy", level + random.normal(0, 0.02), 0, 0)], settings)
            client.set_terminated(run)
            outcome = CellOutcome(job.cell, run_id=run)
            overview.on_end(outcome)
            yield outcome


def test_a_sweep_of_ours_gets_the_numbers_of_its_report(tmp_path: Path):
    """The report has per cent, the runs have shares. `arelu` is corrected together with `elu` in both."""
    tiny.write(
        tmp_path,
        ('["relu", "arelu"]', '["relu", "arelu", "elu"]'),
        ("seeds = [0, 1]", "seeds = [0, 1, 2]"),
        ('validation_metric = "validation/accuracy"', "margin = 1.0"),
    )
    experiment = read_experiment("tiny.toml")
    done = run_plan(Plan(experiment=experiment, cells=expand(experiment)), nullcontext(Recorded()))
    found = arelu_meta.judge("tiny", arm="param:activation", metric="test/accuracy", baseline="relu", margin=0.01)
    (reported,), (judged,) = done.report.analysis.primary, found.report.analysis.primary
    assert [arm.name for arm in judged.arms] == [arm.name for arm in reported.arms]
    for own, other in zip(judged.arms, reported.arms, strict=True):
        assert 100 * own.estimate.mean == pytest.approx(other.estimate.mean)
        assert (own.estimate.n, own.outcome) == (3, other.outcome)
        if own.test:
            assert (own.test.p, own.test.p_equivalence) == pytest.approx((other.test.p, other.test.p_equivalence))
            interval, expected = own.test.interval, other.test.interval
            assert (100 * interval.low, 100 * interval.high) == pytest.approx((expected.low, expected.high))
    assert found.report.missing == ()
    notes = [
        done.parent.client.get_run(done.parent.run_id).data.tags["mlflow.note.content"],
        done.parent.client.get_experiment(done.parent.experiment_id).tags["mlflow.note.content"],
    ]
    assert all(f"{done.report.verdicts[0].sentences}**" in note and "| arelu |" in note for note in notes)
    assert PREFIX + VIEW in done.parent.client.get_experiment(done.parent.experiment_id).tags


def test_plain_mlflow_calls_and_the_run_that_keeps_the_judgement(address: str):
    """Seed by seed a difference of 1, 2 and 3; what is logged is no run to judge, and is replaced by the next look."""
    client = MlflowClient(address)
    experiment = client.create_experiment("plain")
    for number, (arm, seed, value) in enumerate(
        [("a", 0, 5.0), ("a", 1, 6.0), ("a", 2, 7.0), ("b", 0, 6.0), ("b", 1, 8.0), ("b", 2, 10.0)]
    ):
        run = client.create_run(experiment, start_time=number + 1, tags={"model": arm}).info.run_id
        client.log_param(run, "seed", seed)
        client.log_metric(run, "score", value)
        client.set_terminated(run)
    found = arelu_meta.judge("plain", arm="tag:model", metric="score")
    test = stats.ttest_1samp([1.0, 2.0, 3.0], 0.0)
    answer = found.as_dict()
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    arm = next(arm for arm in answer["arms"] if arm["model"] == "b")
    assert arm["p_t_corrected"] == pytest.approx(test.pvalue)
    assert (answer["answer"], answer["exit_code"], answer["baseline"]) == ("no difference detectable", 3, "a")
    # 4 pairs have 75 % power to find two deviations, 5 have 91 %: two beyond the three there are.
    assert (arm["difference"], arm["difference_sd"], arm["further_seeds"]) == (2.0, 1.0, 2)
    run_id = found.log("plain")
    assert arelu_meta.judge("plain", arm="tag:model", metric="score").log("plain") == run_id
    stored = client.get_run(run_id)
    assert stored.info.status == "FINISHED"
    assert stored.data.tags["judgement.answer"] == "no difference detectable"
    assert stored.data.metrics["b/score_difference"] == 2.0
    files = {entry.path for entry in client.list_artifacts(run_id, "report")}
    assert {"report/report.html", "report/report.md", "report/judgement.json"} <= files


@pytest.mark.slow
def test_autologged_runs_of_scikit_learn(address: str, monkeypatch: pytest.MonkeyPatch):
    from sklearn.datasets import load_digits
    from sklearn.ensemble import RandomForestClassifier

    images, labels = load_digits(return_X_y=True)
    mlflow.set_tracking_uri(address)
    mlflow.set_experiment("forests")
    mlflow.sklearn.autolog(log_models=False, log_datasets=False, log_post_training_metrics=True, silent=True)
    scores: dict[int, list[float]] = {1: [], 12: []}
    try:
        for depth, own in scores.items():
            for seed in range(3):
                with mlflow.start_run():
                    model = RandomForestClassifier(3, max_depth=depth, random_state=seed).fit(
                        images[:300], labels[:300]
                    )
                    own.append(model.score(images[300:], labels[300:]))
    finally:
        mlflow.sklearn.autolog(disable=True)
        mlflow.set_tracking_uri(None)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)  # which MLflow has taken out
    metric = "RandomForestClassifier_score_unknown_dataset"  # as autologging calls it where it sees no name
    found = arelu_meta.judge("forests", arm="max_depth", seed="random_state", metric=metric)
    test = found.report.analysis.primary[0].arm("12").test
    assert test.p == pytest.approx(stats.ttest_rel(scores[12], scores[1]).pvalue)
    assert str(found.answer) == "different"
    with pytest.raises(InputError, match="unknown column 'random_stat'; did you mean 'random_state'"):
        arelu_meta.judge("forests", arm="max_depth", seed="random_stat", metric=metric)


def test_a_study_of_optuna(address: str):
    """Runs in the shape that `MLflowCallback` gives them, made by hand: a grid over arm and seed, one trial pruned."""
    client = MlflowClient(address)
    experiment = client.create_experiment("study", tags={"direction": "MINIMIZE"})
    for number in range(8):
        optimizer, seed = ("sgd", "adam")[number % 2], number // 2
        tags = {"number": str(number), "direction": "MINIMIZE", "state": "COMPLETE", "mlflow.runName": str(number)}
        tags |= {"optimizer_distribution": "CategoricalDistribution(choices=('sgd', 'adam'))"}
        run = client.create_run(experiment, start_time=number + 1, tags=tags).info.run_id
        client.log_batch(run, params=[Param("optimizer", optimizer), Param("seed", str(seed))])
        if number < 7:
            client.log_metric(run, "value", seed + (0.5 + 0.01 * seed) * (optimizer == "adam"))
        client.set_terminated(run)
    found = arelu_meta.judge("study", arm="param:optimizer", metric="value", lower_is_better=True)
    assert found.report.verdicts[0].sentences.startswith("adam is detectably worse than sgd on value: +0.51")
    assert found.report.missing == ("optimizer = adam: no finished run of seed 3",)
    assert "Runs without value are left out: 1." in found.report.notes


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Optuna, on what is experimental
def test_a_study_that_optuna_itself_logged(address: str):
    """A grid of arm and seed has the p of a paired t test. Optuna is no dependency: pip install optuna-integration."""
    optuna = pytest.importorskip("optuna")
    callbacks = pytest.importorskip("optuna_integration.mlflow")
    noise = {
        ("sgd", 0): 0.02,
        ("sgd", 1): 0.05,
        ("sgd", 2): 0.01,
        ("adam", 0): 0.3,
        ("adam", 1): 0.36,
        ("adam", 2): 0.27,
    }
    grid = {"optimizer": ["sgd", "adam"], "seed": [0, 1, 2]}

    def objective(trial: Any) -> float:
        optimizer, seed = trial.suggest_categorical("optimizer", grid["optimizer"]), trial.suggest_int("seed", 0, 2)
        return noise[optimizer, seed]

    study = optuna.create_study(study_name="real study", sampler=optuna.samplers.GridSampler(grid))
    logged = callbacks.MLflowCallback(tracking_uri=address, metric_name="loss")
    study.optimize(objective, n_trials=6, callbacks=[logged])
    found = arelu_meta.judge("real study", arm="param:optimizer", metric="loss", baseline="sgd")
    values = [[noise[name, seed] for seed in range(3)] for name in ("adam", "sgd")]
    test = found.report.analysis.primary[0].arm("adam").test
    assert test.p == pytest.approx(stats.ttest_rel(*values).pvalue)
    assert found.report.verdicts[0].sentences.startswith("adam is detectably worse than sgd on loss")


def test_a_file_and_a_data_frame_give_the_same():
    table = pd.DataFrame({"lr": [0.1] * 3 + [0.01] * 3, "seed": [0, 1, 2] * 2, "acc": [80, 82, 84, 85, 88, 89.5]})
    table.to_csv("runs.csv", index=False)
    one, other = arelu_meta.judge(table, arm="lr", metric="acc"), arelu_meta.judge("runs.csv", arm="lr", metric="acc")
    assert str(one).partition("\n")[2] == str(other).partition("\n")[2]
    assert (one.exit_code, one.source, other.source) == (0, "", "runs.csv")
    assert {path.name for path in other.write("out")} >= {"report.html", "report.md", "runs.csv"}
    assert "what these seeds can find" in Path("out/report.md").read_text()


@pytest.mark.parametrize(
    ("data", "given", "message"),
    [
        ("none.csv", {}, "cannot read none.csv: No such file"),
        (pd.DataFrame({"lr": [1], "seed": [0], "acc": [1]}), {"where": "x"}, "`where` and `value` are for MLflow"),
    ],
)
def test_wrong_input(data: object, given: dict[str, str], message: str):
    with pytest.raises(InputError, match=message):
        arelu_meta.judge(data, arm="lr", metric="acc", **given)


def test_the_name_of_a_file_that_is_not_there_suggests_a_near_one():
    Path("tables").mkdir()
    Path("tables/results.csv").write_text("lr,seed,acc\n")
    with pytest.raises(InputError, match=r"No such file or directory; did you mean 'tables/results.csv'\?"):
        arelu_meta.judge("tables/result.csv", arm="lr", metric="acc")
