"""Fine-tune: any network with any weights on a target, or a network that is pre-trained on a source first.

python -m arelu_meta.finetune --model resnet18 --weights DEFAULT --data my_folder/ --activation arelu
python -m arelu_meta.finetune --model timm/resnet18 --weights mine.pth --data cifar10 --train-per-class 50
python -m arelu_meta.finetune --task digits_to_street
python -m arelu_meta.finetune --task mnist_to_svhn --activation relu --lr 1e-3
"""

import sys
from collections.abc import Sequence

from arelu_meta.console import catalog, command_line
from arelu_meta.kinds.command import run_command
from arelu_meta.kinds.finetune.spec import FineTuneSpec
from arelu_meta.kinds.sections import Spec
from arelu_meta.kinds.transfer.spec import TransferSpec


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    spec_class, task = _kind(given)
    return run_command(
        spec_class,
        module="arelu_meta.finetune",
        description="With --model: fine-tune any network on --data (--model resnet18 --help shows the flags). "
        "Without: pre-train on a source set and fine-tune on a target. Tracked in MLflow.",
        default_task=task,
        argv=given,
    )


def _kind(argv: Sequence[str]) -> tuple[type[Spec], str]:
    """Tell which of the two kinds is meant: by the task file, or by `--model`."""
    flags = [argument.partition("=")[0] for argument in argv]
    first = command_line.Parser(add_help=False, allow_abbrev=False)
    first.add_argument("--task")
    try:
        task = first.parse_known_args(list(argv))[0].task
        named = None if task is None else catalog.read("task", task).get("kind")
    except ValueError:  # said in one line by the command itself
        named = None
    if named == "finetune" or (named is None and {"--model", "--weights"} & set(flags)):
        return FineTuneSpec, "finetune"
    return TransferSpec, "digits_to_street"


if __name__ == "__main__":
    sys.exit(main())
