"""Start commands at the same moment on one new store, in one folder, on one set of images, and count what came of it.

python -m tests.faults.writers --count 5

Eight first runs on an SQLite file that is not there yet; sixteen on an MLflow server with PostgreSQL (where PostgreSQL
or its driver is not installed: with SQLite, which the record says); the same command twice at once; two processes that
download and unpack the same set. The same command goes on where it was stopped.
"""

import hashlib
import http.server
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.faults.launching import Started, start, warm_up
from tests.faults.mlflow_server import HOST, Server, free_port, warm_up_server
from tests.faults.record import Log, Record, commits_of, history, trial_parser, write_record
from tests.faults.stored import StoredRun, read_runs, read_store

WORDS = ["classify", "--task", "digits_classify", "--limit-train", "64", "--limit-test", "32", "--epochs", "3"]
COLD, WRITERS, PATIENCE = 8, 16, 900.0
BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
PROGRAMS = [
    shutil.which(name) or next((str(folder / name) for folder in reversed(BINARIES)), "")
    for name in ("initdb", "postgres")
]


def begin_all(folder: Path, count: int, address: str) -> list[Started]:
    """Start so many runs at once, each with a seed of its own."""
    variables = {"MLFLOW_TRACKING_URI": address, "ARELU_META_RUNS": str(folder / "runs")}
    commands = [[*WORDS, "--seed", str(number)] for number in range(count)]
    return [start(words, folder, f"run{number}", variables, pictures=False) for number, words in enumerate(commands)]


def ended(started: list[Started], codes: tuple[int, ...] = (0,)) -> list[str]:
    """Wait for all, and say which did not end as they should."""
    wrong = []
    for each in started:
        code = each.wait(PATIENCE)
        if code is None:
            each.kill()
        if code not in codes or "Traceback" in each.err:
            wrong.append(f"{each.name} ended with {code}: {each.err.strip()[-200:]}")
    return wrong


def incomplete(runs: list[StoredRun], count: int) -> list[str]:
    """Say which runs are missing, are not finished, or have too few points or some twice."""
    wrong = [] if len(runs) == count else [f"{len(runs)} runs in place of {count}"]
    most = max((len(run.points) for run in runs), default=0)
    for run in runs:
        if run.status != "FINISHED" or len(run.points) != most or not most or run.doubled:
            wrong.append(f"{run.name}: {run.status}, {len(run.points)} points of {most}, {len(run.doubled)} twice")
        if run.files.get("models") != "1":
            wrong.append(f"{run.name}: {run.files.get('models', '0')} models")
    return wrong


def cold_starters(folder: Path) -> list[str]:
    """Eight first runs on one SQLite file that is not there yet."""
    wrong = ended(begin_all(folder, COLD, f"sqlite:///{folder / 'mlflow.db'}"))
    return wrong + incomplete(read_store(folder / "mlflow.db", folder), COLD)


def new_database(cluster: str) -> str:
    """Make an empty database in PostgreSQL; gives its address."""
    import psycopg2

    name = f"trial{time.monotonic_ns()}"
    connection = psycopg2.connect(cluster)
    connection.autocommit = True
    connection.cursor().execute(f"CREATE DATABASE {name}")
    connection.close()
    return f"{cluster.rpartition('/')[0]}/{name}"


def server_writers(folder: Path, cluster: str) -> list[str]:
    """Sixteen first runs on one server whose database is new."""
    (folder / "server").mkdir()
    database = new_database(cluster) if cluster else ""
    server = Server(
        folder / "server", database=database.replace("postgresql:", "postgresql+psycopg2:"), fork=True, workers=4
    )
    try:
        server.start().wait()
        wrong = ended(begin_all(folder, WRITERS, server.address))
    finally:
        server.kill()
    if not cluster:
        return wrong + incomplete(read_store(server.path, folder / "server"), WRITERS)
    import psycopg2

    connection = psycopg2.connect(database)
    try:
        return wrong + incomplete(read_runs(connection, folder / "server"), WRITERS)
    finally:
        connection.close()


def equal_commands(folder: Path) -> list[str]:
    """Run the same command twice at once: both end well, or the second says who is at work there."""
    variables = {"MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}", "ARELU_META_RUNS": str(folder / "runs")}
    started = [start(WORDS, folder, f"run{number}", variables, pictures=False) for number in range(2)]
    wrong = ended(started, codes=(0, 1))
    refused = [each for each in started if "is in use by process" in each.err]
    return wrong + incomplete(read_store(folder / "mlflow.db", folder), 2 - len(refused))


def equal_preparations(folder: Path) -> list[str]:
    """Have two processes download and unpack the same archive at once."""
    source = folder / "mirror" / "images"
    source.mkdir(parents=True)
    for number in range(200):
        (source / f"{number}.bin").write_bytes(os.urandom(20_000))
    with tarfile.open(folder / "mirror" / "images.tar.gz", "w:gz") as archive:
        archive.add(source, "images")
    port = free_port()
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(folder / "mirror"))
    mirror = forked(lambda: http.server.ThreadingHTTPServer((HOST, port), handler).serve_forever())
    time.sleep(1.0)
    digest = hashlib.md5((folder / "mirror" / "images.tar.gz").read_bytes(), usedforsecurity=False).hexdigest()

    def prepare() -> None:
        from arelu_meta.data.files.download import PublishedFile, fetch, unpack

        file = PublishedFile("images.tar.gz", digest, (f"http://{HOST}:{port}",))
        unpack(fetch(file, folder / "data"), folder / "data", "images")
        found = {path.name: path.read_bytes() for path in (folder / "data" / "images").iterdir()}
        if found != {path.name: path.read_bytes() for path in source.iterdir()}:
            raise ValueError("other bytes")

    children = [forked(prepare) for _ in range(2)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    os.kill(mirror, signal.SIGKILL)
    os.waitpid(mirror, 0)
    left = [path.name for path in (folder / "data").glob("*.part")]
    return [f"{what} {found}" for what, found in (("exit codes", codes), ("left", left)) if any(found)]


def forked(call: Callable[[], None]) -> int:
    """Call something in a process of its own, which says nothing; gives its number."""
    child = os.fork()
    if not child:
        code = 1
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, 2)
        try:
            call()
            code = 0
        finally:
            os._exit(code)
    return child


@contextmanager
def postgresql() -> Iterator[str]:
    """Give the address of a new PostgreSQL, empty where there is none; it refuses to be root, who lends it a user."""
    user = "postgres" if os.getuid() == 0 else None
    known = {entry.pw_name for entry in pwd.getpwall()}
    if not all(PROGRAMS) or importlib.util.find_spec("psycopg2") is None or (user and user not in known):
        yield ""
        return
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        command = [PROGRAMS[0], "-D", f"{folder}/data", "-A", "trust", "-U", "mlflow"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, user=user, cwd=folder)
        options = ["-D", f"{folder}/data", "-p", str(port), "-h", HOST, "-k", folder, "-c", "max_connections=300"]
        with subprocess.Popen([PROGRAMS[1], *options], stderr=subprocess.DEVNULL, user=user, cwd=folder) as server:
            import psycopg2

            address = f"postgresql://mlflow@{HOST}:{port}/postgres"
            try:
                for _ in range(300):
                    with suppress(psycopg2.OperationalError):
                        psycopg2.connect(address).close()
                        break
                    time.sleep(0.2)
                yield address
            finally:
                server.terminate()


@dataclass(frozen=True)
class Promise:
    """What is tried, by its name on the command line."""

    promise: str
    how: str
    notes: str
    trial: Callable[[Path], list[str]]


def promises(cluster: str) -> dict[str, Promise]:
    """Give all that can be tried, with a PostgreSQL at an address, or without one."""
    kind = "PostgreSQL" if cluster else "SQLite"
    missing = "" if cluster else "PostgreSQL, or psycopg2, is not installed here: the server kept its runs in SQLite"
    complete = "every run is FINISHED with its model, every point is there once"
    return {
        "cold": Promise(
            f"{COLD} commands may be the first on one new SQLite store at the same moment.",
            f"{COLD} runs are started at once where there is no mlflow.db; {complete}.",
            "",
            cold_starters,
        ),
        "equal": Promise(
            "The same command twice at once: both end, or the second says who is at work.",
            f"Two equal runs are started at once in one folder; of each that was not refused {complete}.",
            "",
            equal_commands,
        ),
        "data": Promise(
            "Two commands may prepare the same set of images at the same moment.",
            "Two processes download and unpack one archive at once; both have all files, no part is left.",
            "from a mirror on the same machine",
            equal_preparations,
        ),
        "server": Promise(
            f"{WRITERS} commands may be the first on one MLflow server at the same moment.",
            f"{WRITERS} runs are started at once on a server with a new {kind} database; {complete}.",
            missing,
            partial(server_writers, cluster=cluster),
        ),
    }


def attempt(name: str, number: int, trial: Callable[[Path], list[str]], place: Path, log: Log) -> None:
    """Try once, and note what came of it."""
    folder, began = place / f"{name}-{number}", time.monotonic()
    folder.mkdir()
    wrong = trial(folder)
    log.add({"name": name, "number": number, "seconds": round(time.monotonic() - began, 1), "wrong": wrong})
    sys.stdout.write(f"{name} {number}: {'; '.join(wrong) or 'complete'}\n")
    sys.stdout.flush()
    if not wrong:
        shutil.rmtree(folder)


def main() -> int:
    """Try all, print a line each, write the records; 1 where anything was lost."""
    parser = trial_parser(__doc__)
    parser.add_argument("--count", type=int, default=5, help="times that each is tried [5]")
    parser.add_argument("--only", default="cold,equal,data,server", help="which, separated by commas")
    given = parser.parse_args()
    log = Log("writers", ("name", "number"))
    warm_up()
    warm_up_server()
    place, lost = Path(tempfile.mkdtemp(prefix="arelu_meta-writers-")), 0
    with postgresql() as cluster:
        for name, promise in promises(cluster).items():
            if name not in given.only.split(","):
                continue
            for number in range(given.count):
                if not log.is_done(again=given.again, name=name, number=number):
                    attempt(name, number, promise.trial, place, log)
            rows = log.rows(name=name)
            record = Record(
                name=f"writers_{name}",
                promise=promise.promise,
                how=promise.how,
                command=f"python -m tests.faults.writers --count {given.count} --only {name}",
                commits=commits_of(rows),
                lost=sum(bool(row["wrong"]) for row in rows),
                notes="; ".join([*filter(None, [promise.notes]), *history(rows)]),
            )
            write_record(record)
            lost += record.lost
    sys.stdout.write(f"{lost} lost, in {place}\n" if lost else "nothing was lost\n")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
