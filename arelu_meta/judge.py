"""Judge whether the arms of any MLflow experiment, or of a CSV file, differ, with an exit code for scripts.

python -m arelu_meta.judge my_experiment --arm param:lr --seed param:seed --metric val/acc --margin 0.01
python -m arelu_meta.judge results.csv --arm model --metric loss --baseline resnet18 --json

Exit code 0: a difference; 3: none detectable; 4: equivalent within the margin; 5: too little data; 2: wrong input.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from arelu_meta.console import command_line, output


def command(argv: Sequence[str] | None = None) -> int:
    """Judge, print, and give the exit code of the answer."""
    given = _parser().parse_args(argv)
    if given.out is not None:
        command_line.output_folder(given.out)
    from arelu_meta.comparison.judging import judge
    from arelu_meta.reporting.markdown import markdown_report

    found = judge(
        given.source,
        arm=given.arm,
        metric=given.metric,
        seed=given.seed,
        pair_by=given.pair_by,
        baseline=given.baseline,
        lower_is_better=given.lower_is_better,
        margin=given.margin,
        where=given.where,
        value=given.value,
    )
    text = str(found)
    if given.markdown:
        text = markdown_report(found.report, {}).rstrip()
    lines, logged = [text], None
    if given.out is not None and not found.report.analysis.findings.runs.empty:
        found.write(given.out)
        lines.append(f"\nwrote {given.out / 'report.html'} and the files beside it")
    if given.log is not None:
        is_file = Path(given.source).suffix.lower() == ".csv" or Path(given.source).is_file()
        experiment = given.log or (Path(given.source).stem if is_file else given.source)
        logged = found.log(experiment)
        lines.append(f"\nlogged as MLflow run {logged}")
    output.show(lines[0], found.as_dict() | {"folder": given.out, "run_id": logged})
    (sys.stderr if output.wants_json() or given.markdown else sys.stdout).write(
        "".join(f"{line}\n" for line in lines[1:])
    )
    return found.exit_code


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code."""
    return command_line.main(command, argv)


def _parser() -> command_line.Parser:
    parser = command_line.Parser(
        prog="python -m arelu_meta.judge",
        description="Judge whether arms differ: paired, corrected, with intervals, equivalence and power.",
        epilog="Fields are param:NAME, tag:NAME or metric:NAME of MLflow runs, or columns of a CSV file; without a "
        "kind, whichever there is. Exit code 0: a difference; 3: none detectable; 4: equivalent within the margin; "
        "5: too little data; 2: wrong input; 1: a failure.",
    )
    parser.add_argument("source", metavar="EXPERIMENT|FILE", help="MLflow experiment by name or id, or a CSV file")
    parser.add_argument("--arm", required=True, metavar="FIELD", help="what is compared: param:lr")
    parser.add_argument("--metric", required=True, metavar="FIELD", help="what it is compared by: val/acc")
    parser.add_argument("--seed", metavar="FIELD", help="what pairs runs of different arms [seed]")
    parser.add_argument(
        "--pair-by", nargs="+", default=[], metavar="FIELD", help="further fields that a pair agrees in"
    )
    parser.add_argument("--baseline", metavar="ARM", help="arm that the others are compared with [the earliest]")
    parser.add_argument(
        "--lower-is-better",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="whether less of the metric is better [by its name: losses and errors]",
    )
    parser.add_argument("--margin", type=float, metavar="SIZE", help="smallest difference that would matter")
    parser.add_argument("--where", default="", metavar="CONDITION", help="runs to judge: \"params.model = 'resnet'\"")
    parser.add_argument(
        "--value", default="last", metavar="WHICH", help="of a metric at several steps: last, min, max, mean [last]"
    )
    parser.add_argument("--markdown", action="store_true", help="print the report as Markdown")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="write report.html and all other files there")
    parser.add_argument(
        "--log", nargs="?", const="", metavar="EXPERIMENT", help="store the report as a run of the experiment judged"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
