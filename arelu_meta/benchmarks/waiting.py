"""A MAML step on an idle and on a busy machine, by how the threads of OpenMP wait for each other.

How they wait is settled when torch is loaded, so each way has a process of its own; they take turns.
"""

import os
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from arelu_meta.benchmarks.report import BenchReport, Row
from arelu_meta.errors import RunError
from arelu_meta.runtime.hardware import usable_cores
from arelu_meta.runtime.waiting import SPIN_COUNT, THREAD_VARIABLES, WAITING_VARIABLES

PER_CORE = 2  # busy processes
IDLE_REPEATS, BUSY_REPEATS = 9, 3
LONGEST = 30.0  # seconds that one step is waited for
# Ends with the process that started it, however that ends.
BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: sum(range(100_000))"
STEP = """
import sys
from arelu_meta.benchmarks.meta_step import Setting
from arelu_meta.runtime.hardware import keep_freed_memory
with keep_freed_memory():
    step = Setting().step(record=True)
    step(), step()
    for _ in iter(lambda: (print("done", flush=True), sys.stdin.readline())[1], ""):
        step()
"""


def bench_waiting(_root: str | None = None) -> Iterator[BenchReport]:
    """Compare as commands set it with one thread, torch's default, and passive waiting; then again beside others."""
    cores = usable_cores()
    bounded = {"GOMP_SPINCOUNT": SPIN_COUNT}
    ways = {
        f"bounded spinning, {cores} threads": bounded,
        "bounded spinning, 1 thread": {**bounded, "OMP_NUM_THREADS": "1"},
        "torch's default": {},
        "OMP_WAIT_POLICY=passive": {"OMP_WAIT_POLICY": "passive"},
    }
    with ExitStack() as stack:
        steps = {name: stack.enter_context(_stepper(variables)) for name, variables in ways.items()}
        idle = times_in_turns(steps, IDLE_REPEATS)
        yield BenchReport("MAML step, mnist_conv, 32 episodes, idle machine", _rows(idle, ""))
        count = PER_CORE * cores
        for _ in range(count):
            stack.enter_context(_process(BUSY, {}))
        busy = times_in_turns(steps, BUSY_REPEATS)
    load = (count + cores) / cores  # processes and threads for each core
    share = load * min(idle[next(iter(ways))])
    title = f"the same beside {count} busy processes; its share of the machine would be {1000 * share:.0f} ms"
    yield BenchReport(title, _rows(busy, "{:.1f} of its share, ", share))


class Stepper:
    """A process that takes a step whenever it is told to."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._wait(10 * LONGEST)  # until it has loaded, and recorded the step

    def __call__(self) -> float:
        """Take a step and give its seconds; `LONGEST` where it does not end in that time, and from then on."""
        if self._process.stdin is None or self._process.poll() is not None:
            return LONGEST
        start = time.perf_counter()
        self._process.stdin.write("step\n")
        self._process.stdin.flush()
        if self._wait(LONGEST):
            return time.perf_counter() - start
        self._process.kill()
        return LONGEST

    def _wait(self, seconds: float) -> bool:
        output = self._process.stdout
        if output is None or not select.select([output], [], [], seconds)[0]:
            return False
        if not output.readline():
            raise RunError(f"a process of the benchmark ended with {self._process.wait()}")
        return True


@contextmanager
def _process(code: str, variables: Mapping[str, str]) -> Iterator["subprocess.Popen[str]"]:
    """Run Python with these variables and no others about threads, until the end of the block."""
    chosen = (*WAITING_VARIABLES, *THREAD_VARIABLES)
    environment = {name: value for name, value in os.environ.items() if name not in chosen}
    environment |= variables
    pipe = subprocess.PIPE
    with subprocess.Popen(  # noqa: S603  (our own code)
        [sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def _stepper(variables: Mapping[str, str]) -> Iterator[Stepper]:
    with _process(STEP, variables) as process:
        yield Stepper(process)


def times_in_turns(steps: Mapping[str, Stepper], repeats: int) -> dict[str, list[float]]:
    """Give the seconds of every step, by name."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats):
        for name, step in steps.items():
            seconds[name].append(step())
    return seconds


def _rows(seconds: Mapping[str, list[float]], share_note: str, share: float = 1.0) -> list[Row]:
    """Make rows by minima, with the median beside."""
    ours, rows = min(next(iter(seconds.values()))), []
    for name, values in seconds.items():
        note = f"median {1000 * statistics.median(values):.0f} ms of {len(values)}"
        if min(values) >= LONGEST:
            note = f"no step ended in {LONGEST:.0f} s"
        rows.append(Row(name, min(values), min(values) / ours, share_note.format(min(values) / share) + note))
    return rows
