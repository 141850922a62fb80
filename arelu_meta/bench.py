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
from arelu_meta.console import command_line, output, progress
from arelu_meta.errors import InputError

if TYPE_CHECKING:
    from arelu_meta.benchmarks.report import BenchReport


def command(argv: Sequence[str] | None = None) -> None:
    """Run the named benchmarks and print each table as it is ready."""
    options = _parser().parse_args(argv)
    if output.wants_json() and options.profile:
        raise InputError("--json has no place for a profile; leave one of the two out")
    if options.markdown and not options.markdown.resolve().parent.is_dir():
        raise InputError(f"--markdown {options.markdown}: there is no such folder; make it first")
    names = benchmarks.names() if "all" in options.names else options.names
    chosen = [benchmarks.entry(name) for name in names]
    if options.count is not None and names != ["folder"]:
        raise InputError(f"--count is for folder alone, not for {' '.join(names)}; leave it out")
    sizes = {} if options.count is None else {"count": options.count}

    from arelu_meta.benchmarks.report import as_markdown, log_reports, machine_facts
    from arelu_meta.benchmarks.timing import load_warning, profiling

    if warning := load_warning():
        sys.stderr.write(f"warning: {warning}\n")
    if not output.wants_json():
        sys.stdout.write(", ".join(f"{name} {value}" for name, value in machine_facts().items()) + "\n")
    reports: list[BenchReport] = []
    try:
        with profiling(options.profile) as profiles:
            for report in (report for entry in chosen for report in entry.load()(options.data_root, **sizes)):
                reports.append(report)
                if not output.wants_json():
                    sys.stdout.write("".join(f"\n{text}\n" for text in [report.text(), *profiles]))
                    sys.stdout.flush()
                profiles.clear()
    finally:  # minutes of measuring are not lost to what comes after them
        if options.markdown and reports:
            words = shlex.join(["python", "-m", "arelu_meta.bench", *(sys.argv[1:] if argv is None else argv)])
            options.markdown.write_text(as_markdown(reports, machine_facts(), words), encoding="utf-8")
        run_id = None
        try:
            run_id = log_reports(reports, machine_facts()) if options.track and reports else None
        finally:
            if output.wants_json() and reports:
                output.show("", {"machine": machine_facts(), "reports": reports, "run_id": run_id})
        if run_id:
            progress.say(f"MLflow run {run_id}")


def _parser() -> command_line.Parser:
    listed = "; ".join(f"{entry.name}: {entry.summary}" for entry in benchmarks.entries())
    parser = command_line.Parser(
        prog="python -m arelu_meta.bench", description=f"Ours and the peers on identical work. {listed}"
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help=f"{', '.join(benchmarks.names())}, or all")
    parser.add_argument("--data-root", help="folder of the published data sets")
    parser.add_argument("--count", type=int, metavar="N", help="of folder: photographs [20,000]")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there as Markdown too")
    switch = argparse.BooleanOptionalAction
    parser.add_argument("--track", action=switch, default=True, help="log the figures in MLflow [yes]")
    parser.add_argument("--profile", action="store_true", help="show what our own way spends its time on")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code."""
    return command_line.main(command, argv)


if __name__ == "__main__":
    sys.exit(main())
