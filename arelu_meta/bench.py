"""Speed and memory beside the peers, in one run, as ratios.

python -m arelu_meta.bench sampler
python -m arelu_meta.bench all --json
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from arelu_meta import benchmarks
from arelu_meta.console import command_line
from arelu_meta.errors import InputError

if TYPE_CHECKING:
    from arelu_meta.benchmarks.report import BenchReport
    from arelu_meta.registry import Entry


def command(argv: Sequence[str] | None = None) -> None:
    """Run the named benchmarks and print each table as it is ready."""
    listed = "; ".join(f"{entry.name}: {entry.summary}" for entry in benchmarks.entries())
    parser = command_line.Parser(
        prog="python -m arelu_meta.bench", description=f"Ours and the peers on identical work. {listed}"
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help=f"{', '.join(benchmarks.names())}, or all")
    parser.add_argument("--data-root", help="folder of the published data sets")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument(
        "--track",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="keep the figures in MLflow, experiment bench [yes]",
    )
    parser.add_argument("--profile", action="store_true", help="show what our own way spends its time on")
    options = parser.parse_args(argv)
    if options.json and options.profile:
        raise InputError("--json has no place for a profile; leave one of the two out")
    names = benchmarks.names() if "all" in options.names else options.names
    chosen = [benchmarks.entry(name) for name in names]

    from arelu_meta.benchmarks.profile import profiling
    from arelu_meta.benchmarks.record import machine, record
    from arelu_meta.benchmarks.timing import busy

    if warning := busy():
        sys.stderr.write(f"warning: {warning}\n")
    if not options.json:
        sys.stdout.write(", ".join(f"{name} {value}" for name, value in machine().items()) + "\n")
    reports: list[BenchReport] = []
    try:
        with profiling(options.profile) as profiles:
            for report in _measured(chosen, options.data_root):
                reports.append(report)
                if not options.json:
                    sys.stdout.write("".join(f"\n{text}\n" for text in [report.text(), *profiles]))
                    sys.stdout.flush()
                profiles.clear()
    finally:  # minutes of measuring are not lost to what comes after them
        if options.json and reports:
            sys.stdout.write(json.dumps([report.plain() for report in reports], indent=2) + "\n")
        if options.track and reports:
            sys.stderr.write(f"MLflow run {record(reports, machine())}\n")


def _measured(chosen: Sequence["Entry"], root: str | None) -> Iterator["BenchReport"]:
    """Run one benchmark after the other and give each of its tables at once."""
    from arelu_meta.benchmarks.report import BenchReport

    for entry in chosen:
        found = entry.load()(root=root)
        yield from [found] if isinstance(found, BenchReport) else found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code."""
    return command_line.main(command, argv)


if __name__ == "__main__":
    sys.exit(main())
