"""The journal of a run, as a specimen: read, and sent to a store of its own."""

import json
import zlib
from pathlib import Path
from unittest.mock import patch

from arelu_meta.errors import InputError
from arelu_meta.store.journal import Journal
from arelu_meta.store.settling import flush
from tests.faults.specimen import Specimen


def journal(*, checked: bool) -> Specimen:
    """The journal of a run with every kind of entry, sent to a store; where `checked`, its lines have checksums.

    Else each is given one that fits when it is read, as a journal of a stranger would have.
    """
    place = "runs/tiny-0/journal/0123"
    start = {
        "time": 1,
        "experiment": "mutants",
        "name": "a run",
        "tags": {"colour": "blue"},
        "process": "elsewhere:1:1",
    }
    digest = {"name": "digits", "digest": "0" * 32, "source_type": "code", "source": "{}"}
    entries: list[dict[str, object]] = [
        {"kind": "start", **start},
        {"kind": "params", "values": {"lr": "0.1", "method": "maml"}},
        {"kind": "dataset", "dataset": digest, "context": "train"},
        {"kind": "artifact", "file": "files/3/split.json", "folder": "splits"},
        {"kind": "metrics", "points": [["train/loss", 0.5, 100, 1], ["train/loss", float("nan"), 200, 2]]},
        {"kind": "resume", **start},
        {"kind": "tags", "values": {"diverged": "no"}},
        {"kind": "child", "time": 5, "name": "draw 0", "metrics": {"test/accuracy": 0.5}, "tags": {"draw": "0"}},
        {"kind": "end", "time": 9, "status": "FINISHED"},
    ]
    lines = [json.dumps(entry).encode() for entry in entries]
    name = "entries.jsonl" if checked else "entries.txt"
    files = {
        f"{place}/{name}": b"".join(_with_checksum(line) if checked else line + b"\n" for line in lines),
        f"{place}/sent.json": b'{"run_id": "", "sent": 0, "store": "STORE"}',
        f"{place}/files/3/split.json": b"{}",
    }

    def read(folder: Path) -> object:
        uri = (folder / "mlruns").as_uri()
        note = folder / place / "sent.json"
        note.write_bytes(note.read_bytes().replace(b"STORE", uri.encode()))
        if not checked:
            content = (folder / place / name).read_bytes().splitlines()
            (folder / place / "entries.jsonl").write_bytes(b"".join(map(_with_checksum, content)))
        opened = Journal.open(folder / place)
        opened.points_after(2)
        with patch.dict("os.environ", {"MLFLOW_TRACKING_URI": uri, "MLFLOW_ALLOW_FILE_STORE": "true"}):
            _, left = flush(folder / "runs")
        if left:
            raise InputError(left[0])
        return opened

    return Specimen("journal" if checked else "journal, checksums fit", files, read, tuple(files)[:2])


def _with_checksum(line: bytes) -> bytes:
    return b"%08x %s\n" % (zlib.crc32(line), line)
