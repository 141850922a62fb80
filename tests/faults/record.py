"""What a long trial found, as files: `make faults` writes docs/reliability.md from these.

A trial is a module of this folder, run by `python -m tests.faults.NAME`: it tries a promise many times, counts what was
lost, and calls `write_record`. One record per trial and promise, so that a trial can be repeated alone. Each attempt is
a line of `NAME.jsonl`: a trial that was stopped goes on where it was, and several processes may share the attempts out.
"""

import argparse
import json
import os
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

RECORDS = Path("runs") / "faults"  # below the folder that the trial runs in, as all that runs leave behind
Row = dict[str, Any]


@dataclass(frozen=True)
class Record:
    """One promise, how often it was tried, and what was lost."""

    name: str  # of the file, and the order on the page
    promise: str  # one sentence, of what a user can rely on
    how: str  # one or two sentences: what is done to the program, and what is compared
    command: str  # what repeats it
    tried: int
    lost: int
    notes: str = ""  # what a reader must know to believe it: what was not tried, or a figure measured beside
    seconds: float = 0.0
    commit: str = field(default_factory=lambda: commit())


def commit() -> str:
    """Name the commit of the checkout, with what is not committed."""
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def write_record(record: Record, folder: Path = RECORDS) -> Path:
    """Write one record, with the commit that it was measured at; whole, as others may read it meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{record.name}.json"
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps(asdict(record), indent=2) + "\n")
    partial.replace(path)
    return path


class Log:
    """The attempts of a trial: a row each, in a file that is only ever added to.

    Args:
        trial: name of the trial, and of the file
        key: fields of a row that say which attempt it is; of two rows of one attempt the later counts
    """

    def __init__(self, trial: str, key: Sequence[str], folder: Path | None = None) -> None:
        self.path, self._key, self._commit = (folder or RECORDS) / f"{trial}.jsonl", tuple(key), commit()
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


def tried_at(rows: Sequence[Row]) -> str:
    """Name the commit of most rows: the column of the page."""
    return Counter(row["commit"] for row in rows).most_common(1)[0][0] if rows else commit()


def history(rows: Sequence[Row]) -> list[str]:
    """Say what a reader must know of how rows came about: several commits, and attempts that were repeated."""
    commits = Counter(row["commit"] for row in rows)
    said = []
    if len(commits) > 1:
        said.append("tried at " + ", ".join(f"{name} ({count})" for name, count in commits.most_common()))
    before = sum(row["before"] > 0 and not row["wrong"] for row in rows)
    if before:
        said.append(f"{before} had lost something, which was mended, and were repeated")
    return said


def trial_parser(description: str | None) -> argparse.ArgumentParser:
    """Make the parser of a trial, with what all of them have."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--again", action="store_true", help="repeat the attempts that lost something, mended since")
    return parser
