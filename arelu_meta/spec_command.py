"""A command that is a spec: its flags are read into one, it is run, and what it gives back says itself."""

import sys
from collections.abc import Sequence

from arelu_meta import cli, command_line
from arelu_meta.spec import Spec


def run_command(
    spec_class: type[Spec], *, module: str, description: str, default_task: str, argv: Sequence[str] | None
) -> int:
    """Parse, run with a progress bar, print the report, and give the exit code."""

    def command(argv: Sequence[str] | None) -> None:
        spec, execution = cli.parse(
            spec_class, module=module, description=description, default_task=default_task, argv=argv
        )
        from arelu_meta import distributed, progress
        from arelu_meta.run import run

        result = run(spec, execution, bar=progress.shown)
        if distributed.is_first():
            sys.stdout.write(result.report() + "\n")

    return command_line.main(command, argv)
