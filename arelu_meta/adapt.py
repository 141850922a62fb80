"""Fit a classifier to a few labelled images, on a pretrained network.

python -m arelu_meta.adapt my_photos/
python -m arelu_meta.adapt my_photos/ --model timm/vit_small_patch14_dinov2.lvd142m --image-size 224
python -m arelu_meta.adapt --data cifar100 --shots 10 --draws 10 --test-per-class 20
"""

import sys
from collections.abc import Sequence

from arelu_meta.kinds.command import run_command

EXAMPLE = "adapt_digits"  # what is run when no images are named


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code; the first word may be the images, as --data."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and not arguments[0].startswith("-"):
        arguments.insert(0, "--data")
    named = {argument.partition("=")[0] for argument in arguments}
    if not named & {"--data", "--dataset", "--task", "--help", "-h", "--version"}:
        arguments = ["--task", EXAMPLE, *arguments]
    return run_command("adapt", arguments)


if __name__ == "__main__":
    sys.exit(main())
