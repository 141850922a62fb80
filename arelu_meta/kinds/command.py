"""A command that is a spec: its flags are read into one, it is run, and what it gives back says itself."""

import sys
from collections.abc import Sequence

from arelu_meta.console import command_line, flags
from arelu_meta.kinds.execution import Execution, TrainingExecution
from arelu_meta.kinds.sections import Spec


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
        spec, execution = flags.parse(
            spec_class,
            module=module,
            description=description,
            default_task=default_task,
            argv=argv,
            execution_class=execution_class,
        )
        from arelu_meta.console import progress
        from arelu_meta.kinds.run import AnyResult, run
        from arelu_meta.kinds.seeds import run_seeds
        from arelu_meta.kinds.seeds_result import SeedsResult
        from arelu_meta.runtime import processes

        result: AnyResult | SeedsResult
        if isinstance(execution, TrainingExecution) and execution.seeds:
            result = run_seeds(spec, execution, progress.shown)
        else:
            result = run(spec, execution, bar=progress.shown)
        if processes.is_first():
            sys.stdout.write(result.report() + "\n")

    return command_line.main(command, argv)
