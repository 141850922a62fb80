"""Train and test a U-Net on image and mask pairs.

python -m arelu_meta.segment --task phantom
python -m arelu_meta.segment --task lgg --activation relu
"""

import sys
from collections.abc import Sequence

from arelu_meta.kinds.command import run_command
from arelu_meta.kinds.execution import TrainingExecution
from arelu_meta.kinds.segment.spec import SegmentSpec


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code."""
    return run_command(
        SegmentSpec,
        module="arelu_meta.segment",
        description="Train and test a U-Net on image and mask pairs, tracked in MLflow.",
        default_task="phantom",
        argv=argv,
        execution_class=TrainingExecution,
    )


if __name__ == "__main__":
    sys.exit(main())
