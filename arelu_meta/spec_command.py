"""A command that is a spec: its flags are read into one, it is run, and what it gives back says itself."""

import sys
from collections.abc import Sequence

from arelu_meta import cli, command_line
from arelu_meta.spec import Execution, Spec
from arelu_meta.spec_execution import TrainingExecution


def run_command(
    spec_class: type[Spec],
    *,
    module: str,
    description: str,
    default_task: str,
    argv: Sequence[str] | None,
    execution_class: type[Execution] = Execution,
) -> int:
    """Parse, run with a progress bar, print the report, and give the exit code."""

    def command(argv: Sequence[str] | None) -> None:
        spec, execution = cli.parse(
            spec_class,
            module=module,
            description=description,
            default_task=default_task,
            argv=argv,
            execution_class=execution_class,
        )
        from arelu_meta import distributed, progress
        from arelu_meta.outcomes.seeds import SeedsResult
        from arelu_meta.run import AnyResult, run
        from arelu_meta.runs.seeds import run_seeds

        result: AnyResult | SeedsResult
        if isinstance(execution, TrainingExecution) and execution.seeds:
            result = run_seeds(spec, execution, progress.shown)
        else:
            result = run(spec, execution, bar=progress.shown)
        if distributed.is_first():
            sys.stdout.write(result.report() + "\n")

    return command_line.main(command, argv)
