"""Whole runs: what they store, how they end, how they are resumed."""

from pathlib import Path

import mlflow
import numpy as np
import pytest
import torch
from mlflow import MlflowClient
from torch import Tensor, nn

from arelu_meta import learners, maml
from arelu_meta.data.episodes import EpisodeSampler
from arelu_meta.errors import InputError, RunError
from arelu_meta.kinds import run
from arelu_meta.kinds.execution import Execution
from arelu_meta.kinds.networks import check_forward
from arelu_meta.store.run_folder import RunFolder
from tests.tiny_runs import MLFLOW_WARNINGS, interrupted_after, metric_history, tiny_spec

pytestmark = MLFLOW_WARNINGS
RESUME = Execution(resume=True)


def only_run(uri: str) -> mlflow.entities.Run:
    client = MlflowClient(uri)
    found = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
    assert len(found) == 1
    return found[0]


def stored_episodes(uri: str, run_id: str) -> np.ndarray:
    mlflow.set_tracking_uri(uri)
    text = mlflow.artifacts.load_text(f"runs:/{run_id}/test_episodes.csv")
    return np.array([[float(cell) for cell in line.split(",")[1:]] for line in text.splitlines()[1:]])


@pytest.mark.parametrize("method", learners.names())
def test_every_method_runs_from_its_spec(store_uri, method):
    result = run(tiny_spec(method=method, iterations=2))
    columns = 2 if learners.entry(method).by_gradient else 11 if method == "pmf" else 1  # its ten steps of fine-tuning
    assert result.episodes.shape == (5, columns)
    assert only_run(store_uri).info.status == "FINISHED"
    assert np.allclose(stored_episodes(store_uri, result.run_id), result.episodes, atol=1e-6)
    trained = learners.entry(method).needs_training
    assert ("train/loss" in metric_history(store_uri, result.run_id)) == trained
    assert result.selected_iteration == (2 if trained else 0)


@pytest.mark.usefixtures("store")
def test_floors_keep_their_random_weights():
    from arelu_meta.kinds.few_shot.settings import build_learner

    spec = tiny_spec(method="features")
    fresh = build_learner(spec, 1, (28, 28)).network.state_dict()
    trained = run(spec).network.state_dict()
    assert all(torch.equal(value, trained[name]) for name, value in fresh.items())


def test_the_best_on_validation_is_tested(store_uri):
    """The iteration chosen is the first with the highest stored validation accuracy."""
    result = run(tiny_spec(iterations=8, outer_lr=0.05))
    scores = metric_history(store_uri, result.run_id)["validation/accuracy"]
    assert [step for step, _ in scores] == [2, 4, 6, 8]
    assert result.selected_iteration == max(scores, key=lambda entry: (entry[1], -entry[0]))[0]


RESUMED = [
    {},
    {"protocol": "paper"},
    {"method": "mamlpp", "activation": "rrelu", "normalise": "unit", "adapt": "head+lora"},
]


@pytest.mark.parametrize("flags", RESUMED, ids=str)
def test_a_resumed_run_is_the_uninterrupted_one_bit_by_bit(store_uri, monkeypatch, tmp_path, flags):
    """Stopped in iteration 5, after the checkpoint of 4: weights, episodes and the store are as if never stopped."""
    spec = tiny_spec(**flags)
    monkeypatch.setenv("ARELU_META_RUNS", str(tmp_path / "other"))
    whole = run(spec)
    monkeypatch.setenv("ARELU_META_RUNS", str(tmp_path / "runs"))
    with pytest.raises(KeyboardInterrupt):
        run(spec, bar=interrupted_after(5))
    checkpoint = RunFolder(spec).load()
    assert checkpoint["training"]["done"] == 4
    stopped = checkpoint["run_id"]
    assert MlflowClient(store_uri).get_run(stopped).info.status == "KILLED"
    resumed = run(spec, RESUME)
    assert resumed.run_id == stopped != whole.run_id
    assert MlflowClient(store_uri).get_run(stopped).info.status == "FINISHED"
    assert np.array_equal(resumed.episodes, whole.episodes)
    assert resumed.selected_iteration == whole.selected_iteration
    for name, value in whole.network.state_dict().items():
        assert torch.equal(value, resumed.network.state_dict()[name]), name
    one, other = metric_history(store_uri, whole.run_id), metric_history(store_uri, resumed.run_id)
    assert [step for step, _ in other["train/loss"]] == [1, 2, 3, 4, 5, 6]
    for key in one:
        assert [step for step, _ in other[key]] == [step for step, _ in one[key]], key
        if not key.endswith("/seconds"):
            assert other[key] == one[key], key


def test_resume_without_a_checkpoint_starts_and_without_the_flag_starts_anew(store_uri):
    with pytest.raises(KeyboardInterrupt):
        run(tiny_spec(), RESUME, bar=interrupted_after(5))
    first = RunFolder(tiny_spec()).load()["run_id"]
    result = run(tiny_spec())
    assert result.run_id != first
    assert len(metric_history(store_uri, result.run_id)["train/loss"]) == 6


def test_a_finished_run_is_left_alone(store_uri):
    first, again = run(tiny_spec()), run(tiny_spec(), RESUME)
    assert again.run_id != first.run_id
    assert np.array_equal(again.episodes, first.episodes)
    for key, values in metric_history(store_uri, first.run_id).items():
        assert len(values) == len(metric_history(store_uri, again.run_id)[key]), key


def test_a_deleted_run_is_resumed_as_a_new_one(store_uri):
    with pytest.raises(KeyboardInterrupt):
        run(tiny_spec(), bar=interrupted_after(5))
    stopped = RunFolder(tiny_spec()).load()["run_id"]
    MlflowClient(store_uri).delete_run(stopped)
    assert run(tiny_spec(), RESUME).run_id != stopped


@pytest.mark.usefixtures("store")
def test_a_run_whose_store_is_gone_is_resumed_in_the_new_one(monkeypatch, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tiny_spec(), bar=interrupted_after(5))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/new.db")
    assert run(tiny_spec(), RESUME).episodes.shape == (5, 2)


def break_the_pixels_of_batch(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make episode 1 of a training batch hold an infinite pixel: its inner loss is not finite."""
    original, drawn = EpisodeSampler.episodes, []

    def episodes(self: EpisodeSampler, numbers: Tensor):
        batch = original(self, numbers)
        if self.queries == 2:  # training
            drawn.append(1)
            if len(drawn) == number + 1:  # the first ones are what the run prepares with
                batch.support_x[1, 0] = float("inf")
        return batch

    monkeypatch.setattr(EpisodeSampler, "episodes", episodes)


def test_a_loss_that_is_not_finite_fails_the_run_and_keeps_the_last_checkpoint(store_uri, monkeypatch):
    break_the_pixels_of_batch(5, monkeypatch)
    with pytest.raises(RunError, match="the query loss is nan at iteration 5, episode 1 of the batch"):
        run(tiny_spec())
    found = only_run(store_uri)
    assert found.info.status == "FAILED"
    checkpoint = RunFolder(tiny_spec()).load()
    assert (checkpoint["training"]["done"], checkpoint["run_id"]) == (4, found.info.run_id)
    assert all(value.isfinite().all() for value in checkpoint["state"].values())


FLAGS = "--task digits --ways 2 --queries 2 --test-queries 3 --iterations 6 --meta-batch 3 --inner-steps 1"
FLAGS += " --test-episodes 5 --validation-episodes 4 --validate-every 2"


@pytest.mark.usefixtures("store")
def test_an_interrupted_command_says_how_it_goes_on(monkeypatch, capsys):
    """Before the first checkpoint there is nothing to go on from: the run begins again."""
    lines = []
    for steps in (1, 5):
        monkeypatch.setattr("arelu_meta.console.progress.shown", interrupted_after(steps))
        assert maml.main(FLAGS.split()) == 130
        lines.append(capsys.readouterr().err.splitlines()[-2:])
    assert lines[0][-1] == "interrupted"
    assert lines[1] == [f"to resume: python -m arelu_meta.maml {FLAGS} --resume", "interrupted"]
    assert not any("to resume" in line for line in lines[0])


@pytest.mark.usefixtures("store")
def test_the_command_says_it_in_one_line_and_exit_code_1(monkeypatch, capsys):
    break_the_pixels_of_batch(5, monkeypatch)
    assert maml.main(FLAGS.split()) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert lines[-1].startswith("error: the query loss is nan at iteration 5, episode 1 of the batch; lower --inner-lr")
    assert not any("Traceback" in line for line in lines)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--method meta_sgd --engine higher", "method 'meta_sgd' does not run on engine 'higher'; use --engine func"),
        ("--method mamlpp --engine learn2learn", "method 'mamlpp' does not run on engine 'learn2learn'"),
        ("--inner-optimizer adam", "inner optimizer 'adam' runs on engine 'higher', not 'func'"),
        ("--method malm", "unknown method 'malm'; did you mean 'maml'?"),
    ],
)
def test_pairs_that_do_not_exist_are_one_line_and_exit_code_2(store_uri, capsys, flags, message):
    assert maml.main([*FLAGS.split(), *flags.split()]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {message}")
    assert error.count("\n") == 1
    assert not MlflowClient(store_uri).search_runs(["0"])
    assert not Path("runs").exists()


@pytest.mark.parametrize("flags", ["--engine higher --inner-optimizer adam", "--engine learn2learn --shots 2"])
@pytest.mark.usefixtures("store")
def test_other_engines_by_the_command(capsys, flags):
    assert maml.main([*FLAGS.split(), *flags.split()]) == 0
    assert "test accuracy" in capsys.readouterr().out


class Counter(nn.Module):
    """Counts its calls in a buffer, in one of several ways."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1), persistent=how != "hidden")
        self.how, self.norm = how, nn.BatchNorm2d(1)

    def forward(self, x: Tensor) -> Tensor:
        if self.how in ("in place", "hidden"):
            self.calls += 1
        elif self.how == "anew":
            self.calls = self.calls + 1
        elif self.how == "grows":
            self.calls = torch.cat([self.calls, self.calls])
        elif self.how == "late" and not hasattr(self, "last"):
            self.register_buffer("last", x.mean())
        return self.norm(x)


@pytest.mark.parametrize("how", ["in place", "hidden", "anew", "grows", "late"])
def test_a_forward_pass_that_changes_a_buffer_is_refused(how):
    name = "last" if how == "late" else "calls"
    with pytest.raises(InputError, match=f"forward pass changes its buffer '{name}', so one episode would leak"):
        check_forward(Counter(how), torch.zeros(2, 1, 3, 3))


def test_running_statistics_may_change_and_are_put_back():
    """A batch norm that keeps running statistics is what `norm=running` of prototypes is."""
    network = Counter("not at all")
    check_forward(network, torch.ones(2, 1, 3, 3))
    assert network.norm.running_mean.item() == 0.0
    assert network.norm.num_batches_tracked.item() == 0
