"""Benchmarks of whole commands, without the long work in them."""

import os
from pathlib import Path

import pytest

from arelu_meta.benchmarks import commands
from arelu_meta.store.sources import store_uri


@pytest.mark.parametrize("store", ["sqlite:///mine.db", None])
def test_the_tracked_run_has_a_store_named_in_full(store: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """MLflow keeps a connection for each name: `sqlite:///mlflow.db` in two folders would be one store, the first."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    if store is not None:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    before = Path.cwd()
    with commands.own_store(tmp_path):
        assert store_uri() == f"sqlite:///{tmp_path.resolve()}/mlflow.db"
        assert Path.cwd() == tmp_path.resolve()
    assert os.environ.get("MLFLOW_TRACKING_URI") == store
    assert Path.cwd() == before


def test_a_command_that_fails_is_named():
    with pytest.raises(commands.RunError, match=r"-m arelu_meta.maml --ways 0 ended with 2: error: --ways 0"):
        commands.seconds_of([("-m", "arelu_meta.maml", "--ways", "0")])


def test_seconds_by_the_clock_and_of_the_processor():
    """A command that sleeps takes time, and none of the processor's; each is run in the same folder."""
    sleep, write, read = "import time; time.sleep(1)", "open('x', 'w')", "open('x')"
    clock, processor = commands.seconds_of([("-S", "-c", code) for code in (sleep, write, read)])
    assert clock > 1 > processor > 0
