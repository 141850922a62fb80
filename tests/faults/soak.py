"""Long trainings: memory must not grow, and no thread or open file be left behind by a step.

python -m tests.faults.soak                     # 2,000 outer steps, recorded and not, and 50 epochs
python -m tests.faults.soak --only classify

Each training runs in a process of its own, with validation, checkpoints and a store. After the first fifth (allocators
and caches have what they need by then) memory, threads and open files are compared with those of the last twentieth.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from tests.faults.record import Log, Record, Row, commits_of, end_cleanly, history, trial_parser, write_record

MOST_GROWTH = 1.0  # per cent
TRAININGS = ("maml", "maml without recording", "classify")


@dataclass
class Watch:
    """A progress bar that notes what the process holds after every step of one stage."""

    stage: str
    memory: list[int] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)
    files: list[int] = field(default_factory=list)

    @contextmanager
    def __call__(self, description: str, _total: int) -> Iterator[Any]:
        yield self.look if description == self.stage else lambda _note: None

    def look(self, _note: str = "") -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        self.memory.append(pages * os.sysconf("SC_PAGE_SIZE"))
        self.threads.append(len(os.listdir("/proc/self/task")))
        self.files.append(len(os.listdir("/proc/self/fd")))

    def found(self) -> dict[str, float]:
        """Growth of memory in per cent, and of threads and open files, from after the start to the end."""
        few, fifth = max(1, len(self.memory) // 20), len(self.memory) // 5
        early, late = slice(fifth, fifth + few), slice(-few, None)
        before, after = median(self.memory[early]), median(self.memory[late])
        return {
            "steps": len(self.memory),
            "mib": after / 2**20,
            "growth": 100 * (after / before - 1),
            "threads": median(self.threads[late]) - median(self.threads[early]),
            "files": median(self.files[late]) - median(self.files[early]),
        }


def train(training: str, *, steps: int, epochs: int) -> Watch:
    """Train in this process, in the working folder."""
    from arelu_meta import kinds
    from arelu_meta.kinds.execution import EpisodeExecution, Execution
    from tests.supervised_runs import classify_spec
    from tests.tiny_runs import tiny_spec

    if training == "classify":
        watch = Watch("train")
        kinds.run(classify_spec(training={"epochs": epochs}), Execution(threads=1), bar=watch)
    else:
        watch = Watch("meta-train")
        spec = tiny_spec(iterations=steps, validate_every=max(1, steps // 20))
        kinds.run(spec, EpisodeExecution(threads=1, record_steps=training == "maml"), bar=watch)
    return watch


def main(argv: Sequence[str] | None = None) -> int:
    """Train, write the record and say what was found; 1 where something grew."""
    parser = trial_parser(__doc__)
    parser.add_argument("--steps", type=int, default=2000, help="outer steps [2000]")
    parser.add_argument("--epochs", type=int, default=50, help="[50]")
    parser.add_argument("--only", choices=TRAININGS, help="one of the trainings")
    parser.add_argument("--here", action="store_true", help="train in this process and print what was found as JSON")
    given = parser.parse_args(argv)
    if given.here:
        sys.stdout.write(json.dumps(train(given.only, steps=given.steps, epochs=given.epochs).found()) + "\n")
        return 0
    end_cleanly()
    size, log = {"steps": given.steps, "epochs": given.epochs}, Log("soak", ("training", "steps", "epochs"))
    for training in (given.only,) if given.only else TRAININGS:
        if log.is_done(again=given.again, training=training, **size):
            continue
        start, found = time.monotonic(), _in_a_process(training, given.steps, given.epochs)
        grown = found["growth"] >= MOST_GROWTH or found["threads"] >= 1 or found["files"] >= 1
        line = (
            f"{training}, {found['steps']:.0f} steps: {found['growth']:+.2f} % of {found['mib']:.0f} MiB, "
            f"{found['threads']:+.0f} threads, {found['files']:+.0f} open files"
        )
        seconds = round(time.monotonic() - start, 1)
        log.add({"training": training, **size, "line": line, "seconds": seconds, "wrong": [line] if grown else []})
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    record = _record(log.rows(**size), given.steps, given.epochs)
    write_record(record)
    return 1 if record.lost else 0


def _record(rows: list[Row], steps: int, epochs: int) -> Record:
    """Put the trainings together."""
    return Record(
        name="soak",
        promise="A long training takes no more memory, threads or open files at its end than at its start.",
        how=f"{steps:,} outer steps of maml, recorded and not, and {epochs} epochs of classify; what the process holds "
        f"after the first fifth and at the end. Lost: {MOST_GROWTH:g} % of memory, a thread or a file more.",
        command="python -m tests.faults.soak",
        commits=commits_of(rows),
        lost=sum(bool(row["wrong"]) for row in rows),
        notes="; ".join([*(row["line"] for row in rows), *history(rows)]),
    )


def _in_a_process(training: str, steps: int, epochs: int) -> dict[str, float]:
    words = ["--here", "--only", training, "--steps", str(steps), "--epochs", str(epochs)]
    with tempfile.TemporaryDirectory() as folder:
        own = {"PYTHONPATH": os.getcwd(), "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db"}
        done = subprocess.run(
            [sys.executable, "-m", "tests.faults.soak", *words],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", **own},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return dict(json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    sys.exit(main())
