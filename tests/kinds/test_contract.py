"""What every registered kind of run does: a new one is one folder, one entry, and one line in TINY below."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from mlflow import MlflowClient

import arelu_meta
from arelu_meta import kinds
from arelu_meta.kinds.execution import EXECUTION_TAGS, Execution
from arelu_meta.kinds.results import Result
from arelu_meta.kinds.sections import Spec
from arelu_meta.store.tracking import Tracker
from tests.supervised_runs import CLASSIFY, FINETUNE, SEGMENT, TRANSFER, interrupted_after, same_weights
from tests.tiny_runs import MLFLOW_WARNINGS, metric_history, tiny_spec

pytestmark = MLFLOW_WARNINGS
TINY: dict[str, dict[str, Any]] = {  # settings of a run of a second, whose training advances three times at least
    "few_shot": tiny_spec(validate_every=1).model_dump(exclude={"kind"}),
    "classify": CLASSIFY,
    "transfer": TRANSFER,
    "segment": SEGMENT,
    "finetune": FINETUNE,
}
ALL_KINDS = pytest.mark.parametrize("name", kinds.names())


def spec_of(name: str, **settings: Any) -> Spec:
    return kinds.entry(name).spec_class.model_validate({**copy.deepcopy(TINY[name]), **settings})


@pytest.fixture(autouse=True)
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the network out of the store: tracing it takes longer than all the rest of a tiny run."""
    for method in ("log_network", "log_few_shot_model"):
        monkeypatch.setattr(Tracker, method, lambda *_, **__: None)


@ALL_KINDS
def test_a_kind_says_everything_of_itself(name: str, root: Path):
    kind = kinds.entry(name)
    assert kind.spec_class.model_fields["kind"].default == name
    assert kind.summary
    assert kind.stages >= 1
    assert (root / "arelu_meta" / f"{kind.command}.py").is_file()
    assert issubclass(kind.execution_class, Execution)
    spec = spec_of(name)
    for section, key in kind.lengths:
        assert hasattr(getattr(spec, section) if section else spec, key)
    for module in ("spec", "run", "result"):
        assert (root / "arelu_meta" / "kinds" / name / f"{module}.py").is_file()


@ALL_KINDS
def test_a_run_gives_a_report_and_logs_what_it_names(name: str, store_uri: str):
    spec = spec_of(name)
    result = arelu_meta.run(spec)
    assert isinstance(result, Result)
    assert result.spec == spec
    report = result.report()
    assert report.splitlines()[0].endswith(f"seed {spec.seed}")
    assert f"{result.run_id} in {store_uri}" in report
    stored = MlflowClient(store_uri).get_run(result.run_id)
    assert stored.info.status == "FINISHED"
    assert stored.data.tags["kind"] == name
    assert stored.data.tags["spec_hash"] == spec.identity
    assert spec.metrics() <= set(stored.data.metrics)


@ALL_KINDS
def test_a_run_says_how_it_was_carried_out(name: str, store_uri: str):
    """Two threads of the run itself, and what its own settings are; a comparison says how many workers it has."""
    tags = {"exec.workers": "4"}
    result = arelu_meta.run(spec_of(name), Execution(threads=2, tags=tags))
    stored = MlflowClient(store_uri).get_run(result.run_id).data.tags
    settings = kinds.entry(name).execution_class.model_fields
    wanted = {tag for tag in EXECUTION_TAGS[4:] if tag.removeprefix("exec.") in settings}
    assert {tag for tag in stored if tag.startswith("exec.")} == {*EXECUTION_TAGS[:4], *wanted}
    assert [stored[tag] for tag in EXECUTION_TAGS[:4]] == ["2", "1", "4", "fp32"]


@ALL_KINDS
@pytest.mark.usefixtures("store")
def test_a_run_leaves_torch_as_it_was(name: str):
    torch.manual_seed(5)
    threads, random = torch.get_num_threads(), torch.get_rng_state()
    arelu_meta.run(spec_of(name), Execution(threads=threads + 1))
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), random)


@ALL_KINDS
def test_a_resumed_run_is_the_uninterrupted_one(name: str, store_uri: str, monkeypatch, tmp_path: Path):
    """The same network and metrics; its time has the time before the interruption in it."""
    spec = spec_of(name)
    monkeypatch.setenv("ARELU_META_RUNS", str(tmp_path / "other"))
    whole = arelu_meta.run(spec)
    monkeypatch.setenv("ARELU_META_RUNS", str(tmp_path / "runs"))
    with pytest.raises(KeyboardInterrupt):
        arelu_meta.run(spec, bar=interrupted_after(3))
    add_seconds_to_the_checkpoint(tmp_path / "runs", 1000.0)
    resumed = arelu_meta.run(spec, Execution(resume=True))
    assert same_weights(resumed.network, whole.network)
    one, other = (metric_history(store_uri, run.run_id) for run in (whole, resumed))
    assert one.keys() == other.keys()
    for key in one:
        if "second" not in key:
            assert other[key] == one[key], key
    seconds = resumed.train_seconds if name == "few_shot" else resumed.seconds
    assert 1000 < seconds < 1100


def add_seconds_to_the_checkpoint(folder: Path, seconds: float) -> None:
    (path,) = folder.rglob("checkpoint.pt")
    checkpoint = torch.load(path, weights_only=True)
    assert checkpoint["seconds"] > 0
    torch.save({**checkpoint, "seconds": seconds}, path)
