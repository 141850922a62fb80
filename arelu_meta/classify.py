"""Train and test a classifier.

python -m arelu_meta.classify --task digits_classify
python -m arelu_meta.classify --task mnist_classify --activation relu --optimizer sgd --lr 1e-4 --epochs 1
python -m arelu_meta.classify --task cifar10 --backbone resnet18
"""

import sys
from collections.abc import Sequence

from arelu_meta.kinds.command import run_command


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code."""
    return run_command("classify", argv)


if __name__ == "__main__":
    sys.exit(main())
