"""Train and test a classifier.

python -m arelu_meta.classify --task digits_classify
python -m arelu_meta.classify --task mnist_classify --activation relu --optimizer sgd --lr 1e-4 --epochs 1
python -m arelu_meta.classify --task cifar10 --backbone resnet18
"""

import sys
from collections.abc import Sequence

from arelu_meta.kinds.classify.spec import ClassifySpec
from arelu_meta.kinds.command import run_command
from arelu_meta.kinds.execution import TrainingExecution


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code."""
    return run_command(
        ClassifySpec,
        module="arelu_meta.classify",
        description="Train and test a classifier, tracked in MLflow.",
        default_task="digits_classify",
        argv=argv,
        execution_class=TrainingExecution,
    )


if __name__ == "__main__":
    sys.exit(main())
