"""What a store holds, counted in it and by MLflow's client."""

from pathlib import Path

import pytest

from arelu_meta.runtime.machine import process_name
from arelu_meta.store import contents
from arelu_meta.store.contents import StoredExperiment, read_contents
from arelu_meta.store.sending import PROCESS
from tests.store import stored


def test_runs_models_sizes_and_what_has_no_process(tmp_path: Path, new_store: Path, monkeypatch: pytest.MonkeyPatch):
    client = stored.client_of(tmp_path, new_store)
    digits = stored.experiment(client, "digits", tmp_path)
    first, second = (stored.run(client, digits, tmp_path, number) for number in (0, 1))
    client.set_terminated(second, "FAILED")
    client.delete_run(stored.run(client, digits, tmp_path, 2))
    gone = process_name().rpartition(":")[0] + ":0"
    stale, _, elsewhere = (
        client.create_run(digits, tags={PROCESS: process}).info.run_id
        for process in (gone, process_name(), "another:1:1")
    )
    found = read_contents(client)
    # Three runs with a model each, one of them deleted: its model and its files are still there.
    size = sum(path.stat().st_size for path in (tmp_path / "mlruns" / "digits").rglob("*") if path.is_file())
    assert found.experiments == [StoredExperiment("digits", {"FINISHED": 1, "FAILED": 1, "RUNNING": 3}, 3, size)]
    assert size > 3 * 50
    assert (found.stale, found.elsewhere) == ([stale], [elsewhere])
    assert found.bytes == (tmp_path / "mlflow.db").stat().st_size
    assert first not in found.stale
    monkeypatch.setattr(contents, "is_database", lambda _client: False)
    assert read_contents(client) == found
