"""What a long trial found, as a file: `make faults` writes docs/reliability.md from these.

A trial is a module of this folder, run by `python -m tests.faults.NAME`: it tries a promise many times, counts what was
lost, and calls `write_record`. One file per trial and promise, so that a trial can be repeated alone.
"""

import json
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

RECORDS = Path("runs") / "faults"  # below the folder that the trial runs in, as all that runs leave behind


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


def commit() -> str:
    """Name the commit of the checkout, with what is not committed."""
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def write_record(record: Record, folder: Path = RECORDS) -> Path:
    """Write one record, with the commit that it was measured at."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{record.name}.json"
    path.write_text(json.dumps({**asdict(record), "commit": commit()}, indent=2) + "\n")
    return path
