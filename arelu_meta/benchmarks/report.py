"""What a benchmark found, as a table."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from arelu_meta.benchmarks.timing import Timing
from arelu_meta.console.tables import text_table


@dataclass(frozen=True)
class Row:
    """One way to do the work: seconds (the minimum), times as long as ours, and a note."""

    name: str
    seconds: float
    ratio: float
    note: str = ""


@dataclass(frozen=True)
class BenchReport:
    """A title and its rows, ours first."""

    title: str
    rows: list[Row]
    of: str = "ours"
    """What the ratios are to: ours, our memory, the smallest size, what is left without it."""

    def text(self) -> str:
        """Give the table."""
        cells = [(row.name, f"{1000 * row.seconds:.3f}", f"{row.ratio:.2f}", row.note) for row in self.rows]
        return f"{self.title}\n{text_table(('', 'ms', self._ratio(), ''), cells)}"

    def _ratio(self) -> str:
        return {
            "ours": "ratio to ours",
            "memory": "memory, ratio to ours",
            "smallest": "ratio to smallest",
            "without": "of the rest",
        }[self.of]

    def plain(self) -> dict[str, Any]:
        """Give plain values for JSON."""
        return asdict(self)


def rows_of(timings: Sequence[Timing]) -> list[Row]:
    """Make a row of each, ours first, with the spread of its repeats."""
    ours = timings[0].minimum
    return [
        Row(t.name, t.minimum, t.minimum / ours, f"median {1000 * t.median:.1f} ms of {t.repeats}") for t in timings
    ]
