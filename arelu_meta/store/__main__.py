"""Look after the MLflow store: `flush`, `show`, `close-stale`, `sync FROM TO`.

python -m arelu_meta.store show
python -m arelu_meta.store sync mlflow.db http://server:5000 --dry-run
"""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from arelu_meta.console import command_line, output
from arelu_meta.console.progress import say, shown
from arelu_meta.console.tables import text_table
from arelu_meta.errors import InputError, RunError

if TYPE_CHECKING:
    from arelu_meta.store.contents import Contents
    from arelu_meta.store.syncing import Synced


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    return command_line.main(_command, argv)


def _command(argv: Sequence[str] | None) -> None:
    given = _parser().parse_args(argv)
    {"flush": _flush, "show": _show, "close-stale": _close_stale, "sync": _sync}[given.command](given)


def _parser() -> command_line.Parser:
    parser = command_line.Parser(
        prog="python -m arelu_meta.store",
        description="The MLflow store (MLFLOW_TRACKING_URI), and runs that are recorded in their folders alone (runs/, "
        "or ARELU_META_RUNS).",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("flush", help="bring runs that wait in their folders to the store")
    commands.add_parser("show", help="what is in the store, what is RUNNING without a process, what waits")
    stale = commands.add_parser("close-stale", help="end runs whose process is gone as FAILED")
    stale.add_argument(
        "--host", help="that of their processes, which have ended as you know; only this machine's can be looked for"
    )
    sync = commands.add_parser("sync", help="copy a store to another: what is there already is not sent again")
    sync.add_argument("source", metavar="FROM", help="address of a store, or path of its SQLite file")
    sync.add_argument(
        "target", metavar="TO", help="the store that takes it; an SQLite file is made where it is missing"
    )
    sync.add_argument(
        "--experiment", action="append", default=[], metavar="NAME", help="this one only; may be repeated"
    )
    sync.add_argument("--dry-run", action="store_true", help="count the runs to copy, write nothing")
    return parser


def _flush(_given: argparse.Namespace) -> None:
    from arelu_meta.store.journal import runs_folder
    from arelu_meta.store.settling import flush

    runs = runs_folder()
    sent, left = flush(runs)
    text = f"brought to the MLflow store: {sent} {'run' if sent == 1 else 'runs'} of {runs}"
    output.show(text, {"runs": runs, "sent": sent, "left": left})
    if left:
        raise RunError("\n".join(left))


def _show(_given: argparse.Namespace) -> None:
    from arelu_meta.store.addresses import connect
    from arelu_meta.store.contents import read_contents
    from arelu_meta.store.journal import runs_folder, waiting_journals
    from arelu_meta.store.sources import check_store_exists, store_uri

    contents, runs = None, runs_folder()
    waiting = [str(one) for one in waiting_journals(runs)]
    try:
        check_store_exists()
        contents = read_contents(connect(store_uri(), create=False))
    except InputError as error:
        say(str(error))  # all the more one wants to know what waits for it
    lines = [f"waits for the store: {one}" for one in waiting] or [f"no run in {runs} waits for the store"]
    text = _contents_text(contents) if contents else ""
    output.show(text + "\n".join(lines), {**(contents.as_dict() if contents else {}), "waiting": waiting})


def _contents_text(contents: "Contents") -> str:
    statuses = ("FINISHED", "RUNNING", "FAILED", "KILLED")
    rows = [
        (one.name, *(str(one.runs.get(status, 0)) for status in statuses), str(one.models), _size(one.bytes))
        for one in contents.experiments
    ]
    lines = [f"{contents.store}{f', {_size(contents.bytes)}' if contents.bytes is not None else ''}"]
    lines += [text_table(("experiment", *statuses, "models", "artifacts"), rows)] if rows else ["  no runs"]
    lines += [f"RUNNING, and its process is gone: {run_id}" for run_id in contents.stale]
    lines += [f"RUNNING, on another machine or unknown: {run_id}" for run_id in contents.elsewhere]
    lines += ["python -m arelu_meta.store close-stale ends those without a process"] if contents.stale else []
    return "\n".join(lines) + "\n"


def _size(count: int | None) -> str:
    if count is None:
        return "elsewhere"
    return f"{count / 1e6:,.1f} MB" if count < 1e9 else f"{count / 1e9:,.1f} GB"


def _close_stale(given: argparse.Namespace) -> None:
    from arelu_meta.store.sources import check_store_exists, store_uri

    check_store_exists()  # before MLflow is loaded
    from arelu_meta.store.addresses import connect
    from arelu_meta.store.connection import quiet
    from arelu_meta.store.settling import close_stale

    client, closed = connect(store_uri(), create=False), []
    with quiet():
        for experiment in client.search_experiments(max_results=50_000):
            closed += close_stale(client, experiment.experiment_id, host=given.host)
    text = "\n".join(f"FAILED: {run_id}" for run_id in closed) or "no run is without its process"
    output.show(text, {"closed": closed})


def _sync(given: argparse.Namespace) -> None:
    from arelu_meta.store.syncing import sync

    done = sync(given.source, given.target, experiments=given.experiment, dry_run=given.dry_run, bar=shown)
    output.show(_synced_text(done, given.dry_run), done.as_dict())
    for note in done.notes:
        say(f"left: {note}")
    if done.failed:
        raise RunError("\n".join(f"not copied: {line}" for line in done.failed))


def _synced_text(done: "Synced", dry_run: bool) -> str:
    copied = done.copied
    runs = f"{copied.runs} new, {copied.updated} to go on with or changed, {done.unchanged} complete there"
    runs += f", {done.there} of the other store" if done.there else ""
    if dry_run:
        return f"runs: {runs}\n"
    sent = f"{copied.points:,} metric points, {copied.files:,} files ({_size(copied.bytes)}), {done.models} models"
    return f"runs: {runs}\nsent: {sent}, {done.versions} registered versions\n"


if __name__ == "__main__":
    sys.exit(main())
