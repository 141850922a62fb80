"""Meta-train and meta-test one few-shot task.

python -m arelu_meta.maml --ways 5 --shots 1
python -m arelu_meta.maml --activation relu --seed 3
"""

import sys
from collections.abc import Sequence

from arelu_meta.kinds.command import run_command


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code."""
    return run_command("few_shot", argv)


if __name__ == "__main__":
    sys.exit(main())
