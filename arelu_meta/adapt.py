"""Fit a classifier to a few labelled images, on a pretrained network.

python -m arelu_meta.adapt my_photos/
python -m arelu_meta.adapt my_photos/ --model timm/vit_small_patch14_dinov2.lvd142m --image-size 224
python -m arelu_meta.adapt --data cifar100 --shots 10 --draws 10 --test-per-class 20
python -m arelu_meta.adapt RUN --add more_photos/
"""

import sys
from collections.abc import Sequence

from arelu_meta.console import command_line, output
from arelu_meta.kinds.command import run_command
from arelu_meta.store.sources import check_given

EXAMPLE = "adapt_digits"  # what is run when no images are named


def add(argv: Sequence[str] | None) -> None:
    """Add classes to a stored model."""
    parser = command_line.Parser(
        prog="python -m arelu_meta.adapt", description="Add classes to a model of adapt; the others stay as they are."
    )
    parser.add_argument("model", metavar="RUN", help="MLflow run id, model URI (runs:/..., models:/...), or folder")
    parser.add_argument("--add", required=True, metavar="FOLDER", help="a folder of images for each new class, inside")
    parser.add_argument("--experiment", default="arelu_meta", help="MLflow experiment that takes the run")
    given = parser.parse_args(argv)
    check_given(given.model)
    from arelu_meta.kinds.adapt.extending import extend_model
    from arelu_meta.kinds.execution import Execution

    found = extend_model(given.model, given.add, Execution(experiment=given.experiment))
    output.show(found.report(), found.as_dict())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    if any(argument.partition("=")[0] == "--add" for argument in arguments):
        return command_line.main(add, arguments)
    return run_command("adapt", arguments, example=EXAMPLE)


if __name__ == "__main__":
    sys.exit(main())
