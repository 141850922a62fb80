"""Meta-train and meta-test one few-shot task.

python -m arelu_meta.maml --ways 5 --shots 1
python -m arelu_meta.maml --activation relu --seed 3
"""

import sys
from collections.abc import Sequence

from arelu_meta.kinds.command import run_command
from arelu_meta.kinds.execution import EpisodeExecution
from arelu_meta.kinds.few_shot.spec import FewShotSpec


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code."""
    return run_command(
        FewShotSpec,
        module="arelu_meta.maml",
        description="Meta-train and meta-test one few-shot task, tracked in MLflow.",
        default_task="digits",
        execution_class=EpisodeExecution,
        argv=argv,
    )


if __name__ == "__main__":
    sys.exit(main())
