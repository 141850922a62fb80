"""One run's folder: its spec and its last two checkpoints, written whole or not at all, and who is at work in it.

`runs/` in the working folder unless ARELU_META_RUNS says otherwise; one folder per run identity.
"""

import json
import os
import platform
import time
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from arelu_meta.errors import InputError, RunError, first_line
from arelu_meta.reading import check_pickle, open_regular, plain_name
from arelu_meta.store.connection import RunSpec
from arelu_meta.store.journal import SENT, Journal, remove_leftovers, runs_folder

CHECKPOINT = "checkpoint.pt"
PREVIOUS = "checkpoint.previous.pt"
FORMAT = 1  # of checkpoints; to be raised when what they hold changes
_REMEDY = "delete it, or run without `resume`"


class RunFolder:
    """The folder of one spec; two runs of the same spec share it, as they are the same run."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec, self.path = spec, self.path_of(spec.task, spec.identity)
        self.checkpoint_path = self.path / CHECKPOINT

    @staticmethod
    def path_of(task: str, identity: str) -> Path:
        """Where the folder of a run is; always in `runs/`, whatever the task is called."""
        name = f"{plain_name('task', task)}-{plain_name('identity', identity)[:12]}"
        return runs_folder() / name

    def create(self) -> None:
        """Make the folder and write the spec into it."""
        path, content = self.path / "spec.json", json.dumps(self.spec.model_dump(mode="json"), indent=2) + "\n"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if not path.is_file() or path.read_bytes() != content.encode():
                partial = self.path / f"spec.{os.getpid()}.partial"
                _write_new(partial, content)
                partial.replace(path)
        except OSError as error:
            raise InputError(
                f"cannot write the run folder {self.path}: {error.strerror}; set ARELU_META_RUNS to another"
            ) from error

    def finished_journals(self) -> list[Path]:
        """Find the journals of runs of this spec that have ended with a result, and are not in the store yet."""
        opened = [Journal.open(path.parent) for path in self.path.glob(f"journal/*/{SENT}")]
        return [journal.path for journal in opened if journal.status == "FINISHED" and journal.next is not None]

    def was_sent(self, checkpoint: Mapping[str, Any] | None) -> bool:
        """Tell whether the run of a checkpoint has finished and is in the store: then its journal is gone."""
        journal = str((checkpoint or {}).get("journal", ""))
        return bool(journal) and not (self.path / "journal" / journal / SENT).exists()

    def remove_journal(self, run_id: str) -> None:
        """Delete the journal of a run that nobody will go on with: to bring it to the store would be in vain."""
        for path in self.path.glob(f"journal/*/{SENT}"):
            with suppress(InputError):  # whoever sends it says what is wrong with it
                journal = Journal.open(path.parent)
                if journal.run_id == run_id:
                    journal.remove()

    @contextmanager
    def locked(self, *, wait: bool = False) -> Iterator[None]:
        """Keep other processes out of the folder while inside; the lock of a process that died is free.

        It may be taken again by who holds it. What a killed process left half written is removed.

        Args:
            wait: until it is free; else its holder is named in the error.

        Raises:
            RunError: another process holds it.
        """
        lock = FileLock(str(self.path.resolve() / "lock"), is_singleton=True)
        owner = self.path / "owner"
        try:
            lock.acquire(timeout=-1 if wait else 0)
        except Timeout:
            who = "another process"
            with suppress(OSError, UnicodeDecodeError):
                who = owner.read_text().strip() or who
            raise RunError(f"{self.path} is in use by {who}; wait for it, or end it") from None
        except OSError as error:
            raise InputError(
                f"cannot lock the run folder {self.path}: {error.strerror}; set ARELU_META_RUNS to another"
            ) from error
        try:
            if lock.lock_counter == 1:
                for partial in self.path.glob("*.partial"):
                    partial.unlink(missing_ok=True)
                remove_leftovers(self.path)
                _write_new(owner, f"process {os.getpid()} on {platform.node()} since {time.strftime('%F %T')}\n")
            yield
        finally:
            if lock.lock_counter == 1:
                with suppress(OSError):
                    owner.unlink()
            lock.release()

    def save(self, state: dict[str, Any]) -> None:
        """Write the checkpoint and keep the one before: a crash at any moment leaves one of them whole.

        Raises:
            RunError: it cannot be written, as on a full disk; the last one is as it was.
        """
        partial = self.path / f"checkpoint.{os.getpid()}.partial"
        checked = torch.serialization.get_crc32_options()
        try:
            torch.serialization.set_crc32_options(True)  # what `read_checkpoint` compares
            with partial.open("wb") as file:
                torch.save({**state, "format": FORMAT}, file)
                file.flush()
                os.fsync(file.fileno())
            if self.checkpoint_path.exists():
                self.checkpoint_path.replace(self.path / PREVIOUS)
            partial.replace(self.checkpoint_path)
        except (OSError, MemoryError, RuntimeError) as error:  # torch's writer has a RuntimeError for a full disk
            reason = getattr(error, "strerror", None) or first_line(error)
            raise RunError(
                f"cannot write {self.checkpoint_path}: {reason}; the checkpoint before it is kept, go on with `resume`"
            ) from error
        finally:
            torch.serialization.set_crc32_options(checked)
            with suppress(OSError):
                partial.unlink(missing_ok=True)

    def load(self) -> dict[str, Any] | None:
        """Read the last checkpoint, None when there is none; no code in the file is run."""
        return self.read_last(self.path)

    @staticmethod
    def read_last(folder: Path) -> dict[str, Any] | None:
        """Read the last checkpoint of a folder that is whole; a damaged one is named in a warning.

        Returns:
            What it holds; None where the folder has no checkpoint.

        Raises:
            InputError: there are checkpoints, and none is whole.
            RunError: one cannot be read now, and may be the next time.
        """
        damaged: InputError | None = None
        for name in (CHECKPOINT, PREVIOUS):
            try:
                state = RunFolder.read_checkpoint(folder / name)
            except FileNotFoundError:
                continue
            except InputError as error:
                damaged = damaged or error
                continue
            if damaged is not None:
                warnings.warn(f"{str(damaged).partition(';')[0]}; the one before it is used, {name}", stacklevel=2)
            return state
        if damaged is not None:
            raise damaged
        return None

    @staticmethod
    def read_checkpoint(path: Path) -> dict[str, Any]:
        """Read a checkpoint by its path, after every record in it was compared with its checksum.

        Only a file that is none is called so: one that cannot be opened, or for which memory does not suffice, may be
        read the next time.

        Raises:
            FileNotFoundError: it is not there.
            InputError: it is damaged, no checkpoint, or of another version.
            RunError: it cannot be read now.
        """
        try:
            with open_regular(path) as file:
                _check_records(file, path)
                file.seek(0)
                state = torch.load(file, map_location="cpu", weights_only=True)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FileNotFoundError(path) from error
        except InputError as error:
            raise InputError(f"{first_line(error).partition(';')[0]}; {_REMEDY}") from error
        except (OSError, MemoryError) as error:
            raise RunError(f"cannot read {path}: {first_line(error)}; try again when it can be read") from error
        except Exception as error:  # whatever a damaged archive or pickle leads to
            if "allocate memory" in str(error):  # torch's own MemoryError is a RuntimeError
                raise RunError(f"cannot read {path}: {first_line(error)}; try again with more memory") from error
            raise InputError(f"{path} is not a checkpoint ({type(error).__name__}); {_REMEDY}") from error
        if not isinstance(state, dict) or state.get("format") != FORMAT or not isinstance(state.get("run_id", ""), str):
            raise InputError(f"{path} was written by another version of arelu_meta; {_REMEDY}")
        return state


def _write_new(path: Path, content: str) -> None:
    """Write a file anew: through a link in its place, as a stranger's folder may have, another would be overwritten."""
    path.unlink(missing_ok=True)
    with path.open("x", encoding="utf-8") as file:
        file.write(content)


def _check_records(file: Any, path: Path) -> None:
    """Compare every record of torch's archive with its checksum, which torch writes and does not look at."""
    with zipfile.ZipFile(file) as archive:
        if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
            raise InputError(f"{path} is packed, which no checkpoint is")
        broken = archive.testzip()
        if broken is not None:
            raise InputError(f"{path} is damaged (a changed byte in {broken})")
        for name in archive.namelist():
            if name.endswith("/data.pkl"):
                check_pickle(archive.read(name), path)
