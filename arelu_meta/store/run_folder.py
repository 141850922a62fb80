"""One run's folder: its spec and its last checkpoint, written whole or not at all.

`runs/` in the working folder unless ARELU_META_RUNS says otherwise; one folder per run identity.
"""

import json
import os
from pathlib import Path
from typing import Any

import torch

from arelu_meta.errors import InputError
from arelu_meta.store.connection import RunSpec
from arelu_meta.store.journal import SENT, Journal

CHECKPOINT = "checkpoint.pt"
FORMAT = 1  # of checkpoints; to be raised when what they hold changes


def runs_folder() -> Path:
    """Where the folders of all runs are."""
    return Path(os.environ.get("ARELU_META_RUNS") or "runs")


class RunFolder:
    """The folder of one spec; two runs of the same spec share it, as they are the same run."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec, self.path = spec, self.path_of(spec.task, spec.identity)
        self.checkpoint_path = self.path / CHECKPOINT

    @staticmethod
    def path_of(task: str, identity: str) -> Path:
        """Where the folder of a run is."""
        return runs_folder() / f"{task}-{identity[:12]}"

    def create(self) -> None:
        """Make the folder and write the spec into it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / "spec.json").write_text(json.dumps(self.spec.model_dump(mode="json"), indent=2) + "\n")
        except OSError as error:
            raise InputError(
                f"cannot write the run folder {self.path}: {error.strerror}; set ARELU_META_RUNS to another"
            ) from error

    def finished_journals(self) -> list[Path]:
        """Find the journals of runs of this spec that have ended with a result, and are not in the store yet."""
        opened = [Journal.open(path.parent) for path in self.path.glob(f"journal/*/{SENT}")]
        return [journal.path for journal in opened if journal.status == "FINISHED"]

    def save(self, state: dict[str, Any]) -> None:
        """Replace the checkpoint at once: a reader sees the old one or the new one, a crash leaves one of them."""
        partial = self.path / f"checkpoint.{os.getpid()}.partial"
        try:
            with partial.open("wb") as file:
                torch.save({**state, "format": FORMAT}, file)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(self.checkpoint_path)
        finally:
            partial.unlink(missing_ok=True)

    def load(self) -> dict[str, Any] | None:
        """Read the last checkpoint, None when there is none; no code in the file is run."""
        return self.read_checkpoint(self.checkpoint_path) if self.checkpoint_path.exists() else None

    @staticmethod
    def read_checkpoint(path: Path) -> dict[str, Any]:
        """Read a checkpoint by its path.

        Only a file that is none is called so: one that cannot be opened, or for which memory does not suffice, may be
        read the next time.
        """
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except (OSError, MemoryError):
            raise
        except Exception as error:  # whatever a damaged archive or pickle leads to
            if "allocate memory" in str(error):  # torch's own MemoryError is a RuntimeError
                raise
            raise InputError(
                f"{path} is not a checkpoint ({type(error).__name__}); delete it, or run without `resume`"
            ) from error
        if not isinstance(state, dict) or state.get("format") != FORMAT:
            raise InputError(f"{path} was written by another version of arelu_meta; delete it, or run without `resume`")
        return state
