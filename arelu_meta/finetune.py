"""Pre-train on a source set and fine-tune on a target.

python -m arelu_meta.finetune --task digits_to_street
python -m arelu_meta.finetune --task mnist_to_svhn --activation relu --lr 1e-3
"""

import sys
from collections.abc import Sequence

from arelu_meta.spec_command import run_command
from arelu_meta.spec_supervised import TransferSpec


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code."""
    return run_command(
        TransferSpec,
        module="arelu_meta.finetune",
        description="Pre-train on a source set and fine-tune on a target, tracked in MLflow.",
        default_task="digits_to_street",
        argv=argv,
    )


if __name__ == "__main__":
    sys.exit(main())
