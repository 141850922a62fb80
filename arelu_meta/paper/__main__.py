"""Draw the figures of the AReLU paper from finished runs, and run or list what measures it: `figures`, `steps`, `run`.

python -m arelu_meta.paper figures --out pictures/paper
python -m arelu_meta.paper steps
python -m arelu_meta.paper run first_epoch --workers 2 --data-root data
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from arelu_meta.console import command_line, output
from arelu_meta.console.tables import text_table
from arelu_meta.errors import InputError, RunError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    return command_line.main(_command, argv)


def _command(argv: Sequence[str] | None) -> None:
    given = _parser().parse_args(argv)
    if given.command == "figures":
        _figures(given)
    elif given.command == "steps":
        _list_steps(given.names)
    else:
        _run(given)


def _parser() -> command_line.Parser:
    parser = command_line.Parser(
        prog="python -m arelu_meta.paper",
        description="The AReLU paper as a whole: its figures, and the comparisons that measure it (docs/paper.md).",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    figures = commands.add_parser("figures", help="draw the paper's figures from the runs in the MLflow store")
    figures.add_argument("names", nargs="*", metavar="FIGURE", help="figures, by the paper's label [all]")
    figures.add_argument("--out", type=Path, default=Path("pictures/paper"), help="folder [pictures/paper]")
    figures.add_argument("--budget", type=float, default=1.0, help="budget that the comparisons were run with [1]")
    figures.add_argument("--data-root", default=None, help="folder of the published data sets")
    steps = commands.add_parser("steps", help="list the comparisons that measure the paper, with their cost")
    run = commands.add_parser("run", help="run them in this order; what has finished is not repeated")
    for one in (steps, run):
        one.add_argument("names", nargs="*", metavar="STEP", help="steps, by name [all]")
    run.add_argument("--workers", type=int, default=1, help="runs at once, of one thread each [1]")
    run.add_argument("--hours", type=float, default=float("inf"), help="begin no step after so many hours")
    run.add_argument("--shard", default="", metavar="2/8", help="this share of every step's runs, for job arrays")
    run.add_argument("--data-root", default="", help="folder of the published data sets")
    run.add_argument("--dry-run", action="store_true", help="list the runs and run none")
    return parser


def _figures(given: argparse.Namespace) -> None:
    from arelu_meta.paper.figures import choose_figures, draw_figures

    outcomes = draw_figures(choose_figures(given.names), given.out, budget=given.budget, root=given.data_root)
    lines, figures = list[str](), list[dict[str, object]]()
    for one in outcomes:
        if one.file is not None:
            share = f", {one.runs} of {one.planned} runs" if one.planned else ""
            lines.append(f"{one.file}  {one.figure.shows}{share}")
    for one in outcomes:
        why = "" if one.complete else one.reason or f"{one.planned - one.runs} runs are missing"
        lines += [f"{one.figure.name}: {why}", f"  {one.figure.command}"] if why else []
        figures.append({"figure": one.figure.name, "file": one.file, "runs": one.runs, "planned": one.planned})
        figures[-1] |= {"missing": why or None, "run": one.figure.command if why else None}
    output.show("\n".join(lines), {"figures": figures})
    undrawn = [one.figure.name for one in outcomes if one.file is None]
    if undrawn:
        raise RunError(f"{len(undrawn)} of {len(outcomes)} figures are not drawn: {', '.join(undrawn)}")


def _list_steps(names: Sequence[str]) -> None:
    from arelu_meta.paper.campaign import choose_steps

    rows, steps, total = [], list[dict[str, object]](), 0.0
    for step in choose_steps(names):
        cells = step.cells
        hours = cells * step.seconds / 3600
        total += hours
        command = shlex.join(["compare", *step.words()])
        rows.append((step.name, str(cells), f"{step.seconds:g}", f"{hours:.1f}", f"{total:.1f}", command))
        steps.append({"step": step.name, "runs": cells, "seconds": step.seconds, "arguments": command})
    head = ("step", "runs", "s a run", "core-hours", "together", "python -m arelu_meta.")
    output.show(text_table(head, rows), {"steps": steps})


def _run(given: argparse.Namespace) -> None:
    from arelu_meta.paper.campaign import choose_steps, run_steps

    if given.hours <= 0:
        raise InputError(f"`hours` {given.hours:g}: must be above 0")
    words = ["--workers", str(given.workers), "--threads", "1"]
    words += ["--data-root", given.data_root] if given.data_root else []
    words += ["--shard", given.shard] if given.shard else []
    words += ["--dry-run"] if given.dry_run else []
    steps = choose_steps(given.names)
    left = run_steps(steps, words, given.hours)
    output.show(f"{len(steps) - len(left)} of {len(steps)} steps are finished", {"unfinished": left})
    if left:
        raise RunError(f"not finished: {', '.join(left)}; the same command goes on with them")


if __name__ == "__main__":
    sys.exit(main())
