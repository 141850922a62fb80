"""Fine-tune at learning rates over decades, activation by activation, and draw accuracy against the rate.

python -m arelu_meta.lr_view --lr-sweep 1e-4:1 --arms own arelu relu_gain
python -m arelu_meta.lr_view --model resnet18 --weights DEFAULT --data my_folder/ --arms own arelu --seeds 0-2

Takes all flags of `python -m arelu_meta.finetune --model`; runs that have finished are not run again.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from arelu_meta.console import command_line
from arelu_meta.console.command_line import output_folder
from arelu_meta.errors import InputError
from arelu_meta.kinds.command import read_flags
from arelu_meta.kinds.execution import seed_numbers
from arelu_meta.kinds.finetune.spec import FineTuneSpec

if TYPE_CHECKING:
    from arelu_meta.comparison.learning_rates import Point

DESCRIPTION = (
    "Fine-tune at learning rates over decades, activation by activation, and draw accuracy against the rate. "
    "Flags of its own: --lr-sweep LOW:HIGH[:PER_DECADE], the rates [1e-4:1]; --arms NAME ..., the activations, 'own' "
    "for the network's [own arelu relu_gain]; --seeds 0-4 [0]; --output DIR, for table, CSV and figure [lr_view]. "
    "All others are those of finetune --model."
)
REPLACED = {"--lr": "--lr-sweep", "--activation": "--arms", "--seed": "--seeds"}


def command(argv: Sequence[str] | None = None) -> None:
    """Run what has not been run, and write table and figure."""
    own = command_line.Parser(add_help=False, allow_abbrev=False)
    own.add_argument("--lr-sweep", default="1e-4:1")
    own.add_argument("--arms", nargs="+", default=["own", "arelu", "relu_gain"])
    own.add_argument("--seeds", nargs="+", default=["0"])
    own.add_argument("--output", default="lr_view")
    given, rest = own.parse_known_args(argv)
    for word in rest:
        if word.partition("=")[0] in REPLACED:
            raise InputError(f"{word} is set by lr_view itself; give {REPLACED[word.partition('=')[0]]}")
    spec, execution = read_flags("finetune", rest, command="lr_view", description=DESCRIPTION)
    if not isinstance(spec, FineTuneSpec):
        raise InputError(f"task {spec.task!r} is of kind {spec.kind!r}; lr_view takes tasks of kind 'finetune'")
    seeds = seed_numbers(",".join(given.seeds))
    from arelu_meta.comparison import learning_rates
    from arelu_meta.pictures.figures import rate_figure
    from arelu_meta.store.connection import open_store

    lrs = learning_rates.rates(given.lr_sweep)
    specs = learning_rates.cells(spec, given.arms, lrs, seeds)
    open_store(execution.experiment)
    done = 0

    def on_point(point: "Point", found: bool) -> None:
        nonlocal done
        done += 1
        score = f"validation % {learning_rates.percent(point.validation)}" + ("  (from the store)" if found else "")
        sys.stderr.write(f"{done}/{len(specs)}  {point.arm}  lr {point.lr:g}  seed {point.seed}  {score}\n")

    folder = output_folder(Path(given.output))
    points = learning_rates.sweep(specs, execution, on_point)
    text = learning_rates.table(points)
    (folder / "table.txt").write_text(text + "\n")
    (folder / "points.csv").write_text(learning_rates.csv(points))
    title = f"{spec.network.model} fine-tuned on {spec.data.dataset}, seeds {', '.join(map(str, seeds))}"
    best = {one.arm: (one.lr, one.validation) for one in learning_rates.best_rates(points)}
    rate_figure(learning_rates.means(points, "validation"), best, title=title).savefig(folder / "lr_view.png", dpi=150)
    sys.stdout.write(f"{text}\n\nfigure: {folder / 'lr_view.png'}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code."""
    return command_line.main(command, argv)


if __name__ == "__main__":
    sys.exit(main())
