"""Fine-tune: any network with any weights on a target, or a network that is pre-trained on a source first.

python -m arelu_meta.finetune --model resnet18 --weights DEFAULT --data my_folder/ --activation arelu
python -m arelu_meta.finetune --model timm/resnet18 --weights mine.pth --data cifar10 --train-per-class 50
python -m arelu_meta.finetune --task digits_to_street
python -m arelu_meta.finetune --task mnist_to_svhn --activation relu --lr 1e-3
"""

import sys
from collections.abc import Sequence

from arelu_meta.kinds.command import run_command

KIND_BY_FLAG = {"--model": "finetune", "--weights": "finetune"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code."""
    return run_command("transfer", argv, kind_by_flag=KIND_BY_FLAG)


if __name__ == "__main__":
    sys.exit(main())
