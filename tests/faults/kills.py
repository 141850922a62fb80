"""Kill commands at random moments, resume them as a user would, and compare with a run that nothing disturbed.

python -m tests.faults.kills --count 50
python -m tests.faults.kills --only maml,compare --count 5 --seed 3

Each trial has a folder and an SQLite store of its own. The command is killed by SIGKILL, with all its processes, at a
moment drawn uniformly over the length of the undisturbed run; it is run again with `--resume`, in some trials killed a
second time; then every point, table and weight in the store is compared. Most trials fork from a process that has
torch imported; some are new interpreters, some begin without a store. The same command goes on where it was stopped;
two processes with other commands in `--only` may run at once.
"""

import argparse
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.launching import Started, start, warm_up
from tests.faults.record import Log, Record, Row, commits_of, end_cleanly, history, trial_parser, write_record
from tests.faults.stored import StoredRun, differences, read_store

EXPERIMENT = """
summary = "two arms"
title = "two arms"
question = "which"
task = "digits"
seeds = "0-1"
[settings]
episode = {ways = 2, queries = 2, test_queries = 3}
training = {iterations = 6, meta_batch = 3, inner_steps = 1}
evaluation = {test_episodes = 5, validation_episodes = 4, validate_every = 1}
[grid]
network.activation = ["relu", "arelu"]
[report]
arm = "activation"
baseline = "relu"
"""
SMALL = "--limit-train 128 --limit-test 64 --epochs 12"
COMMANDS = {  # by the name that is killed: what is run, each of some seconds and with a checkpoint every moment
    "maml": "maml --task digits --ways 2 --queries 2 --test-queries 3 --iterations 16 --meta-batch 3 --inner-steps 1 "
    "--validate-every 1 --test-episodes 5 --validation-episodes 4",
    "finetune": f"finetune --model mnist_conv --data digits {SMALL}",
    "classify": f"classify --task digits_classify {SMALL}",
    "segment": "segment --task phantom --limit-train 4 --limit-test 4 --filters 2 --epochs 6",
    "adapt": "adapt --data digits --model mnist_conv --weights none --shots 5 --test-per-class 4 --draws 3",
    "compare": "compare tiny.toml --workers 2",
}
REAL_EVERY, COLD_EVERY, AGAIN = 25, 7, 0.4  # trials that are new interpreters, that have no store; a second kill
PATIENCE = 600.0  # seconds that a resumed command may take before it is said to hang


@dataclass(frozen=True)
class Reference:
    """A run that nothing disturbed: its length in seconds, and its finished runs by their keys."""

    seconds: float
    runs: dict[str, StoredRun]


def _environment(folder: Path) -> dict[str, str]:
    return {"MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}", "ARELU_META_RUNS": str(folder / "runs")}


def _begin(words: list[str], folder: Path, name: str, **how: Any) -> Started:
    (folder / "tiny.toml").write_text(EXPERIMENT)
    return start(words, folder, name, _environment(folder), pictures=False, **how)


def _runs(folder: Path) -> list[StoredRun]:
    return [run for run in read_store(folder / "mlflow.db", folder) if not run.deleted]


def undisturbed(words: list[str], folder: Path, template: Path, *, real: bool) -> Reference:
    """Run a command to its end, and keep what it stored."""
    folder.mkdir()
    shutil.copy(template, folder / "mlflow.db")
    started = _begin(words, folder, "whole", real=real)
    code = started.wait(PATIENCE)
    seconds = time.monotonic() - started.began
    if code != 0:
        raise RuntimeError(f"{' '.join(words)} ended with {code} where nothing disturbed it: {started.err[-500:]}")
    return Reference(seconds, {run.key: run for run in _runs(folder)})


def judge(folder: Path, reference: Reference, ended: Started, code: int | None) -> list[str]:
    """Say what is wrong after the last command of a trial."""
    if code != 0:
        ended.kill() if code is None else None
        return [f"{ended.name} ended with {code}: {(ended.err.strip().splitlines() or [''])[-1][-300:]}"]
    wrong = ["a traceback was printed"] if "Traceback" in ended.err else []
    runs = _runs(folder)
    wrong += [f"run {run.name} is left {run.status}" for run in runs if run.status not in ("FINISHED", "FAILED")]
    for key, whole in reference.runs.items():
        finished = [run for run in runs if run.key == key and run.status == "FINISHED"]
        # Killed after the run had ended, the command starts a new one, as it says: both count.
        if not finished or (len(finished) > 1 and ended.name.startswith("compare")):
            wrong.append(f"{len(finished)} finished runs of {whole.name}")
        for run in finished:
            wrong += [f"{run.name}: {line}" for line in differences(run, whole)]
    left = [
        *folder.glob("runs/**/*.partial"),
        *folder.glob(".mlflow-new-*"),
        *folder.glob("runs/*/journal/*/sent.json"),
    ]
    return wrong + [f"{path.relative_to(folder)} is left" for path in left if _is_left(path)]


def _is_left(path: Path) -> bool:
    """Tell whether a file is left behind; the journal of a run that ended without a result is kept, all sent."""
    if path.name != "sent.json":
        return True
    from arelu_meta.store.journal import Journal

    journal = Journal.open(path.parent)
    return journal.next is not None or journal.status not in ("FAILED", "KILLED")


def _kill(started: Started, kind: str) -> None:
    """Kill all processes of a command, or of a comparison the runner or a worker alone."""
    workers = started.workers()
    if kind == "runner":
        os.kill(started.pid, 9)
    elif kind == "worker" and workers:
        os.kill(workers[0], 9)
    else:
        started.kill()


def trial(command: str, number: int, seed: int, folder: Path, template: Path, reference: Reference) -> Row:
    """Kill a command once or twice, resume it, and compare."""
    draw = random.Random(f"{command}/{seed}/{number}")  # noqa: S311
    words = COMMANDS[command].split()
    again = words if command == "compare" else [*words, "--resume"]
    real = number % REAL_EVERY == REAL_EVERY - 1
    cold = number % COLD_EVERY == COLD_EVERY - 1
    kind = draw.choices(["all", "runner", "worker"], [0.7, 0.15, 0.15])[0] if command == "compare" else "all"
    moments = [draw.random() * reference.seconds for _ in range(2 if draw.random() < AGAIN else 1)]
    folder.mkdir()
    if not cold:
        shutil.copy(template, folder / "mlflow.db")
    killed = 0
    started, code = None, None
    for position, moment in enumerate([*moments, PATIENCE]):
        started = _begin(words if position == 0 else again, folder, f"{command}{position}", real=real)
        code = started.wait(moment)
        if position == len(moments):
            break
        if code is None:
            _kill(started, kind)
            killed += 1
            code = started.wait(PATIENCE)
        if code == 0:
            break  # it had ended before it was to be killed, or went on without its worker
    wrong = judge(folder, reference, started, code) if started else []
    how = {
        "real": real,
        "cold": cold,
        "kill": kind,
        "moments": [round(moment, 3) for moment in moments],
    }
    return {"command": command, "number": number, "seed": seed, "killed": killed, **how, "wrong": wrong}


def trials(command: str, given: argparse.Namespace, log: Log, template: Path, place: Path) -> Iterator[Row]:
    """Give the trials of a command that are not done yet, until so many runs were killed."""
    mine = [row for row in log.rows(command=command, seed=given.seed) if not (given.again and row["wrong"])]
    counted, known, number = sum(row["killed"] > 0 for row in mine), {row["number"] for row in mine}, 0
    references: dict[bool, Reference] = {}
    while counted < given.count:
        if number in known:
            number += 1
            continue
        real = number % REAL_EVERY == REAL_EVERY - 1
        if real not in references:
            folder = place / f"{command}-whole-{number}"
            references[real] = undisturbed(COMMANDS[command].split(), folder, template, real=real)
            shutil.rmtree(folder)
        folder = place / f"{command}-{number}"
        began, used = time.monotonic(), processor_seconds()
        found = trial(command, number, given.seed, folder, template, references[real])
        found["seconds"] = round(time.monotonic() - began, 1)
        found["processor"] = round(processor_seconds() - used, 1)
        if not found["wrong"]:
            shutil.rmtree(folder)
        counted += found["killed"] > 0
        number += 1
        yield found


def processor_seconds() -> float:
    """Give the processor time of the commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def make_template(folder: Path) -> Path:
    """Make a store with its tables, in a process of its own."""
    from arelu_meta.store.connection import open_store

    path = folder / "template.db"
    child = os.fork()
    if not child:
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{path}"
        open_store("arelu_meta")
        os._exit(0)
    os.waitpid(child, 0)
    return path


def _record(command: str, given: argparse.Namespace, log: Log) -> Record:
    """Put the trials of one command together."""
    mine = [row for row in log.rows(command=command, seed=given.seed) if row["killed"]]
    kills = sum(row["killed"] for row in mine)
    notes = f"{kills} kills; {sum(row['real'] for row in mine)} trials as new interpreters, the others forked with "
    notes += f"figures left out; {sum(row['cold'] for row in mine)} began without a store"
    if command == "compare":
        alone = {kind: sum(row["kill"] == kind for row in mine) for kind in ("runner", "worker")}
        notes += f"; the runner alone was killed in {alone['runner']} of them, a worker in {alone['worker']}"
    return Record(
        name=f"kills_{command}",
        promise=f"`{command}` killed at any moment (kill -9) and run again ends as if it had never been killed.",
        how="Killed at a random moment, in four of ten trials twice, then run again"
        + ("" if command == "compare" else " with `--resume`")
        + "; every metric of every step, the tables and the weights are compared with an undisturbed run, each step is "
        "there once, no run is left RUNNING.",
        command=f"python -m tests.faults.kills --count {given.count} --only {command}",
        commits=commits_of(mine),
        lost=sum(bool(row["wrong"]) for row in mine),
        notes="; ".join([notes, *history(mine)]),
        seed=given.seed,
    )


def main() -> int:
    """Try, print a line per trial, and write a record per command; 1 where anything was lost."""
    parser = trial_parser(__doc__)
    parser.add_argument("--count", type=int, default=50, help="killed runs of each command [50]")
    parser.add_argument("--only", default=",".join(COMMANDS), help="commands, separated by commas")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    given = parser.parse_args()
    log = Log("kills", ("command", "seed", "number"))
    warm_up()
    place = Path(tempfile.mkdtemp(prefix="arelu_meta-kills-"))
    template, commands = make_template(place), given.only.split(",")
    waiting = {command: trials(command, given, log, template, place) for command in commands}
    end_cleanly()  # the records are written all the same
    try:
        while waiting:  # one of each in turn, so that all have been tried about as often at any time
            for command in list(waiting):
                found = next(waiting[command], None)
                if found is None:
                    del waiting[command]
                    continue
                log.add(found)
                verdict = "; ".join(found["wrong"][:4]) or ("same" if found["killed"] else "ended before it was killed")
                sys.stdout.write(f"{command} {found['number']} {found['moments']} {found['seconds']} s: {verdict}\n")
                sys.stdout.flush()
    finally:
        records = [_record(command, given, log) for command in commands]
        for record in records:
            if record.tried:
                write_record(record)
    lost = sum(record.lost for record in records)
    sys.stdout.write(f"what was lost is in {place}\n" if lost else "nothing was lost\n")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
