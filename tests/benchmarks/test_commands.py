"""Benchmarks of whole commands, without the long work in them."""

from pathlib import Path

import mlflow
import pytest

from arelu_meta import run as run_module
from arelu_meta import tracking
from arelu_meta.benchmarks import commands
from arelu_meta.benchmarks.record import record


def test_figures_can_be_kept_after_the_benchmark_of_tracking(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """It tracks a run in a folder that is gone afterwards; the store of the user must not be mistaken for that one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    stores = []

    def run(_spec: object, execution: object) -> None:
        del execution
        stores.append(tracking.store_uri())
        tracking.open_store("bench")

    monkeypatch.setattr(run_module, "run", run)
    report = commands._tracking()
    assert not Path(stores[0].removeprefix("sqlite:///")).exists()
    kept = record([report], {"torch": "1"})
    assert mlflow.get_run(kept).data.tags["torch"] == "1"
    assert (tmp_path / "mlflow.db").exists()


def test_a_command_that_fails_is_named(tmp_path: Path):
    with pytest.raises(commands.RunError, match=r"-m arelu_meta.maml --ways 0 ended with 2: error: --ways 0"):
        commands._run(("-m", "arelu_meta.maml", "--ways", "0"), tmp_path)
