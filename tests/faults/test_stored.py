"""What trials compare stores by sees what is missing, doubled or other; else they would find nothing."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.stored import StoredRun, differences, read_store

POINTS = [("r", "loss", 1, 0.5, 0, 10), ("r", "loss", 2, 0.25, 0, 20), ("r", "train/seconds", 1, 3.0, 0, 10)]


def stored(folder: Path, points: list[tuple], weights: bytes = b"w", table: str = "1,2") -> StoredRun:
    """A store with one run, made by hand."""
    (folder / "mlruns" / "a").mkdir(parents=True)
    (folder / "mlruns" / "a" / "table.csv").write_text(table)
    (folder / "artifacts" / "m").mkdir(parents=True)
    (folder / "artifacts" / "m" / "weights.safetensors").write_bytes(weights)
    with closing(sqlite3.connect(folder / "mlflow.db")) as store, store:
        store.execute("CREATE TABLE runs (run_uuid, name, status, lifecycle_stage, artifact_uri)")
        store.execute("CREATE TABLE tags (run_uuid, key, value)")
        store.execute("CREATE TABLE metrics (run_uuid, key, step, value, is_nan, timestamp)")
        store.execute("CREATE TABLE logged_models (source_run_id, artifact_location, status)")
        store.execute("INSERT INTO runs VALUES ('r', 'a run', 'FINISHED', 'active', ?)", (str(folder / "mlruns/a"),))
        store.execute("INSERT INTO tags VALUES ('r', 'spec_hash', '0123')")
        store.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", points)
        store.execute("INSERT INTO logged_models VALUES ('r', 'mlflow-artifacts:/m', 2)")
    (run,) = read_store(folder / "mlflow.db", folder)
    return run


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, []),
        ({"points": POINTS[:1]}, ["loss at step 2 missing"]),
        ({"points": [*POINTS, ("r", "loss", 2, 0.25, 0, 30)]}, ["loss at step 2 twice"]),
        ({"points": [*POINTS, ("r", "loss", 3, 0.0, 0, 30)]}, ["loss at step 3 too many"]),
        ({"points": [POINTS[0], ("r", "loss", 2, 0.26, 0, 20)]}, ["loss at step 2 is 0.26, not 0.25"]),
        ({"points": [*POINTS[:2], ("r", "train/seconds", 1, 4.0, 0, 10)]}, []),
        ({"weights": b"v"}, ["weights.safetensors differs: 4c94485e0c21 50e721e49c01"]),
        ({"table": "1,3"}, ["table.csv differs"]),
    ],
    ids=str,
)
def test_a_run_beside_one_that_nothing_disturbed(tmp_path: Path, change: dict, found: list[str]):
    """Times are no part of it. The digests are those of `sha256sum`."""
    whole = stored(tmp_path / "whole", POINTS)
    assert (whole.key, whole.status, whole.files["models"]) == ("0123", "FINISHED", "1")
    lines = differences(stored(tmp_path / "other", **{"points": POINTS, **change}), whole)
    assert len(lines) == len(found)
    assert all(line.startswith(start) for line, start in zip(lines, found, strict=True))


def test_the_numbers_of_a_comparison_are_those_of_its_last_report():
    """Reported without and with a late cell: `n` changed, `same` did not, `gone` is no more."""
    nan = float("nan")
    once = StoredRun("p", "tiny", "FINISHED", False, points={("n", 0): 4.0, ("same", 0): 1.0})
    again = {("n", 0): 3.0, ("n", 1): 4.0, ("same", 0): 1.0, ("gone", 0): 2.0, ("gone", 1): nan}
    assert differences(StoredRun("p", "tiny", "FINISHED", False, points=again), once) == []
    assert differences(StoredRun("p", "tiny", "FINISHED", False, points=again, identity="0123"), once) != []
    stale = StoredRun("p", "tiny", "FINISHED", False, points={**again, ("n", 2): 3.0}, doubled=[("n", 0)])
    assert differences(stale, once) == ["n at step 0 twice", "n at step 0 is 3.0, not 4.0"]
