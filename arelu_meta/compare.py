"""Run or resume every cell of an experiment, then report.

python -m arelu_meta.compare maml_digits --workers 2
python -m arelu_meta.compare gain_controls --only activation=relu,arelu --seeds 0-1
python -m arelu_meta.compare my_experiment.toml --dry-run
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from arelu_meta.comparison.experiment import Experiment, read_experiment, read_published
from arelu_meta.comparison.grid import Cell, expand
from arelu_meta.comparison.on_ray import RayCluster, check_ray
from arelu_meta.comparison.pool import Pool, share_of_cores
from arelu_meta.comparison.selection import read_only
from arelu_meta.console import catalog, command_line
from arelu_meta.console.flags import FLAGS, validated
from arelu_meta.console.tables import text_table
from arelu_meta.errors import InputError, RunError, first_line
from arelu_meta.kinds.execution import MOST_THREADS, Execution, seed_numbers


def command(argv: Sequence[str] | None = None) -> None:
    """Read the flags, run what is not finished, print the verdict."""
    given = _parser().parse_args(argv)
    experiment = read_experiment(given.experiment)
    seeds = tuple(seed_numbers(given.seeds)) if given.seeds else None
    cells = expand(experiment, only=read_only(given.only), seeds=seeds, budget=given.budget)
    published = read_published(experiment, given.experiment)
    root = str(Path(given.data_root).resolve()) if given.data_root else ""
    execution = validated(Execution, {"device": given.device, "data_root": root}, FLAGS)
    if given.workers < 1:
        raise InputError(f"--workers {given.workers} must be at least 1")
    if not 0 <= given.threads <= MOST_THREADS:
        raise InputError(f"--threads {given.threads} must be at least 0 and at most {MOST_THREADS}")
    if given.cpus <= 0 or given.gpus < 0:
        raise InputError(f"--cpus {given.cpus:g} must be above 0, and --gpus {given.gpus:g} at least 0")
    if given.device not in ("auto", "cpu") and given.on == "local":
        from arelu_meta.runtime.hardware import resolve_device

        resolve_device(given.device)
    if given.on == "ray":
        check_ray()
    if given.dry_run:
        sys.stdout.write(_listing(experiment, cells) + "\n")
        return
    words = sys.argv[1:] if argv is None else argv
    _compare(given, experiment, cells, published, execution, shlex.join(["python", "-m", "arelu_meta.compare", *words]))


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
    parser.add_argument("--budget", type=float, default=1.0, help="share of the full training [1]")
    parser.add_argument("--device", default="auto", help="device of the cells [auto]")
    parser.add_argument("--data-root", default="", help="folder of the published data sets")
    parser.add_argument("--any-version", action="store_true", help="go on with results of another package version")
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


def _compare(
    given: argparse.Namespace,
    experiment: Experiment,
    cells: Sequence[Cell],
    published: list[dict[str, str]],
    execution: Execution,
    words: str,
) -> None:
    from mlflow.exceptions import MlflowException

    from arelu_meta.comparison.runner import Plan, compare
    from arelu_meta.kinds.result_text import block, where_to_look
    from arelu_meta.reporting import report_summary
    from arelu_meta.store.connection import store_uri

    workers = min(given.workers, len(cells))
    pool: Pool | RayCluster
    if given.on == "ray":
        threads = given.threads or max(1, int(given.cpus))
        pool = RayCluster(cpus=given.cpus, gpus=given.gpus, workers=workers, threads=threads)
    else:
        pool = Pool(workers, given.threads or share_of_cores(workers))
    plan = Plan(
        experiment=experiment,
        cells=cells,
        budget=given.budget,
        published=published,
        execution=execution,
        any_version=given.any_version,
        command=words,
    )
    try:
        done = compare(plan, pool)
    except KeyboardInterrupt:
        sys.stderr.write(f"to go on where it stopped: {words}\n")
        raise
    except (MlflowException, OSError) as error:
        raise RunError(
            f"the store or the disk failed: {first_line(error)}; to go on where it stopped: {words}"
        ) from error
    places = [("report", f"{done.folder}/"), *where_to_look(done.record.run_id, done.record.experiment_id, store_uri())]
    said = "no cell has finished" if done.findings.runs.empty else report_summary(done.report)
    sys.stdout.write(f"{said}\n\n{block('where it is', places)}\n")
    missing = len(done.findings.missing)
    if missing:
        raise RunError(
            f"{missing} of {len(cells)} cells {'has' if missing == 1 else 'have'} no result; to try again: {words}"
        )


if __name__ == "__main__":
    sys.exit(main())
