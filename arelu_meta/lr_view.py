"""Fine-tune at learning rates over decades, activation by activation, and draw accuracy against the rate.

python -m arelu_meta.lr_view --lr-sweep 1e-4:1 --arms own arelu relu_gain
python -m arelu_meta.lr_view --model resnet18 --weights DEFAULT --data my_folder/ --arms own arelu --seeds 0-2

A gain in the activation shifts the best learning rate, and one rate for all arms then compares rates, not activations.
This is a comparison with the activation and the rate as axes, made from flags: all flags of `python -m
arelu_meta.finetune --model`. Runs that have finished or diverged are not run again.
"""

import argparse
import math
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from arelu_meta.comparison.cells import expand
from arelu_meta.comparison.experiment import Experiment, flatten
from arelu_meta.comparison.pool import Pool
from arelu_meta.console import command_line, output
from arelu_meta.console.command_line import output_folder
from arelu_meta.console.flags import FLAGS, validated
from arelu_meta.console.tables import text_table
from arelu_meta.errors import InputError, RunError
from arelu_meta.kinds.command import read_flags
from arelu_meta.kinds.execution import Execution, seed_numbers
from arelu_meta.kinds.finetune.spec import FineTuneSpec

if TYPE_CHECKING:
    from arelu_meta.reporting import Report

DESCRIPTION = (
    "Fine-tune at learning rates over decades, activation by activation, and draw accuracy against the rate. "
    "Flags of its own: --lr-sweep LOW:HIGH[:PER_DECADE], the rates [1e-4:1]; --arms NAME ..., the activations, 'own' "
    "for the network's [own arelu relu_gain]; --seeds 0-4 [0]; --output DIR, for table, CSV and figure [lr_view]. "
    "All others are those of finetune --model."
)
_REPLACED = {"--lr": "--lr-sweep", "--activation": "--arms", "--seed": "--seeds"}
_VALIDATION, _TEST = "validation/accuracy", "test/accuracy"


def command(argv: Sequence[str] | None = None) -> None:
    """Run what has not been run, and write table and figure."""
    own = command_line.Parser(add_help=False, allow_abbrev=False)
    own.add_argument("--lr-sweep", default="1e-4:1")
    own.add_argument("--arms", nargs="+", default=["own", "arelu", "relu_gain"])
    own.add_argument("--seeds", nargs="+", default=["0"])
    own.add_argument("--output", default="lr_view")
    own.add_argument("--task", default="finetune")
    given, rest = own.parse_known_args(argv)
    for word in rest:
        if word.partition("=")[0] in _REPLACED:
            raise InputError(f"{word} is set by lr_view itself; give {_REPLACED[word.partition('=')[0]]}")
    spec, execution = read_flags("finetune", ["--task", given.task, *rest], command="lr_view", description=DESCRIPTION)
    if not isinstance(spec, FineTuneSpec):
        raise InputError(f"task {spec.task!r} is of kind {spec.kind!r}; lr_view takes tasks of kind 'finetune'")
    named = execution.experiment != Execution.model_fields["experiment"].default
    experiment = _experiment(spec, given, execution.experiment if named else "lr_view")
    cells, workers = expand(experiment), Pool(threads=execution.threads)
    from arelu_meta.comparison.runner import Plan, run_plan
    from arelu_meta.store.connection import open_store

    open_store(experiment.experiment)  # first: where it cannot be used, no folder is to be left either
    folder = output_folder(Path(given.output))
    words = shlex.join(["python", "-m", "arelu_meta.lr_view", *(sys.argv[1:] if argv is None else argv)])
    done = run_plan(Plan(experiment=experiment, cells=cells, execution=execution, command=words), workers)
    if done.report is not None and not done.report.analysis.findings.runs.empty:
        text = f"{_write(done.report, folder)}\n\nfigure: {folder / 'lr_view.png'}\nreport: {done.folder}/"
        output.show(text, done.as_dict() | {"folder": folder})
    if done.missing:
        raise RunError(f"{len(done.missing)} of {len(cells)} runs have no result; to retry: {words}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code."""
    return command_line.main(command, argv)


def learning_rates(sweep: str) -> list[float]:
    """Read `LOW:HIGH` or `LOW:HIGH:PER_DECADE` into rates at equal steps of the logarithm, none above HIGH.

    >>> learning_rates("1e-3:1e-1")
    [0.001, 0.01, 0.1]
    >>> learning_rates("0.01:0.1:2")
    [0.01, 0.0316228, 0.1]
    """
    try:
        low, high, *more = (float(part) for part in sweep.split(":"))
        per_decade = int(*more) if more else 1
        span = math.log10(high / low)
        if not (low > 0 and math.isfinite(span) and span > 0 and per_decade >= 1):
            raise ValueError
    except (ValueError, TypeError, ZeroDivisionError):
        raise InputError(f"--lr-sweep {sweep}: give LOW:HIGH or LOW:HIGH:PER_DECADE, such as 1e-5:1e-1") from None
    steps = math.floor(span * per_decade + 1e-9)
    if not steps:
        raise InputError(f"--lr-sweep {sweep} has one rate; widen it, or give more per decade: LOW:HIGH:PER_DECADE")
    return [float(f"{low * 10 ** (step / per_decade):.6g}") for step in range(steps + 1)]


def _experiment(spec: FineTuneSpec, given: argparse.Namespace, name: str) -> Experiment:
    """Make the comparison: the spec's settings, with the activation and the rate as axes."""
    if spec.evaluation.protocol != "sound":
        raise InputError("the best rate is chosen on validation images; use --protocol sound")
    settings = flatten(spec.model_dump(exclude={"task", "seed"}))
    for axis in ("network.activation", "training.lr"):
        del settings[axis]
    arms, seeds = list(dict.fromkeys(given.arms)), seed_numbers(",".join(given.seeds))
    named = ", ".join(map(str, seeds))
    values = {
        "experiment": name,
        "summary": "accuracy against the learning rate",
        "title": f"{spec.network.model} fine-tuned on {spec.data.dataset}, seed{'s' * (len(seeds) > 1)} {named}",
        "question": "Which learning rate is best for each activation?",
        "task": given.task,
        "seeds": seeds,
        "settings": settings,
        "grid": {"network.activation": arms, "training.lr": learning_rates(given.lr_sweep)},
        "report": {"baseline": arms[0], "metric": _TEST, "validation_metric": _VALIDATION},
    }
    return validated(Experiment, values, FLAGS)


def _write(report: "Report", folder: Path) -> str:
    """Write table.txt, points.csv and lr_view.png; give the text of the table."""
    from arelu_meta.pictures.figures import rate_figure
    from arelu_meta.reporting import report_summary

    runs = report.analysis.findings.runs
    curves: dict[str, list[tuple[float, float]]] = {}
    # A rate at which a seed diverged has no mean.
    for (arm, lr), accuracy in runs.groupby(["activation", "lr"], sort=False)[_VALIDATION]:
        curves.setdefault(arm, []).append((lr, accuracy.mean(skipna=False) / 100))
    rows, best = [], {}
    for arm, points in curves.items():
        rows.append((arm, *("diverged" if math.isnan(value) else f"{100 * value:.2f}" for _, value in points)))
        finite = [point for point in points if not math.isnan(point[1])]
        if finite:
            best[arm] = max(finite, key=lambda point: point[1])
    rates = [f"{lr:g}" for lr, _ in next(iter(curves.values()))]
    seeds = runs["seed"].nunique()
    text = f"validation accuracy % by learning rate, mean of {seeds} seed{'s' * (seeds > 1)}\n"
    text += f"{text_table(('activation', *rates), rows)}\n"
    text += "own: the activations that the network has\n" if "own" in curves else ""
    text += f"\n{report_summary(report)}"
    (folder / "table.txt").write_text(text + "\n")
    columns = {_VALIDATION: "validation_accuracy", _TEST: "test_accuracy"}
    table = runs[["activation", "lr", "seed", *columns]].rename(columns=columns)
    table[[*columns.values()]] /= 100
    table.to_csv(folder / "points.csv", index=False, float_format="%.6g")
    rate_figure(curves, best, title=report.analysis.findings.title).savefig(folder / "lr_view.png", dpi=150)
    return text


if __name__ == "__main__":
    sys.exit(main())
