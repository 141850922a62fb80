"""One view over all cells of a comparison, with the time left: live on a terminal, a line per cell elsewhere."""

import sys
import time
from types import TracebackType
from typing import Any

from arelu_meta import kinds
from arelu_meta.comparison.grid import Cell
from arelu_meta.comparison.job import Outcome


class Overview:
    """Counts cells, the ones at work by the part they have done, and says how long the rest will take."""

    def __init__(self, total: int) -> None:
        self._total, self._ended, self._start = total, 0, time.monotonic()
        self._parts: dict[str, float] = {}
        self._stages: dict[str, list[str]] = {}
        self._notes: set[str] = set()
        self._live = _Live(total) if sys.stderr.isatty() else None

    def __enter__(self) -> "Overview":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, _kind: type | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        if self._live:
            self._live.stop()

    def begun(self, cell: Cell) -> None:
        """A worker has taken a cell."""
        self._parts[cell.label], self._stages[cell.label] = 0.0, []
        if self._live:
            self._live.show(cell.label, 0.0, "")
            self._live.overall(self.done, self.left())

    def advanced(self, cell: Cell, stage: str, done: int, total: int) -> None:
        """A cell has come so far in a stage of its run."""
        stages = self._stages.setdefault(cell.label, [])
        if stage not in stages:
            stages.append(stage)
        of = max(kinds.entry(str(cell.spec.flat()["kind"])).stages, len(stages))
        self._parts[cell.label] = (len(stages) - 1 + done / max(total, 1)) / of
        if self._live:
            self._live.show(cell.label, self._parts[cell.label], stage)
            self._live.overall(self.done, self.left())

    def ended(self, outcome: Outcome) -> None:
        """A cell has ended for good."""
        label = outcome.cell.label
        self._parts.pop(label, None)
        self._ended += 1
        took = f"{outcome.seconds:.0f} s" + ("  diverged" if outcome.diverged else "")
        what = took if outcome.finished else f"failed: {outcome.reason}"
        if self._live:
            self._live.hide(label)
            self._live.overall(self.done, self.left())
            if not outcome.finished:
                self._live.say(f"{label}  {what}")
            return
        left = self.left()
        rest = f"  {duration(left)} left" if left is not None and self._ended < self._total else ""
        self._say(f"{self._ended}/{self._total}  {label}  {what}{rest}")

    def noted(self, text: str) -> None:
        """Say something once."""
        if text not in self._notes:
            self._notes.add(text)
            self._say(text)

    @property
    def done(self) -> float:
        """Cells done, parts of cells included."""
        return self._ended + sum(self._parts.values())

    def left(self) -> float | None:
        """Seconds until all are done, if they go on as they did; None while nothing is done."""
        return (time.monotonic() - self._start) / self.done * (self._total - self.done) if self.done > 0 else None

    def _say(self, text: str) -> None:
        if self._live:
            self._live.say(text)
        else:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()


class _Live:
    """Bars on a terminal: all cells, and one for each at work."""

    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns: tuple[Any, ...] = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"))
        self._progress = Progress(*columns, console=Console(stderr=True))
        self._all = self._progress.add_task("all cells", total=total, note="")
        self._total, self._rows = total, {}  # type: int, dict[str, Any]

    def start(self) -> None:
        self._progress.start()

    def stop(self) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False)

    def overall(self, done: float, left: float | None) -> None:
        note = f"{done:.1f}/{self._total}" + (f"  {duration(left)} left" if left is not None else "")
        self._progress.update(self._all, completed=done, note=note)

    def show(self, label: str, part: float, stage: str) -> None:
        if label not in self._rows:
            self._rows[label] = self._progress.add_task(f"  {label}", total=1.0, note="")
        self._progress.update(self._rows[label], completed=part, note=stage)

    def hide(self, label: str) -> None:
        if label in self._rows:
            self._progress.remove_task(self._rows.pop(label))


def duration(seconds: float) -> str:
    """Write a time as people say it.

    >>> duration(42), duration(340), duration(9000)
    ('42 s', '6 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
