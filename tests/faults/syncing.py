"""Kill `store sync` at random moments, run it again, and compare what the stores hold.

python -m tests.faults.syncing --runs 200 --kills 5

From SQLite to an MLflow server on PostgreSQL (where PostgreSQL or its driver is not installed: on SQLite, which the
record says), and from there to another SQLite file; each killed so often. Then a second sync, and one back to where the
runs were made, which must do nothing.
"""

import argparse
import json
import os
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from arelu_meta.store.new_database import make_database
from tests.faults.launching import Started, start, warm_up
from tests.faults.mlflow_server import PASSWORD, Server, warm_up_server
from tests.faults.record import Record, commit, write_record
from tests.faults.stored_rows import read_rows, row_differences
from tests.faults.writers import forked, new_database, postgresql
from tests.store import stored

PATIENCE, MOST_SECONDS = 3600.0, 10.0
Connect = Callable[[], Any]


def make_source(folder: Path, count: int) -> None:
    """Make a store of so many runs: two experiments, every tenth run above the nine that follow it."""
    make_database(folder / "empty.db")
    client = stored.client_of(folder / "source", folder / "empty.db")
    experiments = [stored.experiment(client, name, folder / "source") for name in ("first", "second")]
    parent = ""
    for number in range(count):
        made = stored.run(
            client, experiments[number * 2 // count], folder, number, parent=parent if number % 10 else ""
        )
        parent = parent if number % 10 else made


def begin(folder: Path, source: str, target: str, name: str) -> Started:
    """Start a sync."""
    return start(["store.__main__", "sync", source, target, "--json"], folder, name, {}, pictures=False)


def killed(folder: Path, source: str, target: str, connect: Connect, moments: list[float], name: str) -> list[str]:
    """Kill a sync when the target has so many runs, a little later; then let one come to its end."""
    wrong = []
    for number, moment in enumerate(moments):
        started = begin(folder, source, target, f"{name}{number}")
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and _runs(connect) <= int(moment) and started.wait(0.0) is None:
            time.sleep(0.02)
        time.sleep(moment % 1.0)
        try:
            started.kill()
            started.wait(60.0)
        except (ProcessLookupError, ChildProcessError):
            wrong.append(f"{name}{number} ended before it was killed")
    last = begin(folder, source, target, f"{name}-last")
    if last.wait(PATIENCE) != 0:
        wrong.append(f"{name} ended badly: {last.err[-300:]}")
    return wrong


def _runs(connect: Connect) -> int:
    """Count the runs that are begun in the target; none where it has no tables yet."""
    try:
        with closing(connect()) as connection:
            cursor = connection.cursor()
            cursor.execute("SELECT COUNT(*) FROM runs")
            return int(cursor.fetchone()[0])
    except Exception as error:
        if "runs" in str(error) or "open database" in str(error):
            return -1
        raise


def does_nothing(folder: Path, source: str, target: str, name: str) -> tuple[list[str], float]:
    """Sync once more: nothing may be sent; gives what is wrong with that, and the seconds it took."""
    began = time.monotonic()
    started = begin(folder, source, target, name)
    code = started.wait(PATIENCE)
    seconds = time.monotonic() - began
    if code != 0:
        return [f"{name} ended with {code}: {started.err[-300:]}"], seconds
    done = json.loads(started.out)
    sent = {key: done[key] for key in ("runs", "updated", "points", "files", "models", "versions") if done[key]}
    return [f"{name} sent again: {sent}"] if sent else [], seconds


@contextmanager
def served(folder: Path, cluster: str) -> Iterator[tuple[str, Connect]]:
    """A server with an empty database; gives its address, and how to connect to the database."""
    place = folder / "server"
    place.mkdir()
    database = new_database(cluster) if cluster else ""
    server = Server(place, database=database.replace("postgresql:", "postgresql+psycopg2:"), fork=True, workers=4)

    def connect() -> Any:
        if not cluster:
            return sqlite3.connect(f"file:{server.path}?mode=ro", uri=True)
        import psycopg2

        return psycopg2.connect(database)

    try:
        server.start().wait()
        yield server.address, connect
    finally:
        server.kill()


def trial(folder: Path, cluster: str, count: int, kills: int, seed: int) -> tuple[list[str], list[float]]:
    """Copy to a server and on to a file, killed on the way; gives what is wrong, and seconds of the idle syncs."""
    chance = random.Random(seed)  # noqa: S311
    source, home = f"sqlite:///{folder / 'source' / 'mlflow.db'}", folder / "home" / "mlflow.db"
    home.parent.mkdir()
    # Not in this process: its connections would be those of all that is forked from it.
    _, status = os.waitpid(forked(lambda: make_source(folder, count)), 0)
    if status:
        return ["the store was not made"], [0.0]

    def moments() -> list[float]:
        """One as it begins, the others when there are so many runs."""
        return [chance.random() - 2.0, *sorted(chance.uniform(0, count - 2) for _ in range(kills - 1))]

    def read(path: Path) -> Any:
        return sqlite3.connect(f"file:{path}?mode=ro", uri=True)

    with served(folder, cluster) as (address, connect):
        wrong = killed(folder, source, address, connect, moments(), "there")
        wrong += killed(folder, address, f"sqlite:///{home}", lambda: read(home), moments(), "back")
        idle = [
            does_nothing(folder, source, address, "again"),
            does_nothing(folder, address, source, "to the origin"),
            does_nothing(folder, address, f"sqlite:///{home}", "again back"),
        ]
        wrong += [line for lines, _ in idle for line in lines]
        with closing(read(folder / "source" / "mlflow.db")) as one:
            original = read_rows(one, folder / "source")
        for place, name, opened in ((folder / "server", "server", connect), (home.parent, "home", lambda: read(home))):
            with closing(opened()) as one:
                wrong += [f"{name}: {line}" for line in row_differences(read_rows(one, place), original)]
    texts = [*folder.glob("*.out"), *folder.glob("*.err"), *folder.glob("*/mlflow.db")]
    wrong += [f"the password is in {path.name}" for path in texts if PASSWORD.encode() in path.read_bytes()]
    return wrong, [seconds for _, seconds in idle]


def main() -> int:
    """Try it, print what was lost, write the record; 1 where anything was."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=200, help="runs in the store [200]")
    parser.add_argument("--kills", type=int, default=5, help="kills on the way there, and on the way back [5]")
    parser.add_argument("--seed", type=int, default=0, help="of the moments [0]")
    given = parser.parse_args()
    warm_up()
    warm_up_server()
    folder = Path(tempfile.mkdtemp(prefix="arelu_meta-syncing-"))
    with postgresql() as cluster:
        wrong, seconds = trial(folder, cluster, given.runs, given.kills, given.seed)
    if max(seconds) >= MOST_SECONDS:
        wrong.append(f"a sync that does nothing took {max(seconds):.1f} s")
    for line in wrong:
        sys.stdout.write(f"{line}\n")
    kind = "PostgreSQL" if cluster else "SQLite, as PostgreSQL or psycopg2 is not installed here"
    write_record(
        Record(
            name="syncing",
            promise="`store sync` may be killed at any moment: run again, every run, point and artifact is there once.",
            how=f"{given.runs} runs go from SQLite to a server on {kind}, and from there to another SQLite file; both "
            f"are killed (SIGKILL) {given.kills} times at random moments. All rows and files are compared, without "
            f"MLflow; then a second sync, and one back to the origin, send nothing within {MOST_SECONDS:g} s.",
            command=f"python -m tests.faults.syncing --runs {given.runs} --kills {given.kills}",
            commits={commit(): 2 * given.kills},
            lost=len(wrong),
            notes=f"syncs that had nothing to do took {', '.join(f'{one:.1f}' for one in seconds)} s, imports left out",
            seed=given.seed,
        )
    )
    sys.stdout.write(f"{len(wrong)} lost, in {folder}\n" if wrong else "nothing was lost\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
