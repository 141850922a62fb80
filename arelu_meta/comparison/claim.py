"""A cell is one runner's at a time, also of runners in different folders or on different machines that share a store.

A claim is a tag of the comparison's own run. Whoever runs the cell renews it; one that is no longer renewed, or whose
process is gone, is nobody's. Within a runner it is free: the runner gives a cell to one worker at a time.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from arelu_meta.errors import InputError
from arelu_meta.uninterrupted import uninterrupted

TAG = "claim."
EVERY = 20.0  # seconds between two renewals
VALID = 90.0  # seconds without one after which a claim is nobody's


@dataclass(frozen=True)
class Holder:
    """Who runs a cell."""

    runner: str
    host: str
    pid: int
    renewed: float

    @classmethod
    def this_process(cls, runner: str) -> "Holder":
        """This process, for a runner, now."""
        return cls(runner, socket.gethostname(), os.getpid(), time.time())

    @classmethod
    def read(cls, text: str | None) -> "Holder | None":
        """Read the tag; what is no claim holds nothing."""
        try:
            return cls(**json.loads(text)) if text else None
        except (TypeError, ValueError):
            return None

    def is_at_it(self) -> bool:
        """Tell whether it still runs, as far as can be seen from here."""
        if time.time() - self.renewed > VALID:
            return False
        return self.host != socket.gethostname() or _exists(self.pid)


@contextmanager
def claimed(client: MlflowClient, record: str, cell: str, runner: str) -> Iterator[None]:
    """Hold a cell of a comparison's run for a runner while it is being run; refuse when another holds it."""
    key = f"{TAG}{cell[:12]}"
    holder = Holder.read(client.get_run(record).data.tags.get(key))
    if holder and holder.runner != runner and holder.is_at_it():
        raise InputError(
            f"another runner is at it (process {holder.pid} on {holder.host}); "
            f"run the comparison again when it has ended"
        )

    def renew() -> None:
        client.set_tag(record, key, json.dumps(asdict(Holder.this_process(runner))))

    def go_on_renewing() -> None:
        while not over.wait(EVERY):
            with suppress(MlflowException):  # a store that is away for a while: the claim holds for several renewals
                renew()

    over = threading.Event()
    with uninterrupted():
        renew()
    thread = threading.Thread(target=go_on_renewing, name=f"claim {key}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        with uninterrupted(), suppress(MlflowException):  # its runner took it back already
            client.delete_tag(record, key)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
