"""A cell is one runner's at a time, also of runners in different folders or on different machines that share a store.

A claim is a tag of the comparison's MLflow experiment. Whoever runs the cell renews it; one that is no longer renewed,
or whose process is gone, is nobody's. Within a runner a cell is free: the runner gives it to one worker at a time.
"""

import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from pydantic import BaseModel, ValidationError

from arelu_meta.errors import InputError
from arelu_meta.runtime.signals import hold_signals

TAG = "claim."
EVERY = 20.0  # seconds between two renewals
VALID = 90.0  # seconds without one after which a claim is nobody's
SETTLED = 0.2  # seconds after which a claim made at the same moment would show


class Holder(BaseModel):
    """Who runs a cell, and when they last said so."""

    runner: str
    host: str
    pid: int
    renewed: float
    token: str

    def is_at_it(self) -> bool:
        """Tell whether it still runs, as far as can be seen from here."""
        if time.time() - self.renewed > VALID:
            return False
        return self.host != socket.gethostname() or _exists(self.pid)


class Claims:
    """The claims on the cells of one experiment."""

    def __init__(self, client: MlflowClient, experiment_id: str) -> None:
        self._client, self._experiment_id = client, experiment_id

    def holder(self, cell: str) -> Holder | None:
        """Read a claim; what is none holds nothing."""
        return _read(self._client.get_experiment(self._experiment_id).tags.get(_key(cell)))

    def any_of(self, runner: str) -> bool:
        """Tell whether a runner still has a cell that is being run."""
        tags = self._client.get_experiment(self._experiment_id).tags
        holders = [_read(text) for key, text in tags.items() if key.startswith(TAG)]
        return any(holder is not None and holder.runner == runner and holder.is_at_it() for holder in holders)

    @contextmanager
    def claimed(self, cell: str, runner: str) -> Iterator[None]:
        """Hold a cell for a runner while it is being run; refuse when another holds it."""
        token, over = uuid.uuid4().hex, threading.Event()
        self._refuse_unless_free(cell, runner)

        def renew() -> None:
            while not over.wait(EVERY):
                with suppress(MlflowException):  # a store that is away for a while: several renewals may fail
                    if self._is_held(cell, token):
                        self._write(cell, runner, token)

        thread = threading.Thread(target=renew, name=f"claim on {cell}", daemon=True)
        try:
            with hold_signals():
                self._write(cell, runner, token)
            time.sleep(SETTLED)
            self._refuse_unless_free(cell, runner)  # of two at the same moment, the one who wrote last has it
            thread.start()
            yield
        finally:
            over.set()
            if thread.ident is not None:
                thread.join(timeout=EVERY)  # or it might write once more after the tag is gone
            with hold_signals(), suppress(MlflowException):
                if self._is_held(cell, token):
                    self._client.delete_experiment_tag(self._experiment_id, _key(cell))

    def _refuse_unless_free(self, cell: str, runner: str) -> None:
        holder = self.holder(cell)
        if holder and holder.runner != runner and holder.is_at_it():
            raise InputError(
                f"another runner is at it (process {holder.pid} on {holder.host}); "
                f"run the comparison again when it has ended"
            )

    def _is_held(self, cell: str, token: str) -> bool:
        holder = self.holder(cell)
        return holder is not None and holder.token == token

    def _write(self, cell: str, runner: str, token: str) -> None:
        holder = Holder(runner=runner, host=socket.gethostname(), pid=os.getpid(), renewed=time.time(), token=token)
        self._client.set_experiment_tag(self._experiment_id, _key(cell), holder.model_dump_json())


def _read(text: str | None) -> Holder | None:
    try:
        return Holder.model_validate_json(text) if text else None
    except ValidationError:
        return None


def _key(cell: str) -> str:
    return f"{TAG}{cell[:16]}"


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True
