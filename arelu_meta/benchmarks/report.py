"""What a benchmark found, as a table."""

from dataclasses import asdict, dataclass
from typing import Any

from arelu_meta.tables import text_table


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

    def text(self) -> str:
        """Give the table."""
        cells = [(row.name, f"{1000 * row.seconds:.3f}", f"{row.ratio:.2f}", row.note) for row in self.rows]
        return f"{self.title}\n{text_table(('', 'ms', 'ratio to ours', ''), cells)}"

    def plain(self) -> dict[str, Any]:
        """Give plain values for JSON."""
        return asdict(self)
