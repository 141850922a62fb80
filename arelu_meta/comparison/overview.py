"""Progress of all cells of a comparison, with the time left: bars on a terminal, a line per cell elsewhere."""

import sys
import time
from typing import Any

from arelu_meta import kinds
from arelu_meta.comparison.cells import Cell
from arelu_meta.comparison.worker import CellOutcome
from arelu_meta.console import output, progress


class Overview:
    """Counts cells, running ones by the part of them that is done, and shows how long the rest will take."""

    def __init__(self, total: int) -> None:
        self._total, self._ended, self._start = total, 0, time.monotonic()
        self._parts: dict[str, float] = {}  # done, of every cell that runs
        self._stages: dict[str, list[str]] = {}  # seen so far, of every cell that runs
        self._messages: set[str] = set()
        self._bars: Any = None  # rich's, on a terminal
        self._rows: dict[str, Any] = {}

    def __enter__(self) -> "Overview":
        if sys.stderr.isatty() and not output.is_quiet():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"))
            self._bars = Progress(*columns, console=Console(stderr=True))
            self._rows[""] = self._bars.add_task("all cells", total=self._total, note="")
            self._bars.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._bars:
            self._bars.stop()

    def on_start(self, cell: Cell) -> None:
        """A worker has started a cell."""
        self._parts[cell.label], self._stages[cell.label] = 0.0, []
        if self._bars and cell.label not in self._rows:
            self._rows[cell.label] = self._bars.add_task(f"  {cell.label}", total=1.0, note="")
        self._draw(cell.label, "")

    def on_progress(self, cell: Cell, stage: str, done: int, total: int) -> None:
        """A cell has done so many steps of a stage of its run."""
        stages = self._stages.setdefault(cell.label, [])
        if stage not in stages:
            stages.append(stage)
        stage_count = max(kinds.entry(cell.spec.kind).stages, len(stages))
        self._parts[cell.label] = (len(stages) - 1 + done / max(total, 1)) / stage_count
        self._draw(cell.label, stage)

    def on_end(self, outcome: CellOutcome) -> None:
        """A cell has ended and is not retried."""
        label = outcome.cell.label
        self._parts.pop(label, None)
        self._ended += 1
        result = f"{outcome.seconds:.0f} s" + ("  diverged" if outcome.diverged else "")
        if not outcome.has_result:
            result = f"failed: {outcome.reason}"
        if self._bars:
            if label in self._rows:
                self._bars.remove_task(self._rows.pop(label))
            self._draw()
            if not outcome.has_result:
                self._write(f"{label}  {result}")
            return
        left = self.left()
        rest = f"  {format_seconds(left)} left" if left is not None and self._ended < self._total else ""
        self._write(f"{self._ended}/{self._total}  {label}  {result}{rest}")

    def on_message(self, text: str) -> None:
        """Show a message, the same one once."""
        if text not in self._messages:
            self._messages.add(text)
            self._write(text)

    @property
    def done(self) -> float:
        """Cells done, parts of cells included."""
        return self._ended + sum(self._parts.values())

    def left(self) -> float | None:
        """Seconds until all are done, at the speed so far; None while nothing is done."""
        return (time.monotonic() - self._start) / self.done * (self._total - self.done) if self.done > 0 else None

    def _draw(self, label: str = "", stage: str = "") -> None:
        """Bring the bar of a cell and that of all cells up to date."""
        if self._bars is None:
            return
        if label in self._parts and label in self._rows:
            self._bars.update(self._rows[label], completed=self._parts[label], note=stage)
        left = self.left()
        note = f"{self.done:.1f}/{self._total}" + (f"  {format_seconds(left)} left" if left is not None else "")
        self._bars.update(self._rows[""], completed=self.done, note=note)

    def _write(self, text: str) -> None:
        if self._bars:
            self._bars.console.print(text, markup=False, highlight=False)
        else:
            progress.say(text)


def format_seconds(seconds: float) -> str:
    """Write a time in the unit that fits it.

    >>> format_seconds(42), format_seconds(340), format_seconds(9000)
    ('42 s', '6 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
