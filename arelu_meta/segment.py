"""Train and test a U-Net on image and mask pairs.

python -m arelu_meta.segment --task phantom
python -m arelu_meta.segment --task lgg --activation relu
"""

import sys
from collections.abc import Sequence

from arelu_meta.kinds.command import run_command


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code."""
    return run_command("segment", argv)


if __name__ == "__main__":
    sys.exit(main())
