"""What a long trial found, as files: `make faults` writes docs/reliability.md from these.

A trial is a module of this folder, run by `python -m tests.faults.NAME`: it tries a promise many times, counts what was
lost, and calls `write_record`. One record per promise, kept in the repository, so that a trial can be repeated alone,
at a later commit, on another machine. Each attempt is a line of `NAME.jsonl`, which stays where the trial ran: one
that was stopped goes on where it was, and several processes may share the attempts out.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RECORDS = Path(__file__).resolve().parent / "records"
PAGE = ROOT / "docs" / "reliability.md"
ATTEMPTS = Path("runs") / "faults"  # below the folder that the trial runs in, as all that runs leave behind
Row = dict[str, Any]


@dataclass(frozen=True)
class Record:
    """One promise, how often it was tried with one seed, and what was lost."""

    name: str  # of the file, and the order on the page
    promise: str  # one sentence, of what a user can rely on
    how: str  # one or two sentences: what is done to the program, and what is compared
    command: str  # what repeats it, without the seed
    commits: dict[str, int]  # how often it was tried, by the commit that it was tried at
    lost: int
    notes: str = ""  # what a reader must know to believe it: what was not tried, or a figure measured beside
    seed: int = 0  # of the attempts: with another seed they are other ones

    @property
    def tried(self) -> int:
        """How often it was tried, at all commits."""
        return sum(self.commits.values())


def commit() -> str:
    """Name the last commit that changed more than what trials write, with "-dirty" where that is changed since."""
    written = [f":(exclude,top){path.relative_to(ROOT).as_posix()}" for path in (RECORDS, PAGE)]

    def git(*words: str) -> str:
        command = ["git", *words, "--", ":(top)", *written]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    return git("log", "-1", "--format=%h") + "-dirty" * bool(git("diff", "--name-only", "HEAD"))


def write_record(record: Record, folder: Path = RECORDS) -> Path:
    """Keep a record: in place of that of the same seed, whose attempts it repeats, and beside those of other seeds."""
    folder.mkdir(parents=True, exist_ok=True)
    path, own = folder / f"{record.name}.json", asdict(record)
    promise = {key: own.pop(key) for key in ("name", "promise", "how")}
    kept = json.loads(path.read_text())["trials"] if path.exists() else []
    trials = sorted([own, *(one for one in kept if one["seed"] != record.seed)], key=lambda one: one["seed"])
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps({**promise, "trials": trials}, indent=2) + "\n")
    partial.replace(path)  # whole, as others may read it meanwhile
    return path


class Log:
    """The attempts of a trial: a row each, in a file that is only ever added to.

    Args:
        trial: name of the trial, and of the file
        key: fields of a row that say which attempt it is; of two rows of one attempt the later counts
    """

    def __init__(self, trial: str, key: Sequence[str], folder: Path | None = None) -> None:
        self.path, self._key, self._commit = (folder or ATTEMPTS) / f"{trial}.jsonl", tuple(key), commit()
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, row: Row) -> None:
        """Add what came of an attempt, at once and in one piece: other processes add to the same file."""
        line = json.dumps({**row, "commit": self._commit}) + "\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    def rows(self, **chosen: Any) -> list[Row]:
        """Give the last row of each attempt that has these values, with `before`: how often it had lost something."""
        last: dict[tuple[Any, ...], Row] = {}
        for line in self.path.read_text().splitlines() if self.path.exists() else []:
            row = json.loads(line)
            key = tuple(row[name] for name in self._key)
            earlier = last.pop(key, {"before": 0, "wrong": []})
            last[key] = {**row, "before": earlier["before"] + bool(earlier["wrong"])}
        return [row for row in last.values() if all(row[name] == value for name, value in chosen.items())]

    def is_done(self, *, again: bool = False, **key: Any) -> bool:
        """Tell whether an attempt was made; `again`: and lost nothing."""
        return any(not (again and row["wrong"]) for row in self.rows(**key))


def commits_of(rows: Sequence[Row]) -> dict[str, int]:
    """Count rows by the commit that they were tried at."""
    return dict(Counter(row["commit"] for row in rows))


def history(rows: Sequence[Row]) -> list[str]:
    """Say what a reader must know of how rows came about: attempts that had lost something, and were repeated."""
    before = sum(row["before"] > 0 and not row["wrong"] for row in rows)
    return [f"{before} had lost something, which was mended, and were repeated"] if before else []


def end_cleanly() -> None:
    """Have SIGTERM end this process as an exception does: what a trial started or mounted is ended with it."""
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))


def trial_parser(description: str | None) -> argparse.ArgumentParser:
    """Make the parser of a trial, with what all of them have."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--again", action="store_true", help="repeat the attempts that lost something, mended since")
    return parser
