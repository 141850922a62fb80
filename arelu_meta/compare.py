"""Run or resume every cell of an experiment, then report.

python -m arelu_meta.compare maml_digits --workers 2
python -m arelu_meta.compare gain_controls --only activation=relu,arelu --seeds 0-1
python -m arelu_meta.compare my_experiment.toml --dry-run
python -m arelu_meta.compare my_experiment.toml --shard 2/8
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from arelu_meta import kinds
from arelu_meta.comparison.cells import Cell, expand, parse_only, parse_shard, shard_of
from arelu_meta.comparison.experiment import Experiment, read_experiment, read_published
from arelu_meta.comparison.pool import Pool
from arelu_meta.comparison.ray import RayCluster
from arelu_meta.comparison.validation import check_cells
from arelu_meta.console import catalog, command_line, output
from arelu_meta.console.flags import FLAGS, validated
from arelu_meta.console.tables import text_table
from arelu_meta.errors import InputError, RunError
from arelu_meta.kinds.execution import TrainingExecution, seed_numbers
from arelu_meta.trust import trusting

if TYPE_CHECKING:
    from arelu_meta.comparison.runner import Plan


# Settings of every cell.
_PASSED_ON = ("channels_last", "compile", "fused", "tf32", "cudnn_benchmark", "deterministic", "log_layers")
PRECISION = "training.precision"


def command(argv: Sequence[str] | None = None) -> None:
    """Read the flags, run what is not finished, print the verdict."""
    given = _parser().parse_args(argv)
    with trusting(given.trust):
        _compare(given, sys.argv[1:] if argv is None else argv)


def _compare(given: argparse.Namespace, words: Sequence[str]) -> None:
    experiment = read_experiment(given.experiment)
    if given.precision:  # a setting of a run: its cells are others than those without it
        if PRECISION in experiment.grid:
            raise InputError(f"{PRECISION} is an axis of {experiment.experiment}; choose by --only, not by --precision")
        experiment = experiment.model_copy(update={"settings": {**experiment.settings, PRECISION: given.precision}})
    seeds = tuple(seed_numbers(given.seeds)) if given.seeds else None
    cells = expand(experiment, only=parse_only(given.only), seeds=seeds, budget=given.budget)
    if given.register and not experiment.report.validation_metric:
        raise InputError("`register` chooses by validation: set validation_metric in [report] of the experiment file")
    shard = parse_shard(given.shard) if given.shard else None
    own = shard_of(cells, shard) if shard else cells
    published = read_published(experiment, given.experiment)
    root = str(Path(given.data_root).resolve()) if given.data_root else ""
    values = {"device": given.device, "data_root": root, "follow_links": given.follow_links}
    values |= {"skip_broken": given.skip_broken, "image_memory": given.image_memory, "keep": given.keep}
    values |= {name: value for name in _PASSED_ON if (value := getattr(given, name)) is not None}
    execution = validated(TrainingExecution, values, FLAGS)
    _check_flags(execution, cells)
    if given.device not in ("auto", "cpu") and given.on == "local":
        from arelu_meta.runtime.hardware import resolve_device

        resolve_device(given.device)
    workers: Pool | RayCluster
    most = min(given.workers, max(1, len(own)))
    if given.on == "ray":
        workers = RayCluster(cpus=given.cpus, gpus=given.gpus, workers=most, threads=given.threads)
    else:
        workers = Pool(most, given.threads)
    if given.dry_run:
        check_cells(own, root=root)
        listed = [{**cell.values, "seed": cell.spec.seed, "identity": cell.spec.identity} for cell in own]
        output.show(_listing(experiment, own), {"experiment": experiment.experiment, "cells": listed})
        return
    from arelu_meta.comparison.runner import Plan

    plan = Plan(
        experiment=experiment,
        cells=cells,
        shard=shard,
        budget=given.budget,
        published=published,
        execution=execution,
        any_version=given.any_version,
        command=shlex.join(["python", "-m", "arelu_meta.compare", *words]),
    )
    _run_and_print(plan, workers, given.register)


def _check_flags(execution: TrainingExecution, cells: Sequence[Cell]) -> None:
    """Refuse a flag that runs of the experiment do not have, and would leave out in silence."""
    for kind in {cell.spec.kind: None for cell in cells}:
        has = kinds.entry(kind).execution_class.model_fields
        for name in _PASSED_ON:
            if getattr(execution, name) and name not in has:
                raise InputError(f"runs of kind {kind!r} have no `{name}`; leave it out")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code."""
    return command_line.main(command, argv)


def _parser() -> command_line.Parser:
    parser = command_line.Parser(
        prog="python -m arelu_meta.compare",
        description="Run or resume every cell of an experiment, tracked in MLflow, then report.",
        epilog=f"Experiments: {', '.join(catalog.names('experiment'))}.",
    )
    parser.add_argument("experiment", metavar="NAME|FILE", help="experiment file, by name or path")
    parser.add_argument("--workers", type=int, default=1, help="cells at once on this machine [1]")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads per cell; 0: the cores, shared out [0]")
    parser.add_argument("--on", choices=("local", "ray"), default="local", help="where cells run [local]")
    parser.add_argument("--cpus", type=float, default=1.0, help="CPUs of a cell on Ray [1]")
    parser.add_argument("--gpus", type=float, default=0.0, help="GPUs of a cell on Ray, parts allowed [0]")
    parser.add_argument("--dry-run", action="store_true", help="list the cells and run none")
    parser.add_argument("--only", nargs="+", default=[], metavar="AXIS=VALUE,VALUE", help="values of an axis to run")
    parser.add_argument("--seeds", metavar="0-4", help="seeds in place of the file's")
    parser.add_argument(
        "--shard", metavar="2/8", help="run this share of the cells alone, for job arrays; the last shard reports"
    )
    parser.add_argument("--budget", type=float, default=1.0, help="share of the full training [1]")
    parser.add_argument("--device", default="auto", help="device of the cells [auto]")
    for name in _PASSED_ON:
        text = (TrainingExecution.model_fields[name].description or "").strip()
        parser.add_argument(f"--{name.replace('_', '-')}", action=argparse.BooleanOptionalAction, help=text)
    parser.add_argument("--precision", choices=("fp32", "bf16", "fp16"), help="number format of every cell's training")
    parser.add_argument("--data-root", default="", help="folder of the published data sets")
    parser.add_argument("--image-memory", type=int, default=0, metavar="MIB", help="memory for images of each cell")
    where = "where images wait [auto: on the device if they fit]"
    parser.add_argument("--keep", choices=("auto", "cpu", "device"), default="auto", help=where)
    parser.add_argument("--follow-links", action="store_true", help="follow links that lead out of a folder of images")
    parser.add_argument("--skip-broken", action="store_true", help="leave out image files that cannot be read")
    parser.add_argument("--trust", default="", metavar="PACKAGE,...", help="packages whose code the file may name")
    parser.add_argument(
        "--register", default="", metavar="NAME", help="register the model that validated best, with alias candidate"
    )
    parser.add_argument("--any-version", action="store_true", help="accept results of another package version")
    return parser


def _listing(experiment: Experiment, cells: Sequence[Cell]) -> str:
    rows = [
        (*(str(value) for value in cell.values.values()), str(cell.spec.seed), cell.spec.identity[:12])
        for cell in cells
    ]
    head = f"{experiment.experiment}: {len(cells)} cells of task {experiment.task}"
    if cells and cells[0].share < 1:
        head += f", {100 * cells[0].share:g} % of the full training"
    return f"{head}\n{text_table((*experiment.axes, 'seed', 'identity'), rows)}"


def _run_and_print(plan: "Plan", workers: Pool | RayCluster, register: str) -> None:
    """Run a plan, print what came of it, and fail where cells that were to be run have no result."""
    from arelu_meta.comparison.runner import run_plan
    from arelu_meta.comparison.saved_view import VIEW
    from arelu_meta.kinds.results import block, where_to_look
    from arelu_meta.reporting import report_summary
    from arelu_meta.store.sources import store_uri

    done, model = run_plan(plan, workers), None
    view = VIEW if done.report is not None else ""
    where = where_to_look(done.parent.run_id, done.parent.experiment_id, store_uri(), view)
    if done.report is None:
        lines = "\n".join(f"  {line}" for line in done.missing)
        text = f"{len(plan.cells) - len(done.missing)} of {len(plan.cells)} cells have a result; missing:\n{lines}\n"
        text += "the report follows when all shards are done: the last one writes it, or this command without --shard"
    else:
        text = "no cell has finished" if done.report.analysis.findings.runs.empty else report_summary(done.report)
        where = [("report", f"{done.folder}/"), *where]
        if register and not done.report.analysis.findings.runs.empty:
            from arelu_meta.comparison.registering import register_best

            verdict = done.report.verdicts[0].sentences
            model = register_best(done.report.analysis.findings, done.parent, register, verdict)
            where.append(("registered", model))
    document = done.as_dict() | {"registered": model}
    output.show(f"{text}\n\n{block('where it is', where)}", document)
    missing = len(done.own_missing)
    if missing:
        verb, total = "has" if missing == 1 else "have", len(plan.own_cells)
        raise RunError(f"{missing} of {total} cells {verb} no result; to retry: {plan.command}")


if __name__ == "__main__":
    sys.exit(main())
