"""Kill the MLflow server at random moments while commands train, and compare what it holds in the end.

python -m tests.faults.servers --count 20
python -m tests.faults.servers --count 20 --part 1/2        # every second trial; another process may try the others

The server comes back after 5 s, after 60 s, or only when the command has ended; in some trials the command is ended by
Ctrl-C meanwhile, and resumed. Every point, table and weight is compared with a run that nothing disturbed, the length
of every outer step with and without the server is measured, and the password of the address is looked for in all that
was written. The server is forked from a process that has MLflow imported; in some trials it is the command `mlflow
server`. The same command goes on where it was stopped.
"""

import json
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.kills import EXPERIMENT, make_template
from tests.faults.launching import Started, start, warm_up
from tests.faults.mlflow_server import PASSWORD, Server, warm_up_server
from tests.faults.record import Log, Record, Row, commits_of, end_cleanly, history, trial_parser, write_record
from tests.faults.stored import StoredRun, differences, read_store

MAML = (
    "maml --task digits --ways 2 --queries 2 --test-queries 3 --iterations 50 --meta-batch 3 --inner-steps 1 "
    "--validate-every 2 --test-episodes 5 --validation-episodes 4 --no-record-steps"
)
COMMANDS = {"maml": MAML, "compare": "compare tiny.toml --workers 2"}
AWAY = {"5 s": 5.0, "60 s": 60.0, "never": None, "Ctrl-C": None}  # seconds until the server is started again
KINDS = ("5 s", "never", "60 s", "Ctrl-C", "5 s", "never", "Ctrl-C")  # of trials, in turn
SLOWER, REAL_EVERY, PATIENCE = 1.1, 10, 400.0
FIRST, FEWEST = 5, 8  # steps that warm up and are not timed; that a median is taken of
SLEEP = {"60 s": 1.5}  # seconds after an outer step, so that the command trains for as long as the server is away


def slowed(folder: Path, seconds: float) -> Callable[[], None]:
    """Give what makes a command write the length of its outer steps to a file, and pause after each."""

    def prepare() -> None:
        from arelu_meta.learners.learner import Learner

        meta_step = Learner.meta_step

        def timed(*arguments: Any, **options: Any) -> Any:
            began = time.monotonic()
            result = meta_step(*arguments, **options)
            ended = time.monotonic()
            with (folder / "steps.txt").open("a") as file:
                file.write(f"{ended} {ended - began}\n")
            time.sleep(seconds)
            return result

        Learner.meta_step = timed  # type: ignore[method-assign]

    return prepare


class Trial:
    """One command against one server, in a folder of their own."""

    def __init__(self, folder: Path, command: str, template: Path, *, kind: str = "5 s", real: bool = False) -> None:
        folder.mkdir()
        (folder / "tiny.toml").write_text(EXPERIMENT)
        (folder / "server").mkdir()
        self.folder, self.command, self.kind = folder, command, kind
        self.words = COMMANDS[command].split()
        self.server = Server(folder / "server", template=template, fork=not real).start().wait()
        self.up: list[float] = []  # lengths of outer steps while the server answered, and while it did not
        self.away: list[float] = []
        self.interrupted_after = 0.0

    def begin(self, name: str, *more: str) -> Started:
        """Start the command."""
        variables = {"MLFLOW_TRACKING_URI": self.server.address, "ARELU_META_RUNS": str(self.folder / "runs")}
        prepare = slowed(self.folder, SLEEP.get(self.kind, 0.0))
        return start([*self.words, *more], self.folder, name, variables, pictures=False, prepare=prepare)

    def run(self, moment: float) -> list[str]:
        """Kill the server at a moment, and bring all to its end; gives what is wrong."""
        started = self.begin("first")
        code = started.wait(moment)
        self.server.kill()
        gone, back = time.monotonic(), AWAY[self.kind]
        if self.kind == "Ctrl-C" and code is None:
            started.wait(2.0)
            asked = time.monotonic()
            os.kill(started.pid, signal.SIGINT)
            code = started.wait(PATIENCE)
            self.interrupted_after = time.monotonic() - asked
        elif back is not None:
            code = started.wait(back) if code is None else code
            time.sleep(max(0.0, gone + back - time.monotonic()))
            self.server.start()
        returned = time.monotonic() if back is not None else float("inf")
        code = started.wait(PATIENCE) if code is None else code
        if back is None:
            self.server.start()
        self.server.wait()
        self._read_steps(gone, returned)
        return self._settle(started, code)

    def _settle(self, started: Started, code: int | None) -> list[str]:
        """Do what a user does when the server is back."""
        wrong = ["a traceback was printed"] if "Traceback" in started.err else []
        if code is None:
            started.kill()
            return [*wrong, "it hangs"]
        allowed = (0, 1, 130) if self.command == "compare" else (130,) if self.kind == "Ctrl-C" else (0,)
        refused = code == 2 and not (self.folder / "steps.txt").exists()  # away from the start: said before it trains
        if code not in allowed and not refused and not (code == 0 and self.kind == "Ctrl-C"):
            wrong.append(f"exit code {code}: {started.err.strip()[-300:]}")
        if self.interrupted_after > 1.0:
            wrong.append(f"Ctrl-C took {self.interrupted_after:.1f} s")
        if code != 0:
            last = self.begin("again", *(() if self.command == "compare" else ("--resume",)))
            if last.wait(PATIENCE) != 0:
                wrong.append(f"run again: {last.err.strip()[-300:]}")
        variables = {"MLFLOW_TRACKING_URI": self.server.address, "ARELU_META_RUNS": str(self.folder / "runs")}
        flushed = start(["store.__main__", "flush"], self.folder, "flush", variables)
        if flushed.wait(PATIENCE) != 0:
            wrong.append(f"flush: {flushed.err.strip()[-300:]}")
        return wrong

    def _read_steps(self, gone: float, returned: float) -> None:
        steps = self.folder / "steps.txt"
        for line in steps.read_text().splitlines()[FIRST:] if steps.exists() else []:
            ended, seconds = map(float, line.split())
            (self.away if gone <= ended - seconds and ended <= returned else self.up).append(seconds)

    def stored(self) -> dict[str, StoredRun]:
        """Read what the server has, by the keys of its runs; a finished one before others of its key."""
        runs = read_store(self.server.path, self.folder / "server")
        return {run.key: run for run in sorted(runs, key=lambda run: run.status == "FINISHED") if not run.deleted}

    def wrong_in_store(self, reference: dict[str, StoredRun]) -> list[str]:
        """Compare with an undisturbed run, and look for the password."""
        runs, wrong = self.stored(), []
        left = [run for run in read_store(self.server.path, self.folder / "server") if run.status == "RUNNING"]
        wrong += [f"{run.name} is left RUNNING" for run in left if not run.deleted]
        for key, whole in reference.items():
            found = runs.get(key)
            if found is None or found.status != "FINISHED":
                wrong.append(f"{whole.name} is {found.status if found else 'missing'}")
            else:
                wrong += [f"{whole.name}: {line}" for line in differences(found, whole)]
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        wrong += [f"the password is in {path.name}" for path in files if PASSWORD.encode() in path.read_bytes()]
        return wrong


def undisturbed(command: str, kind: str, place: Path, template: Path) -> tuple[float, dict[str, StoredRun]]:
    """Run a command with its server there all the time: its length, and what it stored."""
    trial = Trial(place / f"{command}-{kind}-whole", command, template, kind=kind)
    started = trial.begin("whole")
    code = started.wait(PATIENCE)
    seconds, runs = time.monotonic() - started.began, trial.stored()
    trial.server.kill()
    if code != 0:
        raise RuntimeError(f"{command} ended with {code} where nothing disturbed it: {started.err[-500:]}")
    return seconds, runs


class Trials:
    """All trials of one process: the undisturbed runs that they are compared with are made once."""

    def __init__(self, seed: int) -> None:
        self.place, self._seed = Path(tempfile.mkdtemp(prefix="arelu_meta-servers-")), seed
        self._template = make_template(self.place)
        self._references: dict[tuple[str, str], tuple[float, dict[str, StoredRun]]] = {}

    def run(self, number: int) -> Row:
        """Make one trial; gives what came of it."""
        kind = KINDS[number % len(KINDS)]
        command = "compare" if number % 4 == 3 else "maml"
        pace = kind if kind in SLEEP else "5 s"
        if (command, pace) not in self._references:
            self._references[command, pace] = undisturbed(command, pace, self.place, self._template)
        seconds, runs = self._references[command, pace]
        moment = random.Random(f"servers/{self._seed}/{number}").random() * seconds  # noqa: S311
        folder, began = self.place / str(number), time.monotonic()
        real = number % REAL_EVERY == REAL_EVERY - 1
        trial = Trial(folder, command, self._template, kind=kind, real=real)
        try:
            wrong = [*trial.run(moment), *trial.wrong_in_store(runs)]
        finally:
            trial.server.kill()
        if not wrong:
            shutil.rmtree(folder)
        row = {"number": number, "seed": self._seed, "command": command, "back": kind, "moment": round(moment, 2)}
        if command == "maml" and kind not in SLEEP and min(len(trial.up), len(trial.away)) >= FEWEST:
            row["ratio"] = statistics.median(trial.away) / statistics.median(trial.up)
            row["steps"] = len(trial.away)
        row |= {"interrupted": round(trial.interrupted_after, 2), "load": round(os.getloadavg()[0], 1)}
        return {**row, "seconds": round(time.monotonic() - began, 1), "wrong": wrong}


def main() -> int:
    """Try, print a line per trial, write the record; 1 where anything was lost."""
    parser = trial_parser(__doc__)
    parser.add_argument("--count", type=int, default=20, help="times that the server is killed [20]")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--part", default="1/1", help="2/3: the second of three parts of the trials")
    given = parser.parse_args()
    part, parts = map(int, given.part.split("/"))
    log = Log("servers", ("number", "seed"))
    warm_up()
    warm_up_server()
    end_cleanly()
    trials = Trials(given.seed)
    for number in range(part - 1, given.count, parts):
        if not log.is_done(again=given.again, number=number, seed=given.seed):
            row = trials.run(number)
            log.add(row)
            sys.stdout.write(json.dumps(row) + "\n")
            sys.stdout.flush()
    lost = write_records(log.rows(seed=given.seed), f"python -m tests.faults.servers --count {given.count}")
    sys.stdout.write(f"{lost} lost, in {trials.place}\n" if lost else "nothing was lost\n")
    return 1 if lost else 0


def write_records(rows: list[Row], command: str) -> int:
    """Write what was lost, and how long steps and interruptions took; gives the number of trials that lost anything."""
    loads = f"load {min(row['load'] for row in rows):.0f} to {max(row['load'] for row in rows):.0f} on {os.cpu_count()}"
    often = ", ".join(f"{kind} {sum(row['back'] == kind for row in rows)} times" for kind in AWAY)
    longest = max(row["interrupted"] for row in rows)
    lost = sum(bool(row["wrong"]) for row in rows)
    compared = sum(row["command"] == "compare" for row in rows)
    write_record(
        Record(
            name="servers",
            promise="An MLflow server that goes away loses no point and doubles none, and its password is never seen.",
            how="The server is killed at a random moment of maml or compare, and comes back after 5 s, 60 s, or after "
            "the end (then `store flush`, or the same command again); in some trials Ctrl-C meanwhile, which must end "
            "the command within a second, then `--resume`. All points, tables and weights are compared with those of "
            "an undisturbed run; the password is looked for in stdout, stderr, the store and all files.",
            command=command,
            commits=commits_of(rows),
            lost=lost,
            notes="; ".join(
                [
                    f"{often}, {compared} of them with compare; Ctrl-C took {longest:.2f} s at most ({loads} cores)",
                    *(f"lost in trial {row['number']}: {row['wrong'][0][:200]}" for row in rows if row["wrong"]),
                    *history(rows),
                ]
            ),
            seed=rows[0]["seed"],
        )
    )
    timed = [row for row in rows if "ratio" in row]
    if timed:
        ratios = [row["ratio"] for row in timed]
        ratio = statistics.median(ratios)
        write_record(
            Record(
                name="servers_steps",
                promise="While the server is away, a training step takes as long as before.",
                how="Outer steps of maml are timed in the trials above. Lost: the median of a trial while the server "
                f"is away, over that while it answered, is in the median over trials above {SLOWER}.",
                command=command,
                commits=commits_of(timed),
                lost=0 if ratio <= SLOWER else len(ratios),
                notes=f"{ratio:.2f} times, {min(ratios):.2f} to {max(ratios):.2f} in single trials, "
                f"{sum(row['steps'] for row in timed)} steps while away; {loads} cores",
                seed=rows[0]["seed"],
            )
        )
    return lost


if __name__ == "__main__":
    sys.exit(main())
