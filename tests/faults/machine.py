"""The machine fails under commands: a full, read-only or deleted folder, too few open files, too little memory.

python -m tests.faults.machine                              # as root: small disks are mounted
python -m tests.faults.machine --only maml,compare --fault "disk full"

Each command runs in a process of its own, on a disk or under a limit that does not suffice, or loses its folder in
mid-training. It must end with exit code 1 (2: wrong input) and one line, leave nothing RUNNING in the store once the
next command has looked, and what it saved must be readable.
"""

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from arelu_meta.errors import InputError
from arelu_meta.store.run_folder import RunFolder
from tests.comparison import tiny
from tests.faults.record import Log, Record, Row, commits_of, end_cleanly, history, trial_parser, write_record
from tests.tiny_images import DIGITS
from tests.tiny_networks import TINY

LONG = 100_000  # steps: they end when the fault does it
SECONDS = 600
COMMANDS = {
    "maml": ["arelu_meta.maml", "--iterations", str(LONG), "--validate-every", "2", "--validation-episodes", "2"],
    "classify": ["arelu_meta.classify", "--dataset", DIGITS, "--epochs", str(LONG)],
    "adapt": [
        *("arelu_meta.adapt", DIGITS, "--model", TINY, "--weights", "none"),
        *("--shots", "5", "--draws", str(LONG // 100), "--method", "linear"),
    ],
    "compare": ["arelu_meta.compare", "tiny.toml"],
}
EXPERIMENT = (("iterations = 4", f"iterations = {LONG}"), ("validate_every = 2", "validate_every = 2"))


@dataclass(frozen=True)
class Fault:
    """What the disk of `runs/` is, the limits of the process, and what is done when its run is under way."""

    disk: str = ""  # options of a mounted disk
    limits: tuple[tuple[int, int], ...] = ()
    strike: Callable[[Path], object] | None = None
    undo: Callable[[Path], object] = lambda _: None


FAULTS = {
    "disk full": Fault(disk="size=256k"),
    "folder read-only": Fault(strike=lambda runs: _mount("ro", runs), undo=lambda runs: _unmount(runs)),
    "folder deleted": Fault(
        strike=lambda runs: runs.rename(runs.with_name("elsewhere")), undo=lambda runs: _back(runs)
    ),
    "too many open files": Fault(limits=((resource.RLIMIT_NOFILE, 10),)),
    "too little memory": Fault(limits=((resource.RLIMIT_AS, 2 << 30),)),
}


def _mount(options: str, folder: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", "-l", str(folder)], check=True)


def _back(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.with_name("elsewhere").rename(folder)


@contextmanager
def disk(folder: Path, options: str) -> Iterator[None]:
    """Have a small disk there, where options are given."""
    folder.mkdir()
    if options:
        _mount(options, folder)
    try:
        yield
    finally:
        if options:
            _unmount(folder)


def trial(command: str, fault: Fault) -> str:
    """Run a command under a fault; gives what was wrong, nothing where all was right."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tiny.write(folder, *EXPERIMENT)
        runs = folder / "runs"
        environment = {**tiny.environment(folder), "OMP_NUM_THREADS": "1", "ARELU_META_CACHE": str(folder / "cache")}
        with disk(runs, fault.disk):
            process = subprocess.Popen(
                [sys.executable, "-m", *COMMANDS[command]],
                cwd=folder,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                preexec_fn=lambda: [resource.setrlimit(which, (most, most)) for which, most in fault.limits],
            )
            try:
                if fault.strike:
                    _wait_for_checkpoint(runs, process)
                    fault.strike(runs)
                _, err = process.communicate(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                return f"it did not end within {SECONDS} s"
            finally:
                process.kill()
                process.wait()
                if fault.strike:
                    fault.undo(runs)
            return _wrong(process.returncode, err, folder, environment)


def _wait_for_checkpoint(runs: Path, process: "subprocess.Popen[str]") -> None:
    end = time.monotonic() + SECONDS
    while not list(runs.glob("*/checkpoint.pt")) and process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)


def _wrong(code: int, err: str, folder: Path, environment: dict[str, str]) -> str:
    """Say what is wrong with how a command ended."""
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    if code not in (1, 2) or "Traceback" in err or len(errors) != 1:
        return f"exit code {code}, {len(errors)} lines of error, {'a traceback' * ('Traceback' in err)}: {err[-800:]}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for place in {path.parent for path in folder.glob("*/*/checkpoint*.pt")}:
            try:
                RunFolder.read_last(place)
            except InputError as error:
                return f"a checkpoint cannot be read: {error}"
    code = "from arelu_meta.store.settling import settle_runs; [settle_runs(name) for name in ('arelu_meta', 'tiny')]"
    own = {**environment, "ARELU_META_RUNS": str(folder / "next")}  # on a disk that is whole
    subprocess.run([sys.executable, "-c", code], cwd=folder, env=own, check=True, stderr=subprocess.DEVNULL)
    with closing(sqlite3.connect(folder / "mlflow.db")) as database:
        (running,) = database.execute("SELECT COUNT(*) FROM runs WHERE status = 'RUNNING'").fetchone()
    return f"{running} runs are RUNNING" if running else ""


def main(argv: Sequence[str] | None = None) -> int:
    """Try every fault with every command, write the record; 1 where something was lost."""
    parser = trial_parser(__doc__)
    parser.add_argument("--only", default=",".join(COMMANDS), help="commands, separated by commas")
    parser.add_argument("--fault", choices=FAULTS, help="one of the faults")
    given = parser.parse_args(argv)
    if os.geteuid():
        parser.error("small disks can be mounted by root only")
    end_cleanly()
    log = Log("machine", ("command", "fault"))
    for name in [given.fault] if given.fault else FAULTS:
        for command in given.only.split(","):
            if log.is_done(again=given.again, command=command, fault=name):
                continue
            start, wrong = time.monotonic(), trial(command, FAULTS[name])
            row = {"command": command, "fault": name, "seconds": round(time.monotonic() - start, 1)}
            log.add({**row, "wrong": [wrong] if wrong else []})
            sys.stdout.write(f"{command}, {name}: {wrong or 'one line, nothing RUNNING'}\n")
            sys.stdout.flush()
    record = _record(log.rows())
    write_record(record)
    return 1 if record.lost else 0


def _record(rows: list[Row]) -> Record:
    """Put the trials together."""
    lost = [f"{row['command']}, {row['fault']}: {row['wrong'][0][:200]}" for row in rows if row["wrong"]]
    done = {(row["command"], row["fault"]) for row in rows}
    missing = [f"{command} {fault}" for fault in FAULTS for command in COMMANDS if (command, fault) not in done]
    left = [f"not tried: {', '.join(missing)}"] if missing else []
    return Record(
        name="machine",
        promise="Where the machine fails, a command says so in one line, and what was saved stays usable.",
        how="maml, classify, adapt and compare on a disk of 256 KiB, with their folder made read-only or taken away in "
        "mid-training, with 10 open files, with 2 GiB of address space; exit code 1 or 2, one line, no traceback, "
        "checkpoints readable, no run RUNNING after the next command.",
        command="python -m tests.faults.machine",
        commits=commits_of(rows),
        lost=len(lost),
        notes="; ".join([*lost, *left, *history(rows)]),
    )


if __name__ == "__main__":
    sys.exit(main())
