"""What trials of `store sync` compare: anything that is lost, doubled or changed is said."""

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.faults.stored_rows import Rows, read_rows, row_differences
from tests.store import stored


def test_what_is_lost_or_too_much_is_said(tmp_path: Path, new_store: Path):
    client = stored.client_of(tmp_path, new_store)
    run_id = stored.run(client, stored.experiment(client, "digits", tmp_path), tmp_path)

    def read() -> Rows:
        with closing(sqlite3.connect(tmp_path / "mlflow.db")) as connection:
            return read_rows(connection, tmp_path)

    whole = read()
    assert row_differences(whole, read()) == []
    client.log_metric(run_id, "train/loss", 0.5, 2_001, 1)  # the point of step 1 is 1 / 2 at 2,001: there already
    assert row_differences(read(), whole) == []
    client.log_metric(run_id, "train/loss", 0.5, 2_002, 1)
    (line,) = row_differences(read(), whole)
    assert line.startswith("1 point too much: ('point', 'run 0', 'train/loss', 0.5, 2002, 1, 0)")
    client.delete_tag(run_id, "note")
    next((tmp_path / "mlruns").rglob("weights.bin")).write_bytes(b"cut")
    kinds = {line.partition(":")[0] for line in row_differences(read(), whole)}
    assert kinds == {"1 point too much", "1 tag missing", "1 model file missing", "1 model file too much"}
