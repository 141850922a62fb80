"""What goes to a worker and what comes back. Nothing here imports torch: workers do when they start."""

from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from arelu_meta.comparison.grid import Cell
from arelu_meta.kinds.execution import Execution

TRIES = 2  # of a cell that fails: once more, then it is reported
LIVES = 4  # of a cell whose worker dies under it
PATIENCE = 30.0  # seconds a worker has to close its run when the runner is interrupted
SECONDS = "comparison.seconds"  # tag of a cell's run: how long its worker was at it


@dataclass(frozen=True)
class Job:
    """A cell to run, and how."""

    cell: Cell
    execution: Execution
    runner: str
    """who gives it out: no two runners are alike"""


@dataclass(frozen=True)
class Outcome:
    """How a cell ended: with a run in the store, or with the reason why not."""

    cell: Cell
    run_id: str = ""
    reason: str = ""
    seconds: float = 0.0
    final: bool = False
    """the same would happen again: wrong input"""
    diverged: bool = False
    """its loss was no longer finite, which is its result"""
    died: bool = False
    """the worker is gone, and took the cell with it"""

    @property
    def finished(self) -> bool:
        """Whether the store holds its result."""
        return not self.reason


class Listener(Protocol):
    """Who is told how the cells are getting on."""

    def begun(self, cell: Cell) -> None:
        """A worker has taken a cell."""

    def advanced(self, cell: Cell, stage: str, done: int, total: int) -> None:
        """A cell has come so far in a stage of its run."""

    def ended(self, outcome: Outcome) -> None:
        """A cell has ended for good."""

    def noted(self, text: str) -> None:
        """Something happened that the user should know."""


class Tries:
    """Counts how often each cell was tried, and says whether it is tried again."""

    def __init__(self) -> None:
        self._failures: Counter[str] = Counter()
        self._deaths: Counter[str] = Counter()

    def again_after(self, outcome: Outcome) -> bool:
        """Whether a cell without a result is tried once more."""
        counts, most = (self._deaths, LIVES) if outcome.died else (self._failures, TRIES)
        counts[outcome.cell.spec.identity] += 1
        return not outcome.final and counts[outcome.cell.spec.identity] < most
