"""What every registered kind of run does: a new one is one folder, one entry, and one line in TINY below."""

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
import pytest
import torch
from mlflow import MlflowClient

import arelu_meta
from arelu_meta import kinds
from arelu_meta.analysis.speed import time_unit
from arelu_meta.kinds.execution import EXECUTION_TAGS, Execution
from arelu_meta.kinds.results import Result
from arelu_meta.kinds.sections import Spec
from arelu_meta.store.tracker import Tracker
from tests.supervised_runs import ADAPT, CLASSIFY, FINETUNE, SEGMENT, TRANSFER, interrupted_after, same_weights
from tests.tiny_runs import MLFLOW_WARNINGS, metric_history, tiny_spec

pytestmark = [MLFLOW_WARNINGS, pytest.mark.figures]
TINY: dict[str, dict[str, Any]] = {  # settings of a run of a second, whose training advances three times at least
    "few_shot": tiny_spec(validate_every=1).model_dump(exclude={"kind"}),
    "classify": CLASSIFY,
    "transfer": TRANSFER,
    "segment": SEGMENT,
    "finetune": FINETUNE,
    "adapt": ADAPT,
}


def spec_of(name: str) -> Spec:
    return kinds.entry(name).spec_class.model_validate(copy.deepcopy(TINY[name]))


def without_models(patch: pytest.MonkeyPatch) -> None:
    """Leave the network out of the store: tracing it takes longer than all the rest of a tiny run."""
    for method in ("log_network", "log_few_shot_model"):
        patch.setattr(Tracker, method, lambda *_, **__: None)


@dataclass(frozen=True)
class Finished:
    """A finished run, its record in the store, and torch before and after it."""

    spec: Spec
    result: Result
    stored: mlflow.entities.Run
    before: tuple[int, torch.Tensor]
    after: tuple[int, torch.Tensor]


@pytest.fixture(scope="module", params=kinds.names())
def finished(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, new_store: Path
) -> Iterator[Finished]:
    """One run of every kind, with one thread more than torch had, in a store of its own."""
    folder = tmp_path_factory.mktemp("contract")
    (folder / "mlflow.db").write_bytes(new_store.read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlflow.db'}")
        patch.setenv("ARELU_META_RUNS", str(folder / "runs"))
        without_models(patch)
        spec = spec_of(request.param)
        before = torch.get_num_threads(), torch.get_rng_state()
        execution = Execution(threads=before[0] + 1, tags={"exec.workers": "4"})
        result = arelu_meta.run(spec, execution)
        after = torch.get_num_threads(), torch.get_rng_state()
        yield Finished(spec, result, MlflowClient().get_run(result.run_id), before, after)


@pytest.mark.parametrize("name", kinds.names())
def test_a_kind_says_everything_of_itself(name: str, root: Path):
    kind, spec = kinds.entry(name), spec_of(name)
    assert kind.spec_class.model_fields["kind"].default == name
    assert kind.summary
    assert kind.stages >= 1
    assert (root / "arelu_meta" / f"{kind.command}.py").is_file()
    assert issubclass(kind.execution_class, Execution)
    for section, key in kind.lengths:
        assert hasattr(getattr(spec, section) if section else spec, key)
    for module in ("spec", "run", "result"):
        assert (root / "arelu_meta" / "kinds" / name / f"{module}.py").is_file()


def test_a_run_gives_a_report(finished: Finished):
    assert isinstance(finished.result, Result)
    assert finished.result.spec == finished.spec
    lines = finished.result.report().splitlines()
    assert lines[0].endswith(f"seed {finished.spec.seed}")
    assert any(finished.result.run_id in line for line in lines)


def test_a_result_is_plain_values_for_scripts(finished: Finished):
    """What JSON has of the scores is what the store has, and n and interval stand beside every one of them."""
    document = json.loads(json.dumps(finished.result.as_dict()))
    assert (document["kind"], document["run_id"]) == (finished.spec.kind, finished.result.run_id)
    assert document["identity"] == finished.spec.identity
    assert Path(document["run_folder"]).is_dir()
    assert type(finished.spec).model_validate(document["settings"]) == finished.spec
    stored = finished.stored.data.metrics
    assert set(document["metrics"]) & set(stored)
    for name, estimate in document["metrics"].items():
        assert set(estimate) == {"mean", "low", "high", "n"}
        assert estimate["n"] >= 1
        if name in stored:
            assert estimate["mean"] == pytest.approx(stored[name])


def test_a_result_shows_itself_in_one_line(finished: Finished):
    """The kind, the run, and the figure that its report gives too."""
    shown = repr(finished.result)
    start, _, figure = shown.removesuffix(">").partition(": ")
    assert start == f"<{finished.spec.kind} run {finished.result.run_id}"
    assert len(shown) < 140
    assert figure.split(" ")[-1] in finished.result.report()
    assert " %" in figure


def test_a_run_logs_the_metrics_it_names(finished: Finished):
    assert finished.stored.info.status == "FINISHED"
    assert finished.stored.data.tags["kind"] == finished.spec.kind
    assert finished.stored.data.tags["spec_hash"] == finished.spec.identity
    always = {name for name in finished.spec.metrics() if not time_unit(name)}  # what is not reached is not logged
    if "test/accuracy" in finished.stored.data.metrics:  # of adapt, where the set decides which of the two there is
        always = {name for name in always if not name.startswith("cross_validation/")}
    assert always <= set(finished.stored.data.metrics)


def test_a_run_says_how_it_was_carried_out(finished: Finished):
    """Threads as they were in fact, the settings of its kind, and the workers that a comparison names."""
    tags = {tag: value for tag, value in finished.stored.data.tags.items() if tag.startswith("exec.")}
    settings = kinds.entry(finished.spec.kind).execution_class.model_fields
    wanted = {tag for tag in EXECUTION_TAGS[4:] if tag.removeprefix("exec.") in settings}
    assert set(tags) == {*EXECUTION_TAGS[:4], *wanted}
    assert [tags[tag] for tag in EXECUTION_TAGS[:4]] == [str(finished.before[0] + 1), "1", "4", "fp32"]


def test_a_run_leaves_torch_as_it_was(finished: Finished):
    assert finished.after[0] == finished.before[0]
    assert torch.equal(finished.after[1], finished.before[1])


@pytest.mark.usefixtures("blank_figures")
@pytest.mark.parametrize("name", kinds.names())
def test_a_resumed_run_is_the_uninterrupted_one(name: str, store_uri: str, monkeypatch, tmp_path: Path):
    """The same network and metrics; its time has the time before the interruption in it."""
    without_models(monkeypatch)
    spec = spec_of(name)
    monkeypatch.setenv("ARELU_META_RUNS", str(tmp_path / "other"))
    whole = arelu_meta.run(spec)
    monkeypatch.setenv("ARELU_META_RUNS", str(tmp_path / "runs"))
    with pytest.raises(KeyboardInterrupt):
        arelu_meta.run(spec, bar=interrupted_after(3))
    (path,) = (tmp_path / "runs").rglob("checkpoint.pt")
    checkpoint = torch.load(path, weights_only=True)
    assert checkpoint["seconds"] > 0
    torch.save({**checkpoint, "seconds": 1000.0}, path)
    resumed = arelu_meta.run(spec, Execution(resume=True))
    assert same_weights(resumed.network, whole.network)
    one, other = (metric_history(store_uri, run.run_id) for run in (whole, resumed))
    assert one.keys() == other.keys()
    for key in one:
        if "second" not in key:
            assert other[key] == one[key], key
    seconds = resumed.train_seconds if name == "few_shot" else resumed.seconds
    assert 1000 < seconds < 1100
