"""What a benchmark measured: a table, plain values for JSON, and a run in MLflow that keeps the figures."""

import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import torch

from arelu_meta import __version__
from arelu_meta.benchmarks.timing import Timing
from arelu_meta.console.tables import text_table
from arelu_meta.runtime.machine import processor_name

_RATIOS = {
    "ours": "ratio to ours",
    "memory": "memory, ratio to ours",
    "smallest": "ratio to smallest",
    "without": "of the rest",
}


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
        return f"{self.title}\n{text_table(('', 'ms', _RATIOS[self.of], ''), cells)}"

    def markdown(self) -> str:
        """Give the table as Markdown.

        >>> print(BenchReport("MAML step", [Row("ours", 0.5, 1.0), Row("theirs", 1.0, 2.0, "slow")]).markdown())
        **MAML step**
        <BLANKLINE>
        | | ms | ratio to ours | |
        |---|---|---|---|
        | ours | 500.000 | 1.00 |  |
        | theirs | 1000.000 | 2.00 | slow |
        """
        lines = [f"**{self.title}**", "", f"| | ms | {_RATIOS[self.of]} | |", "|---|---|---|---|"]
        lines += [f"| {row.name} | {1000 * row.seconds:.3f} | {row.ratio:.2f} | {row.note} |" for row in self.rows]
        return "\n".join(lines)

    def metrics(self) -> dict[str, float]:
        """Seconds and ratio of every row, by names that MLflow takes.

        >>> BenchReport("5 seeds, AReLU's (all)", [Row("ours", 0.5, 1.0)]).metrics()
        {'5 seeds AReLUs all/ours/seconds': 0.5, '5 seeds AReLUs all/ours/ratio': 1.0}
        """
        figures: dict[str, float] = {}
        for row in self.rows:
            name = "/".join(re.sub(r"[^\w\-. ]", "", text)[:100] for text in (self.title, row.name))
            figures |= {f"{name}/seconds": row.seconds, f"{name}/ratio": row.ratio}
        return figures


def as_json(reports: Sequence[BenchReport]) -> str:
    """Give all figures as JSON.

    >>> as_json([BenchReport("title", [Row("ours", 0.5, 1.0)])])[:25]
    '[\\n  {\\n    "title": "title'
    """
    return json.dumps([asdict(report) for report in reports], indent=2)


def as_markdown(reports: Sequence[BenchReport], facts: Mapping[str, str], command: str) -> str:
    """Give all tables as Markdown, below the machine and the command that measured them."""
    machine = ", ".join(f"{name} {value}" for name, value in facts.items())
    return "\n\n".join([f"{machine}. Measured by `{command}`.", *(report.markdown() for report in reports)]) + "\n"


def timing_rows(timings: Sequence[Timing]) -> list[Row]:
    """Make a row of each timing, ours first, with the spread of its repeats."""
    ours = timings[0].minimum
    return [
        Row(t.name, t.minimum, t.minimum / ours, f"median {1000 * t.median:.1f} ms of {t.repeats}") for t in timings
    ]


def machine_facts() -> dict[str, str]:
    """Processor, cores, threads and versions: the facts without which a time says nothing."""
    return {
        "processor": processor_name(),
        "cores": str(os.cpu_count()),
        "threads": str(torch.get_num_threads()),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "arelu_meta": __version__,
    }


def log_reports(reports: Sequence[BenchReport], tags: Mapping[str, str], *, experiment: str = "bench") -> str:
    """Log the figures as metrics and as files of an MLflow run of their own; gives the run's id."""
    from arelu_meta.store.tracking import open_run

    with open_run(experiment, name="bench", tags=tags) as tracker:
        tracker.log_metrics({key: value for report in reports for key, value in report.metrics().items()})
        tracker.log_text(as_json(reports), "bench.json")
        tracker.log_text("\n\n".join(report.text() for report in reports) + "\n", "bench.txt")
    return tracker.run_id
