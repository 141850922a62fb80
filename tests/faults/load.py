"""A store with ten thousand runs: commands that look things up in it must not read all of it.

python -m tests.faults.load                     # makes the store, and times each call in a process of its own
python -m tests.faults.load --keep FOLDER       # leaves the store there; given one that is there, uses it

A real run of a tiny comparison is the template; its rows are copied by SQL, with their own identities: a comparison of
a thousand cells, four thousand runs of earlier editions of it in its MLflow experiment, and the others elsewhere.
"""

import argparse
import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from arelu_meta.comparison.cells import Cell, expand
from arelu_meta.comparison.experiment import read_experiment
from tests.comparison import tiny
from tests.faults.record import Record, commit, write_record

MOST_SECONDS = 10.0
ARMS = ["relu", "arelu", "elu", "prelu", "selu", "gelu", "swish", "mish", "leaky_relu", "hardswish"]
SEEDS, RUNS, POINTS = 100, 10_000, 20
CALLS = {
    "compare --dry-run": "from arelu_meta.compare import main; main(['tiny.toml', '--dry-run'])",
    "results()": f"import arelu_meta; assert len(arelu_meta.results('tiny')) == {len(ARMS) * SEEDS}",
    "compare, all cells done, with its report": "from arelu_meta.compare import main; assert main(['tiny.toml']) == 0",
    "judge, 5,000 runs": (
        "from arelu_meta.judge import main; "
        "main(['tiny', '--arm', 'param:activation', '--seed', 'param:seed', '--metric', 'test/accuracy'])"
    ),
    "store show": "from arelu_meta.store.__main__ import main; assert main(['show']) == 0",
    "store flush": "from arelu_meta.store.__main__ import main; assert main(['flush']) == 0",
    "looking for runs whose process is gone": "from arelu_meta.store.settling import settle_runs; settle_runs('tiny')",
    "finding a finished run by its settings": (
        "from arelu_meta.store.connection import finished_metrics; from tests.tiny_runs import tiny_spec; "
        "finished_metrics(tiny_spec(), experiment='arelu_meta')"
    ),
}


def make_store(folder: Path) -> None:
    """Fill a store: `mlflow.db`, `tiny.toml` and `runs/` in a folder."""
    arms = ", ".join(f'"{name}"' for name in ARMS)
    path = tiny.write(folder, ('["relu", "arelu"]', f"[{arms}]"), ("seeds = [0, 1]", f"seeds = {list(range(SEEDS))}"))
    done = tiny.compare(folder, "tiny.toml", "--only", "activation=relu", "--seeds", "0")
    assert done.returncode == 0, done.stderr
    with closing(sqlite3.connect(folder / "mlflow.db")) as database:
        copy = Copies(database, folder)
        for cell in expand(read_experiment(str(path))):
            if cell.values["activation"] != "relu" or cell.spec.seed:
                copy.cell(cell, folder)
        experiments = [copy.experiment_id] * 4000
        experiments += [copy.add_experiment(f"other {number}") for number in range(4)] * (
            (RUNS - 4000 - len(ARMS) * SEEDS) // 4 + 1
        )
        for number, experiment_id in enumerate(experiments):
            copy.other(experiment_id, number, status="FAILED" if number % 50 == 0 else "FINISHED")
        database.commit()
        (count,) = database.execute("SELECT COUNT(*) FROM runs").fetchone()
        assert count >= RUNS, count


class Copies:
    """Copies of one run's rows."""

    def __init__(self, database: sqlite3.Connection, folder: Path) -> None:
        self.database = database
        ((self.id, self.experiment_id, place),) = database.execute(
            "SELECT runs.run_uuid, experiment_id, artifact_uri FROM runs JOIN tags ON tags.run_uuid = runs.run_uuid "
            "WHERE tags.key = 'comparison.cell' AND lifecycle_stage = 'active'"
        ).fetchall()
        self.artifacts = folder / place.removeprefix("file://")
        self.tables: dict[str, tuple[list[str], list[dict[str, Any]]]] = {}
        for table in ("runs", "params", "tags", "metrics", "latest_metrics"):
            rows = database.execute(f"SELECT * FROM {table} WHERE run_uuid = ?", (self.id,))  # noqa: S608
            columns = [column for column, *_ in rows.description]
            self.tables[table] = columns, [dict(zip(columns, row, strict=True)) for row in rows.fetchall()]
        several = {row["key"] for row in self.tables["metrics"][1] if row["step"]}
        self.curves = [row for row in self.tables["metrics"][1] if row["key"] in several and row["step"] < 2]

    def insert(self, replaced: dict[str, str], tags: dict[str, str], params: dict[str, str], *, points: int = 0) -> str:
        """Add a run: columns of `runs`, tags and params unlike the template's; metrics with so many more points."""
        run_id = uuid.uuid4().hex
        for table, (columns, rows) in self.tables.items():
            copies = [{**row, "run_uuid": run_id, **(replaced if table == "runs" else {})} for row in rows]
            if table in ("tags", "params"):
                other = tags if table == "tags" else params
                copies = [{**row, "value": other.get(row["key"], row["value"])} for row in copies]
            if table == "metrics":
                more = range(1000, 1000 + points)
                copies += [{**row, "run_uuid": run_id, "step": step} for row in self.curves for step in more]
            places = ", ".join(f":{column}" for column in columns)
            self.database.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({places})", copies)  # noqa: S608
        return run_id

    def cell(self, cell: Cell, folder: Path) -> None:
        """Add the run of a cell, with the results of its test episodes."""
        place = folder / "copies" / cell.spec.identity
        place.mkdir(parents=True)
        shutil.copy(self.artifacts / "test_episodes.csv", place)
        values = json.dumps({**cell.values, "seed": cell.spec.seed})
        tags = {"spec_hash": cell.spec.identity, "comparison.cell": values}
        params = {"activation": str(cell.values["activation"]), "seed": str(cell.spec.seed)}
        self.insert({"artifact_uri": place.as_uri()}, tags, params, points=POINTS)

    def other(self, experiment_id: int, number: int, *, status: str) -> None:
        """Add a run of other settings, below a parent run that is none of the comparison's."""
        parent = uuid.uuid5(uuid.NAMESPACE_OID, str(experiment_id)).hex
        tags = {"spec_hash": uuid.uuid4().hex, "mlflow.parentRunId": parent}
        params = {"activation": ARMS[number % len(ARMS)], "seed": str(number)}
        self.insert({"experiment_id": str(experiment_id), "status": status}, tags, params)

    def add_experiment(self, name: str) -> int:
        """Add an MLflow experiment; gives its id."""
        columns = "name, artifact_location, lifecycle_stage, creation_time, last_update_time, workspace"
        made = self.database.execute(
            f"INSERT INTO experiments ({columns}) SELECT ?, {columns.partition(', ')[2]} FROM experiments "  # noqa: S608
            "WHERE experiment_id = ?",
            (name, self.experiment_id),
        )
        return int(made.lastrowid or 0)


def timed(folder: Path) -> Iterator[tuple[str, float]]:
    """Carry out each call in a process of its own; gives its name and the seconds of a core, imports left out."""
    for name, statement in CALLS.items():
        imports = "import time, torch, mlflow, pandas, scipy.stats, arelu_meta.compare, arelu_meta.comparison.runner; "
        # Of a core, not of the clock: other processes may be at work on the machine.
        code = f"{imports}start = time.process_time(); {statement}; print('SECONDS', time.process_time() - start)"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=folder,
            env={**tiny.environment(folder), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        yield name, float(done.stdout.rpartition("SECONDS ")[2])


def main(argv: Sequence[str] | None = None) -> int:
    """Make the store, time the calls, write the record; 1 where one is too slow."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where the store is made and stays")
    given = parser.parse_args(argv)
    start, found = time.monotonic(), {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = (given.keep or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "mlflow.db").exists():
            make_store(folder)
            sys.stdout.write(f"made {RUNS:,} runs in {time.monotonic() - start:.0f} s\n")
        for name, seconds in timed(folder):
            found[name] = seconds
            sys.stdout.write(f"{name}: {seconds:.1f} s\n")
            sys.stdout.flush()
    slow = sum(seconds >= MOST_SECONDS for seconds in found.values())
    write_record(
        Record(
            name="load",
            promise=f"With 10,000 runs in the store every command finds what it needs within {MOST_SECONDS:g} seconds.",
            how=f"A comparison of {len(ARMS) * SEEDS:,} cells among {RUNS:,} runs in SQLite, 4,000 of the others in "
            "its own MLflow experiment; each call in a process of its own; seconds of one core, imports left out.",
            command="python -m tests.faults.load",
            commits={commit(): len(found)},
            lost=slow,
            notes="; ".join(f"{name}: {seconds:.1f} s" for name, seconds in found.items()),
        )
    )
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
