"""Bring runs that wait in their folders to the MLflow store, or list them: `flush`, `show`."""

import sys
from collections.abc import Sequence

from arelu_meta.console import command_line, output
from arelu_meta.errors import RunError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    return command_line.main(_command, argv)


def _command(argv: Sequence[str] | None) -> None:
    parser = command_line.Parser(
        prog="python -m arelu_meta.store",
        description="Runs that are recorded in their folders (runs/, or ARELU_META_RUNS) and not in the MLflow store.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("flush", help="bring them to the store (MLFLOW_TRACKING_URI)")
    commands.add_parser("show", help="list them")
    command = parser.parse_args(argv).command
    from arelu_meta.store.journal import runs_folder, waiting_journals

    runs = runs_folder()
    if command == "show":
        waiting = waiting_journals(runs)
        text = "\n".join(map(str, waiting)) or f"no run in {runs} waits for the store"
        output.show(text, {"runs": runs, "waiting": waiting})
        return
    from arelu_meta.store.settling import flush

    sent, left = flush(runs)
    text = f"brought to the MLflow store: {sent} {'run' if sent == 1 else 'runs'} of {runs}"
    output.show(text, {"runs": runs, "sent": sent, "left": left})
    if left:
        raise RunError("\n".join(left))


if __name__ == "__main__":
    sys.exit(main())
