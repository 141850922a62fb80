"""A live bar on a terminal, a plain line every tenth elsewhere, nothing when nobody asked or --quiet is given."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias

from arelu_meta.console import output

Advance: TypeAlias = Callable[[str], None]
Bar: TypeAlias = Callable[[str, int], AbstractContextManager[Advance]]
_statuses: list[Any] = []  # rich's, of the command under way; a bar takes its place for a while


@contextmanager
def silent(_description: str, _total: int) -> Iterator[Advance]:
    """Show nothing: the default of library calls."""
    yield lambda _note: None


@contextmanager
def working(text: str, *, in_logs: bool = False) -> Iterator[None]:
    """Say what is done outside of the bars, from the first moment: a moving line on a terminal, or a line in a log."""
    if output.is_quiet() or not sys.stderr.isatty():
        if in_logs:
            say(text)
        yield
        return
    from rich.console import Console

    status = Console(stderr=True).status(text)
    _statuses.append(status)
    try:
        with status:
            yield
    finally:
        _statuses.pop()


def now(text: str) -> None:
    """Say what follows in the moving line of `working`; in a log nothing, as its lines are to be few."""
    if _statuses:
        _statuses[-1].update(text)


@contextmanager
def shown(description: str, total: int) -> Iterator[Advance]:
    """Show progress on standard error; call what it gives once per step, with a short note."""
    way = silent if output.is_quiet() else _live if sys.stderr.isatty() else _lines
    with way(description, total) as advance:
        yield advance


@contextmanager
def _live(description: str, total: int) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    for status in _statuses:
        status.stop()
    try:
        with Progress(*columns, console=Console(stderr=True)) as progress:
            task = progress.add_task(description, total=total, note="")
            yield lambda note: progress.update(task, advance=1, note=note)
    finally:
        now("recording")
        for status in _statuses:
            status.start()


@contextmanager
def _lines(description: str, total: int) -> Iterator[Advance]:
    done, start = 0, time.monotonic()

    def advance(note: str) -> None:
        nonlocal done
        done += 1
        if done == total or done * 10 // total > (done - 1) * 10 // total:
            left = (time.monotonic() - start) / done * (total - done)
            say(f"{description} {done}/{total}  {note}  {left:.0f} s left")

    yield advance


def say(line: str) -> None:
    """Write a line of progress to standard error, unless the command is to be quiet."""
    if not output.is_quiet():
        output.write_line(line)
