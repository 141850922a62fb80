"""docs/reliability.md, written from the records of trials."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.faults.record import RECORDS

COLUMNS = ("promise", "how it is tested", "tried", "lost", "command", "commit", "notes")
INTRODUCTION = """# Reliability

Sweeps run for nights, on machines that are shared, on stores that restart. What you can rely on:

- A command that is killed at any moment goes on with `--resume` (a comparison when it is run again), and ends with the
  metrics and weights that it would have had. Nothing has to be repaired by hand.
- Training does not depend on the MLflow store. What a store misses is sent when it answers again, or by
  `python -m arelu_meta.store flush`, each point once ([tracking](tracking.md#when-the-store-does-not-answer)).
- Commands may start at the same moment: on a store that is not there yet, on one server, in one folder.
- A damaged file is refused in one line, and runs no code ([what files can do](security.md)).

Not promised:

- That a disk which loses power has what it said it had written. Journals and checkpoints are flushed to the disk
  (`fsync`) before a run goes on; the rest is up to the disk. No power was cut in these trials.
- Run folders or SQLite stores on network file systems (NFS, SMB) whose locks do not work. Put the store on a server.
- The same last digits on a GPU, with another number of threads, or on another processor.
- That what others change or delete in `runs/` while a run is at work comes back. Checksums notice it, no more.

Below is what was tried, by the commands named, at the commits named: *tried* counts trials, *lost* those in which the
promise was not kept. `make faults` repeats all of it (hours) and writes this page; a single command repeats its row,
or with another `--seed` adds to it. The short versions are in `make test`.
"""


def read_records(folder: Path = RECORDS) -> list[dict[str, Any]]:
    """Read all records of a folder, in the order of their names."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def write_page(records: Sequence[dict[str, Any]]) -> str:
    """Make the page: a row for each record, and a sentence on what was lost."""
    rows = [_row(record) for record in records]
    failed = sum(row[COLUMNS.index("lost")] != "0" for row in rows)
    verdict = "Nothing was lost in any of them."
    if failed:
        verdict = f"**In {failed} of {len(records)} rows something was lost**; the number is in bold."
    lines = [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in (COLUMNS, ("---",) * len(COLUMNS), *rows)]
    return f"{INTRODUCTION}\n## What was tried\n\n{verdict}\n\n" + "\n".join(lines) + "\n"


def _row(record: dict[str, Any]) -> tuple[str, ...]:
    """Put the trials of one promise together; the commit is that of most of them, all others are in the notes."""
    trials = record["trials"]
    lost = sum(trial["lost"] for trial in trials)
    commits = sum((Counter(trial["commits"]) for trial in trials), Counter[str]()).most_common()
    notes = [f"seed {trial['seed']}: {trial['notes']}" if trials[1:] else trial["notes"] for trial in trials]
    if len(commits) > 1:
        notes.append("tried at " + ", ".join(f"{name} ({count:,})" for name, count in commits))
    return (
        record["promise"],
        record["how"],
        f"{sum(count for _, count in commits):,}",
        f"**{lost:,}**" if lost else "0",
        ", ".join(f"`{trial['command']}{_seed(trial)}`" for trial in trials),
        commits[0][0],
        "; ".join(filter(None, notes)),
    )


def _seed(trial: dict[str, Any]) -> str:
    return f" --seed {trial['seed']}" if trial["seed"] else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
