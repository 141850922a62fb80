"""What a run records, written to its own folder before it goes to the MLflow store.

A journal is a folder `RUN_FOLDER/journal/ID/`: `entries.jsonl`, to which lines are only added, `files/` with what they
name, and `sent.json`: how many entries the store has taken, and under which run. A run writes to its journal alone;
`sending.py` brings it to the store, at once or when the store answers again. Every entry may be sent twice without
being there twice, so that a crash between sending it and noting that it was sent does no harm.
"""

import json
import os
import shutil
import time
import uuid
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from arelu_meta.errors import InputError, RunError, first_line
from arelu_meta.reading import open_regular, read_json, shown
from arelu_meta.runtime.machine import has_ended, process_name
from arelu_meta.runtime.signals import hold_signals
from arelu_meta.store.entries import parse_entry

ENTRIES, FILES, SENT, LOCK = "entries.jsonl", "files", "sent.json", "lock"
MOST_ENTRY = 256 << 20  # bytes: some three million points between two checkpoints
Entry = dict[str, Any]


def runs_folder() -> Path:
    """Where the folders of all runs are."""
    return Path(os.environ.get("ARELU_META_RUNS") or "runs")


class Journal:
    """The journal of one run: `create` begins one, `open` reads one.

    Attributes:
        path: its folder
        id: its name, and the tag `journal` of its MLflow run
        store: address of the store that it is for, without password
        run_id: the run in the store; empty until it is made
        count: entries written
        sent: how many of them the store has taken
        status: how the run ended: FINISHED, FAILED or KILLED; empty while it runs
        process: the process that runs it, see `runtime.machine.process_name`
        experiment: the MLflow experiment that takes the run
    """

    def __init__(self, path: Path, store: str, run_id: str = "") -> None:
        self.path, self.id, self.store, self.run_id = path, path.name, store, run_id
        self.count = self.sent = 0
        self.status = self.process = self.experiment = ""
        self._unsent: deque[Entry] = deque()
        self._size = 0  # of the entries; what follows was not written to its end
        self._lock = FileLock(path / LOCK)

    @classmethod
    def create(cls, run_folder: Path, store: str, *, run_id: str = "", **start: Any) -> "Journal":
        """Begin a journal in the folder of a run, and hold it; `run_id`: the store has the run already."""
        journal = cls(run_folder / "journal" / uuid.uuid4().hex, store, run_id)
        try:
            journal.path.mkdir(parents=True)
        except OSError as error:
            raise InputError(f"cannot write the run folder {run_folder}: {error.strerror}; choose another") from error
        journal.hold()
        journal.append("resume" if run_id else "start", **start, process=process_name())
        journal._note()  # last: a journal without it, as of a process that was killed here, is none
        return journal

    @classmethod
    def open(cls, path: Path) -> "Journal":
        """Read a journal; a last line that was not written to its end does not count.

        Raises:
            InputError: it is damaged, or no journal, or there is a link in it, which none of ours has.
        """
        for each in (path.parent, path, *path.rglob("*")):
            if each.is_symlink() or not (each.is_file() or each.is_dir()):
                raise InputError(f"{path} is no journal of ours: {shown(each.name):.80} is no plain file; delete it")
        try:
            state = read_json(path / SENT)
            journal = cls(path, str(state["store"]), str(state["run_id"]))
            for entry, journal._size in read_entries(path / ENTRIES):
                journal._take(entry)
            journal.sent = int(state["sent"])
        except (OSError, ValueError, TypeError, KeyError, OverflowError) as error:
            reason = shown(first_line(error))
            raise InputError(f"{path} is not the journal of a run, or damaged ({reason}); delete it") from error
        if not 0 <= journal.sent <= journal.count or not journal.process:
            raise InputError(f"{path} is not the journal of a run, or damaged; delete it")
        for _ in range(journal.sent):
            journal._unsent.popleft()
        return journal

    def hold(self) -> bool:
        """Keep other processes from sending it, in order to write to it; False where one does already, or has."""
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            return False
        if self.count:
            if not (self.path / SENT).exists():  # sent and removed since it was read
                self.release()
                return False
            os.truncate(self.path / ENTRIES, self._size)
        return True

    def release(self) -> None:
        """Let other processes send what is left."""
        self._lock.release()

    @hold_signals()
    def append(self, kind: str, **content: Any) -> None:
        """Write an entry, and have it on the disk.

        Raises:
            RunError: the disk is full, or gone; the entry is sent all the same.
        """
        entry = {"kind": kind, "time": int(time.time() * 1000), **content}
        text = json.dumps(entry, separators=(",", ":"))
        try:
            with (self.path / ENTRIES).open("ab") as file:
                file.write(f"{zlib.crc32(text.encode()):08x} {text}\n".encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise RunError(
                f"cannot write {self.path / ENTRIES}: {error.strerror}; make room, then go on with `resume`"
            ) from error
        finally:
            self._take(entry)

    def inside(self, name: str) -> Path:
        """Give the path of what an entry names; nothing outside of the journal's folder is sent.

        Raises:
            InputError: it leads out of the folder.
        """
        if not (self.path / name).resolve().is_relative_to(self.path.resolve()):
            raise InputError(f"{self.path} is no journal of ours: it names {shown(name)!r:.80}; delete it")
        return self.path / name

    def file(self, name: str) -> Path:
        """Give the path of a new file, or folder, that an entry may name by its path below the journal's folder."""
        path = self.path / FILES / f"{self.count}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    @property
    def next(self) -> Entry | None:
        """The first entry that the store has not taken."""
        return self._unsent[0] if self._unsent else None

    def next_was_sent(self) -> None:
        """Note that the store has taken the first entry that it had not."""
        self._unsent.popleft()
        self.sent += 1
        with suppress(OSError):  # on a full disk: an entry may be sent twice
            self._note()

    def send_again(self) -> None:
        """Have all of it sent as a new run: the store in use does not have the run."""
        self._unsent = deque(entry for entry, _ in read_entries(self.path / ENTRIES))
        self.sent, self.run_id = 0, ""
        self._note()

    def points_after(self, count: int) -> set[tuple[str, int]]:
        """Name and step of the metrics in the entries after the first `count`."""
        later = [entry for entry, _ in read_entries(self.path / ENTRIES)][count:]
        points = [point for entry in later if entry["kind"] == "metrics" for point in entry["points"]]
        return {(name, step) for name, _value, _when, step in points}

    @property
    def last_written(self) -> int:
        """When the last entry was written, in milliseconds."""
        return int((self.path / ENTRIES).stat().st_mtime * 1000)

    def remove(self) -> None:
        """Delete it; killed meanwhile, what is left is no journal."""
        with suppress(OSError):
            (self.path / SENT).unlink()
        self.release()
        shutil.rmtree(self.path, ignore_errors=True)

    def _take(self, entry: Entry) -> None:
        kind = entry["kind"]
        if kind in ("start", "resume"):
            self.status, self.process, self.experiment = "", str(entry["process"]), str(entry["experiment"])
        elif kind == "end":
            self.status = str(entry["status"])
        self._unsent.append(entry)
        self.count += 1

    def _note(self) -> None:
        partial = self.path / f"{SENT}.partial"
        partial.write_text(json.dumps({"run_id": self.run_id, "sent": self.sent, "store": self.store}))
        partial.replace(self.path / SENT)


def read_entries(path: Path) -> Iterator[tuple[Entry, int]]:
    """Read the entries of a journal, each against its checksum, and where each ends in the file.

    Raises:
        ValueError: an entry is damaged, or none of ours; what follows the last whole line is left out, as a process
            may have ended while it wrote it.
    """
    end = damaged = number = 0
    with open_regular(path) as file:
        while line := file.readline(MOST_ENTRY):
            number += 1
            if damaged and line != b"\n":
                raise ValueError(f"entry {damaged} of {path.name} is damaged")
            checksum, _, text = line.removesuffix(b"\n").partition(b" ")
            end += len(line)
            if line.endswith(b"\n") and checksum == b"%08x" % zlib.crc32(text):
                yield parse_entry(text), end
            elif line.endswith(b"\n") or len(line) == MOST_ENTRY:
                damaged = damaged or number


def remove_leftovers(run_folder: Path) -> None:
    """Delete what processes left that were killed as they began a journal, or as they removed one that was sent."""
    if (run_folder / "journal").is_symlink():  # to folders that are none of ours
        return
    for path in run_folder.glob("journal/*"):
        if not (path / SENT).exists():
            shutil.rmtree(path, ignore_errors=True)
            continue
        with suppress(InputError):  # whoever sends it says what is wrong with it
            journal = Journal.open(path)
            if journal.status == "FINISHED" and journal.next is None:
                journal.remove()


def waiting_journals(runs: Path) -> list[Path]:
    """Find the journals below a folder of run folders that have something to send and no process that does it."""
    found = []
    for path in sorted(runs.glob(f"*/journal/*/{SENT}")):
        try:
            journal = Journal.open(path.parent)
        except InputError:
            found.append(path.parent)  # whoever sends it says what is wrong with it
        else:
            if has_ended(journal.process) if not journal.status else journal.next is not None:
                found.append(path.parent)
    return found
