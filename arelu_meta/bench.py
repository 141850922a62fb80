"""Speed and memory beside the peers, in one run, as ratios.

python -m arelu_meta.bench sampler
python -m arelu_meta.bench all --json
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from arelu_meta import benchmarks
from arelu_meta.console import command_line
from arelu_meta.errors import InputError

if TYPE_CHECKING:
    from arelu_meta.benchmarks.report import BenchReport


def command(argv: Sequence[str] | None = None) -> None:
    """Run the named benchmarks and print each table as it is ready."""
    listed = "; ".join(f"{entry.name}: {entry.summary}" for entry in benchmarks.entries())
    parser = command_line.Parser(
        prog="python -m arelu_meta.bench", description=f"Ours and the peers on identical work. {listed}"
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help=f"{', '.join(benchmarks.names())}, or all")
    parser.add_argument("--data-root", help="folder of the published data sets")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there as Markdown too")
    switch = argparse.BooleanOptionalAction
    parser.add_argument("--track", action=switch, default=True, help="log the figures in MLflow [yes]")
    parser.add_argument("--profile", action="store_true", help="show what our own way spends its time on")
    options = parser.parse_args(argv)
    if options.json and options.profile:
        raise InputError("--json has no place for a profile; leave one of the two out")
    if options.markdown and not options.markdown.resolve().parent.is_dir():
        raise InputError(f"--markdown {options.markdown}: there is no such folder; make it first")
    names = benchmarks.names() if "all" in options.names else options.names
    chosen = [benchmarks.entry(name) for name in names]

    from arelu_meta.benchmarks.report import as_json, as_markdown, log_reports, machine_facts
    from arelu_meta.benchmarks.timing import load_warning, profiling

    if warning := load_warning():
        sys.stderr.write(f"warning: {warning}\n")
    if not options.json:
        sys.stdout.write(", ".join(f"{name} {value}" for name, value in machine_facts().items()) + "\n")
    reports: list[BenchReport] = []
    try:
        with profiling(options.profile) as profiles:
            for report in (report for entry in chosen for report in entry.load()(options.data_root)):
                reports.append(report)
                if not options.json:
                    sys.stdout.write("".join(f"\n{text}\n" for text in [report.text(), *profiles]))
                    sys.stdout.flush()
                profiles.clear()
    finally:  # minutes of measuring are not lost to what comes after them
        if options.json and reports:
            sys.stdout.write(as_json(reports) + "\n")
        if options.markdown and reports:
            words = shlex.join(["python", "-m", "arelu_meta.bench", *(sys.argv[1:] if argv is None else argv)])
            options.markdown.write_text(as_markdown(reports, machine_facts(), words), encoding="utf-8")
        if options.track and reports:
            sys.stderr.write(f"MLflow run {log_reports(reports, machine_facts())}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code."""
    return command_line.main(command, argv)


if __name__ == "__main__":
    sys.exit(main())
