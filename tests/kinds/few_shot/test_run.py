"""`run(spec)`: repeatable, fair between activations, and recorded in MLflow as it was."""

import csv
import hashlib
import io
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partialmethod
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
import torch
from mlflow import MlflowClient
from scipy import integrate
from torch import Tensor

from arelu_meta import activations, data
from arelu_meta.console import progress
from arelu_meta.data import splits
from arelu_meta.data.episodes import Episode, EpisodeSampler
from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import InputError, RunError
from arelu_meta.kinds import run
from arelu_meta.kinds.execution import EpisodeExecution, Execution
from arelu_meta.kinds.few_shot import run as few_shot_run
from arelu_meta.kinds.few_shot.result import EPISODES, FewShotResult
from arelu_meta.kinds.few_shot.settings import build_learner
from arelu_meta.learners.engines.func_engine import OneByOne
from arelu_meta.learners.gradient_learner import GradientLearner
from arelu_meta.seeding import generator

SpecMaker = Callable[..., Any]
CPU = Execution(device="cpu")
PNG = b"\x89PNG\r\n\x1a\n"


class MemoryTracker:
    """Keeps what a run records; stands in for MLflow where the store is not what is tested."""

    run_id, experiment_id, uri = "run", "0", "memory"
    position = {"run_id": "run"}  # noqa: RUF012

    def __init__(self) -> None:
        self.series: dict[str, list[tuple[int, float]]] = {}
        self.artifacts: dict[str, Any] = {}

    def log_metrics(self, values: dict[str, float], step: int = 0) -> None:
        for name, value in values.items():
            self.series.setdefault(name, []).append((step, value))

    def log_text(self, content: str, path: str, _step: int | None = None) -> None:
        self.artifacts[path] = content

    log_figure = log_text

    def set_tags(self, values: dict[str, str]) -> None:
        self.artifacts |= values

    def log_split(self, split: splits.Split) -> None:
        self.artifacts["split"] = split.digest

    def log_dataset(self, images: ImageSet, context: str) -> None:
        self.artifacts[f"dataset/{context}"] = images.digest

    def log_few_shot_model(self, folder: Path, **_: Any) -> None:
        self.artifacts["model"] = sorted(path.name for path in folder.iterdir())

    def flush(self) -> None:
        pass


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[MemoryTracker]:
    """Record runs in memory; gives the list of their trackers."""
    monkeypatch.setenv("ARELU_META_RUNS", str(tmp_path / "runs"))
    trackers: list[MemoryTracker] = []

    @contextmanager
    def track(*_: Any, **__: Any) -> Iterator[MemoryTracker]:
        trackers.append(MemoryTracker())
        yield trackers[-1]

    monkeypatch.setattr("arelu_meta.kinds.session.track", track)
    return trackers


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """Note every batch of episodes the learner is given, and the weights it starts from."""
    noted: dict[str, list[Any]] = {"train": [], "test": [], "start": []}
    meta_step, accuracy_by_step = GradientLearner.meta_step, GradientLearner.accuracy_by_step

    def noting_step(self: GradientLearner, episodes: Episode, **options: Any) -> Any:
        if not noted["train"]:
            noted["start"].append({key: value.clone() for key, value in self.network.state_dict().items()})
        noted["train"].append(episodes)
        return meta_step(self, episodes, **options)

    def noting_accuracy(self: GradientLearner, episodes: Episode) -> Tensor:
        noted["test"].append(episodes)
        return accuracy_by_step(self, episodes)

    monkeypatch.setattr(GradientLearner, "meta_step", noting_step)
    monkeypatch.setattr(GradientLearner, "accuracy_by_step", noting_accuracy)
    return noted


def fingerprint(batches: list[Episode]) -> list[str]:
    return [hashlib.sha256(tensor.numpy().tobytes()).hexdigest() for batch in batches for tensor in batch.tensors()]


def same_weights(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    theirs = other.state_dict()
    return all(torch.equal(value, theirs[key]) for key, value in one.state_dict().items())


# Repeatable


@pytest.mark.parametrize(("activation", "protocol"), [("arelu", "sound"), ("rrelu", "paper")])
def test_same_seed_same_bits(tiny_spec: SpecMaker, memory: list, activation: str, protocol: str):
    spec = tiny_spec(network={"activation": activation}, evaluation={"protocol": protocol})
    first = run(spec, CPU)
    torch.rand(3)  # what others draw from the global generator shifts nothing
    second = run(spec, CPU)
    assert same_weights(first.network, second.network)
    assert np.array_equal(first.episodes, second.episodes)
    first_series, second_series = (
        {name: values for name, values in tracker.series.items() if not name.endswith("/seconds")} for tracker in memory
    )
    assert first_series == second_series


def test_long_trainings_are_recorded_at_once(tiny_spec: SpecMaker, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(few_shot_run, "RECORD_AFTER", 2)
    short, long = (run(tiny_spec(training={"iterations": count}), EpisodeExecution(device="cpu")) for count in (3, 4))
    assert short.recording_seconds == 0 < long.recording_seconds


def test_recorded_steps_give_the_same_bits(tiny_spec: SpecMaker, memory: list, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(GradientLearner, "record_steps", partialmethod(GradientLearner.record_steps, after=1))
    spec = tiny_spec(training={"iterations": 4})
    recorded, plain = (run(spec, EpisodeExecution(device="cpu", record_steps=record)) for record in (True, False))
    assert same_weights(recorded.network, plain.network)
    assert np.array_equal(recorded.episodes, plain.episodes)
    assert recorded.recording_seconds > 0 == plain.recording_seconds
    assert f"s to train ({recorded.recording_seconds:.1f} s to record the step), " in recorded.report()
    assert "to record" not in plain.report()
    assert memory[0].series["train/recording_seconds"] == [(4, recorded.recording_seconds)]
    assert "train/recording_seconds" not in memory[1].series


@pytest.mark.usefixtures("memory")
def test_other_seed_other_weights_same_test_episodes(tiny_spec: SpecMaker, seen: dict):
    results, tests, trains = [], [], []
    for seed in (0, 1):
        results.append(run(tiny_spec(seed=seed), CPU))
        tests.append(fingerprint(seen["test"]))
        trains.append(fingerprint(seen["train"]))
        seen["test"].clear()
        seen["train"].clear()
    assert not same_weights(results[0].network, results[1].network)
    assert tests[0] == tests[1]
    assert trains[0] != trains[1]


@pytest.mark.parametrize(
    "activation",
    [
        pytest.param(name, marks=() if name in ("relu", "rrelu", "maxout", "pau", "arelu") else pytest.mark.slow)
        for name in activations.names()
    ],
)
@pytest.mark.usefixtures("memory")
def test_every_activation_sees_the_same_episodes_and_initial_weights(tiny_spec: SpecMaker, seen: dict, activation: str):
    """Beside ReLU, which draws and holds nothing: RReLU draws slopes in training, Maxout needs wider layers."""
    noted = {}
    for name in ("relu", activation):
        run(tiny_spec(network={"activation": name}, training={"inner_steps": 1}), CPU)
        noted[name] = {key: list(value) for key, value in seen.items()}
        for value in seen.values():
            value.clear()
    reference, other = noted["relu"], noted[activation]
    assert len(reference["train"]) == 2
    for part in ("train", "test"):
        assert fingerprint(reference[part]) == fingerprint(other[part])
    start = other["start"][0]
    equal = {key: start[key].shape == value.shape and torch.equal(start[key], value)
             for key, value in reference["start"][0].items()}  # fmt: skip
    assert activation == "maxout" or all(equal.values())


@pytest.mark.usefixtures("memory")
def test_global_randomness_is_left_as_it_was(tiny_spec: SpecMaker):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    run(tiny_spec(network={"activation": "rrelu"}), CPU)
    assert torch.equal(torch.rand(3), expected)


# Protocols


@pytest.mark.usefixtures("memory")
def test_sound_protocol_draws_fresh_episodes(tiny_spec: SpecMaker, seen: dict):
    run(tiny_spec(training={"iterations": 3, "meta_batch": 4, "inner_steps": 1}), CPU)
    drawn = {hash(episode.support_x.numpy().tobytes()) for batch in seen["train"] for episode in batch}
    assert len(drawn) == 12
    assert seen["train"][0].query_x.shape[1] == 5 * 2  # ways * queries


@pytest.mark.usefixtures("memory")
def test_paper_protocol_draws_from_a_pool_with_as_many_queries_as_shots(tiny_spec: SpecMaker, seen: dict):
    training = {"iterations": 4, "meta_batch": 4, "inner_steps": 1}
    run(tiny_spec(training=training, episode={"shots": 3}, evaluation={"protocol": "paper", "task_pool": 3}), CPU)
    drawn = {hash(episode.support_x.numpy().tobytes()) for batch in seen["train"] for episode in batch}
    assert 1 < len(drawn) <= 3
    for batch in seen["train"]:
        assert batch.support_x.shape[1] == batch.query_x.shape[1] == 5 * 3


@pytest.mark.usefixtures("memory")
def test_paper_protocol_holds_nothing_back_to_validate(tiny_spec: SpecMaker, monkeypatch: pytest.MonkeyPatch):
    """Of every digit's images a fifth tests; under `sound` another fifth validates."""
    sizes = {}
    for protocol in ("sound", "paper"):
        made = []
        build = EpisodeSampler.__init__

        def noted(self: EpisodeSampler, images: ImageSet, made: list = made, build: Callable = build, **size: Any):
            made.append(len(images))
            build(self, images, **size)

        monkeypatch.setattr(EpisodeSampler, "__init__", noted)
        run(tiny_spec(evaluation={"protocol": protocol}), CPU)
        monkeypatch.setattr(EpisodeSampler, "__init__", build)
        sizes[protocol] = made
    assert sizes == {"sound": [1079, 359, 359], "paper": [1438, 359]}


def test_paper_protocol_reports_the_best_training_batch(tiny_spec: SpecMaker, memory: list):
    result = run(tiny_spec(training={"iterations": 5}, evaluation={"protocol": "paper"}), CPU)
    logged = [value for _, value in memory[0].series["train/accuracy"]]
    assert len(logged) == 5
    assert result.best_batch_accuracy == max(logged)
    assert memory[0].series["paper/best_batch_accuracy"] == [(5, max(logged))]
    assert "validation/accuracy" not in memory[0].series
    assert result.selected_iteration == 5


def test_sound_protocol_tests_the_iteration_that_validated_best(
    tiny_spec: SpecMaker, memory: list, monkeypatch: pytest.MonkeyPatch
):
    """Scores 0.3, 0.5, 0.5, 0.2: the first of the best is iteration 2, and its network is given back and tested."""
    scores = iter([0.3, 0.5, 0.5, 0.2, 0.4, 0.6])
    monkeypatch.setattr("arelu_meta.kinds.few_shot.run.validate", lambda *_, **__: next(scores))
    result = run(tiny_spec(training={"iterations": 4}), CPU)
    assert memory[0].series["validation/accuracy"] == [(1, 0.3), (2, 0.5), (3, 0.5), (4, 0.2)]
    assert result.selected_iteration == 2
    stopped_there = run(tiny_spec(training={"iterations": 2}), CPU)
    assert same_weights(stopped_there.network, result.network)
    assert np.array_equal(stopped_there.episodes, result.episodes)
    assert "paper/best_batch_accuracy" not in memory[0].series


def test_bounded_gradients_are_logged(tiny_spec: SpecMaker, memory: list):
    """Of bounded episodes the mean is bounded too; its norm is logged as it is before `outer_clip`."""
    run(tiny_spec(training={"episode_clip": 1e-4, "outer_clip": 1e-5}), CPU)
    assert all(0 < norm <= 1e-4 * (1 + 1e-5) for _, norm in memory[0].series["train/gradient_norm"])
    assert [value for _, value in memory[0].series["train/clipped_episodes"]] == [1.0, 1.0]
    assert min(value for _, value in memory[0].series["train/largest_episode_norm"]) > 1e-4
    run(tiny_spec(training={"episode_clip": None}), CPU)
    assert min(value for _, value in memory[1].series["train/gradient_norm"]) > 1e-4
    assert "train/clipped_episodes" not in memory[1].series


def test_a_collapsed_training_is_tagged(monkeypatch: pytest.MonkeyPatch, tiny_spec: SpecMaker, memory: list):
    monkeypatch.setitem(EPISODES, "validation", 2)  # as many as this tiny run validates on
    for number, ends in enumerate(([0.3, 0.9], [0.9, 0.3])):
        scores = iter(ends)
        monkeypatch.setattr("arelu_meta.kinds.few_shot.run.validate", lambda *_, scores=scores, **__: next(scores))
        result = run(tiny_spec(training={"iterations": 2}, evaluation={"validate_every": 1}), CPU)
        assert result.collapsed == bool(number)
        assert memory[number].series["train/collapsed"] == [(2, number)]
        assert memory[number].artifacts.get("collapsed") == ("True" if number else None)


def test_validates_every_so_often_and_at_the_end(tiny_spec: SpecMaker, memory: list):
    run(tiny_spec(training={"iterations": 5}, evaluation={"validate_every": 2}), CPU)
    assert [step for step, _ in memory[0].series["validation/accuracy"]] == [2, 4, 5]


def test_training_validation_and_test_images_are_apart(tiny_spec: SpecMaker, memory: list):
    run(tiny_spec(), CPU)
    digests = [memory[0].artifacts[f"dataset/{part}"] for part in splits.SUBSETS]
    assert len(set(digests)) == 3
    images = data.load("digits")
    expected = splits.by_image(images, validation=0.2, test=0.2, seed=0)
    assert digests == [getattr(expected, part).digest for part in splits.SUBSETS]


@pytest.mark.parametrize("method", ["maml", "fomaml"])
@pytest.mark.parametrize("backbone", ["mnist_conv", "conv4"])
@pytest.mark.usefixtures("memory")
def test_methods_and_backbones(tiny_spec: SpecMaker, method: str, backbone: str):
    options = {"filters": 8} if backbone == "conv4" else {}
    spec = tiny_spec(training={"method": method}, network={"backbone": backbone, "backbone_options": options})
    result = run(spec, CPU)
    assert result.episodes.shape == (4, 3)  # test episodes, inner steps + 1
    assert ((result.episodes >= 0) & (result.episodes <= 1)).all()


@pytest.mark.usefixtures("memory")
def test_first_order_learns_other_weights(tiny_spec: SpecMaker):
    second, first = (run(tiny_spec(training={"method": method}), CPU) for method in ("maml", "fomaml"))
    assert not same_weights(second.network, first.network)


def test_network_of_a_spec(tiny_spec: SpecMaker):
    spec = tiny_spec(network={"activation": "arelu", "activation_options": {"alpha": 0.3}})
    network = build_learner(spec, 3, (32, 32)).network
    assert network.block2[2].alpha.item() == pytest.approx(0.3)
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 5)
    assert same_weights(network, build_learner(spec, 3, (32, 32)).network)


# Pixels


@pytest.mark.usefixtures("memory")
def test_accuracy_follows_the_normalisation_of_the_pixels(tiny_spec: SpecMaker):
    """Nearest class means of an untrained network's features, in plain torch on pixels normalised by hand.

    The network is not linear, so that its answers depend on them.
    """
    found = {}
    for normalise in ("standardise", "unit", "none"):
        spec = tiny_spec(
            training={"method": "features"}, fit={"normalise": normalise}, evaluation={"test_episodes": 30}
        )
        result = run(spec, CPU)
        split = splits.by_image(data.load("digits"), validation=0.2, test=0.2, seed=0)
        train = split.train.images.double()
        scale = {"standardise": (train.mean(), train.std(correction=0)), "unit": (0, 255), "none": (0, 1)}[normalise]
        numbers = EpisodeSampler(split.test, ways=5, shots=1, queries=3).draw(30, generator(0, "episodes/test"))
        pixels = ((split.test.images.double() - scale[0]) / scale[1])[numbers]  # (30, ways, 1 + queries, 1, 28, 28)
        with torch.no_grad():
            features = result.network.double().features(pixels.flatten(0, 2)).unflatten(0, (30, 5, 4))
        queries, means = features[:, :, 1:].flatten(1, 2), features[:, :, 0]
        answers = torch.cdist(queries, means).argmin(-1)  # (30, 15)
        expected = (answers == torch.arange(5).repeat_interleave(3)).double().mean(1)
        assert np.allclose(result.episodes[:, -1], expected, atol=0.07)  # one answer of fifteen may turn by rounding
        assert result.test.mean == pytest.approx(expected.mean().item(), abs=0.005)
        found[normalise] = result.test.mean
    assert len(set(found.values())) == 3


@pytest.mark.usefixtures("memory")
def test_small_images_are_resized(tiny_spec: SpecMaker, tmp_path: Path):
    """16x16, as those of USPS: too small for mnist_conv unless they are resized; the message says how."""
    digits = data.load("digits")
    np.savez(tmp_path / "small.npz", x=digits.images[:, 0, 6:22, 6:22].numpy(), y=digits.labels.numpy())
    dataset = {"dataset": str(tmp_path / "small.npz")}
    with pytest.raises(InputError, match="not 16x16; resize them by `image_size`, or set `backbone` to conv4"):
        run(tiny_spec(data=dataset), CPU)
    result = run(tiny_spec(data=dataset, fit={"image_size": 28, "channels": 3}), CPU)
    assert result.network.block1[0].in_channels == 3


# Recorded in MLflow


@pytest.fixture(scope="module")
def recorded_once(
    tmp_path_factory: pytest.TempPathFactory, new_store: Path, tiny_spec: SpecMaker
) -> Iterator[tuple[FewShotResult, mlflow.entities.Run]]:
    """One finished AReLU run in a store of its own."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "mlflow.db").write_bytes(new_store.read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlflow.db'}")
        patch.setenv("ARELU_META_RUNS", str(folder / "runs"))
        result = run(tiny_spec(seed=7), CPU)
        yield result, MlflowClient().get_run(result.run_id)


@pytest.fixture
def recorded(recorded_once: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[FewShotResult, mlflow.entities.Run]:
    """The run, with its store as that of the test."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", recorded_once[0].tracking_uri)
    return recorded_once


def artifact(result: FewShotResult, path: str) -> bytes:
    with warnings.catch_warnings():
        return Path(MlflowClient().download_artifacts(result.run_id, path)).read_bytes()


def test_run_is_finished_and_named(recorded: Any):
    result, stored = recorded
    assert stored.info.status == "FINISHED"
    assert stored.info.run_name == "arelu-digits-5w1s-seed7"
    assert stored.info.experiment_id == result.experiment_id
    assert MlflowClient().get_experiment(result.experiment_id).name == "arelu_meta"


def test_parameters_are_the_resolved_spec(recorded: Any):
    result, stored = recorded
    settings = {key: value for key, value in result.spec.flat().items() if key != "summary"}  # words, not a setting
    expected = {key: str(value) for key, value in settings.items() if value not in ({}, "")}
    assert stored.data.params == expected
    assert stored.data.params["inner_lr"] == "0.05"
    assert stored.data.params["task"] == "digits"


def test_tags(recorded: Any, root: Path):
    result, stored = recorded
    tags = stored.data.tags
    assert tags["spec_hash"] == result.spec.identity
    assert tags["torch"] == torch.__version__
    assert tags["protocol"] == "sound"
    assert tags["device"] == "cpu"
    assert tags["held_out"] == "images"
    train = splits.by_image(data.load("digits"), validation=0.2, test=0.2, seed=0).train
    assert tags["data_digest"] == train.digest
    assert len(tags["git_commit"]) == 40 or not (root / ".git").exists()


def test_data_sets_are_inputs(recorded: Any):
    _, stored = recorded
    inputs = {entry.tags[0].value: entry.dataset for entry in stored.inputs.dataset_inputs}
    split = splits.by_image(data.load("digits"), validation=0.2, test=0.2, seed=0)
    assert set(inputs) == set(splits.SUBSETS)
    for part, entry in inputs.items():
        assert entry.name == f"digits/{part}"
        assert entry.digest == getattr(split, part).digest[:32]


def test_metrics(recorded: Any):
    result, stored = recorded
    metrics = stored.data.metrics
    assert metrics["test/accuracy"] == pytest.approx(result.episodes[:, -1].mean())
    assert metrics["test/n"] == 4
    assert metrics["test/accuracy_ci95_low"] <= metrics["test/accuracy"] <= metrics["test/accuracy_ci95_high"]
    for name, steps in (("train/loss", [1, 2]), ("validation/accuracy", [1, 2])):
        assert [entry.step for entry in MlflowClient().get_metric_history(result.run_id, name)] == steps
    by_step = MlflowClient().get_metric_history(result.run_id, "test/accuracy_by_inner_step")
    curve = result.episodes.mean(axis=0)
    assert [entry.value for entry in by_step] == pytest.approx(curve.tolist())
    assert metrics["test/accuracy_area"] == pytest.approx(integrate.trapezoid(curve) / (len(curve) - 1))
    reached = {level for level in (50, 60, 70, 80, 90, 95, 99) if curve.max() >= level / 100}
    assert {name for name in metrics if "steps_to" in name} == {f"test/steps_to_{level}" for level in reached}


def test_alpha_and_beta_of_every_layer_over_time(recorded: Any):
    result, stored = recorded
    names = {name for name in stored.data.metrics if name.startswith("activation/")}
    assert names == {f"activation/block{n}.2.{letter}" for n in (1, 2, 3) for letter in ("alpha", "beta")}
    for name in names:
        assert [entry.step for entry in MlflowClient().get_metric_history(result.run_id, name)] == [1, 2]
    if result.selected_iteration == 2:
        assert stored.data.metrics["activation/block1.2.alpha"] == pytest.approx(result.network.block1[2].alpha.item())


def test_spec_artifact_is_the_spec(recorded: Any):
    result, _ = recorded
    assert json.loads(artifact(result, "spec.json")) == result.spec.model_dump(mode="json")
    assert type(result.spec).model_validate_json(artifact(result, "spec.json")) == result.spec


def test_split_is_written_out(recorded: Any):
    result, stored = recorded
    content = json.loads(artifact(result, "split.json"))
    assert content["digest"] == stored.data.tags["split_digest"]
    assert sorted(content["train"] + content["validation"] + content["test"]) == list(range(1797))


def test_figures_are_images(recorded: Any):
    result, _ = recorded
    for name in ("training_curve", "activation_curves"):
        assert artifact(result, f"figures/{name}.png").startswith(PNG)


def test_every_test_episode_is_kept(recorded: Any):
    """Rows average to the reported accuracy, columns to the accuracy by step."""
    result, stored = recorded
    rows = list(csv.DictReader(io.StringIO(artifact(result, "test_episodes.csv").decode())))
    assert [row["episode"] for row in rows] == ["0", "1", "2", "3"]
    last = [float(row["step_2"]) for row in rows]
    assert sum(last) / 4 == pytest.approx(stored.data.metrics["test/accuracy"], abs=1e-6)
    table = [[float(row[f"step_{step}"]) for step in range(3)] for row in rows]
    np.testing.assert_allclose(table, result.episodes, atol=1e-6)


def test_model_says_what_it_takes_and_answers(recorded: Any):
    """No input schema: MLflow would refuse bytes and floats of 64 bits before the model sees them."""
    result, _ = recorded
    info = mlflow.models.get_model_info(f"runs:/{result.run_id}/model")
    assert info.signature.inputs is None
    assert info.signature.outputs.input_names() == ["class", "probability"]
    assert "support_x" in info.metadata["takes"]


# Ends of a run


class Interrupting:
    """A progress bar that presses Ctrl-C at the first outer step."""

    @contextmanager
    def __call__(self, _description: str, _total: int) -> Iterator[progress.Advance]:
        def advance(_note: str) -> None:
            raise KeyboardInterrupt

        yield advance


def test_interrupted_run_is_killed(tiny_spec: SpecMaker, store: Path, statuses: Callable):
    with pytest.raises(KeyboardInterrupt):
        run(tiny_spec(), CPU, bar=Interrupting())
    assert statuses(store) == ["KILLED"]
    assert mlflow.active_run() is None


def test_failing_run_has_failed(tiny_spec: SpecMaker, store: Path, statuses: Callable):
    with pytest.raises(RunError, match="the query loss is nan at iteration"):
        run(tiny_spec(training={"inner_lr": 1e30}), CPU)
    assert statuses(store) == ["FAILED"]
    assert mlflow.active_run() is None


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"episode": {"ways": 11}}, "10 classes, but ways = 11"),
        ({"episode": {"queries": 150}}, r"shots \+ queries = 151"),
        ({"episode": {"test_queries": 40}}, r"shots \+ queries = 41"),
        ({"network": {"activation_options": {"alfa": 1}}}, "did you mean 'alpha'"),
        ({"network": {"backbone_options": {"channels": 3}}}, "unknown option of backbone 'mnist_conv': 'channels'"),
        ({"data": {"validation": 0.5, "test": 0.5}}, "leave some to train on"),
        (
            {"network": {"backbone": "tests.own_parts:wrong_logits"}},
            r"gives \(2, 6\) for 2 images; it must give logits",
        ),
        (
            {"network": {"backbone": "tests.own_parts:wrong_size"}},
            "cannot take images of 1x28x28: .*mat1 and mat2",
        ),
        ({"network": {"backbone": "tests.own_parts:no_key"}}, "cannot be built with no options: KeyError: 'width'"),
        ({"training": {"method": "anil", "head": "haed"}}, "unknown layer in `head`: 'haed'; did you mean 'head'"),
    ],
)
def test_wrong_input_opens_no_run(tiny_spec: SpecMaker, store: Path, statuses: Callable, sections: dict, message: str):
    with pytest.raises(InputError, match=message):
        run(tiny_spec(**sections), CPU)
    assert statuses(store) == []


@pytest.mark.parametrize("method", ["anil", "boil"])
@pytest.mark.usefixtures("memory")
def test_a_named_head_is_the_one_that_is_found(tiny_spec: SpecMaker, method: str):
    found, named = (run(tiny_spec(training={"method": method, "head": head}), CPU) for head in ("", "head"))
    assert same_weights(found.network, named.network)
    assert found.spec.identity != named.spec.identity


@pytest.mark.usefixtures("store")
def test_a_network_that_cannot_be_vectorised_is_trained_one_by_one(tiny_spec: SpecMaker):
    with pytest.warns(OneByOne, match="Branching: episodes are computed one after another, as `vmap` fails: vmap: It"):
        result = run(tiny_spec(network={"backbone": "tests.own_code:Branching"}), CPU)
    assert result.note.startswith("fails: vmap: It looks like")
    tags = MlflowClient().get_run(result.run_id).data.tags
    assert tags["one_by_one"] == result.note
    assert "one by one, as `vmap` fails" in result.report()


def test_unknown_device_opens_no_run(tiny_spec: SpecMaker, store: Path, statuses: Callable):
    with pytest.raises(InputError, match="'cudda' is not available here; set `device` to cpu"):
        run(tiny_spec(), Execution(device="cudda"))
    assert statuses(store) == []


def test_the_note_of_a_run_is_its_result_and_the_command_that_repeats_it(tiny_spec: SpecMaker, memory: list):
    result = run(tiny_spec(seed=3), CPU)
    note = memory[0].artifacts["mlflow.note.content"]
    assert note.startswith(
        f"```\n{result.report()}\n```\n\nTo repeat it:\n\n```\npython -m arelu_meta.maml --task digits"
    )
    assert " --seed 3" in note
