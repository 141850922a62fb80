"""The machine fails in mid-training: one line, exit code 1, nothing RUNNING, and what was saved can be loaded.

`python -m tests.faults.machine` does it to real processes, with real disks and limits.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arelu_meta.classify import main as classify
from arelu_meta.maml import main as maml
from arelu_meta.store.run_folder import CHECKPOINT, RunFolder
from tests.test_classify import TINY as CLASSIFY
from tests.test_maml import TINY
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = MLFLOW_WARNINGS
MAML = [*TINY, "--iterations", "4", "--validate-every", "1"]


def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be written any more once there is a checkpoint; what is in memory still goes to the store."""
    whole, fsync = [], os.fsync

    def fails(descriptor: int) -> None:
        if whole:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)
        whole.extend(Path("runs").glob(f"*/{CHECKPOINT}"))

    monkeypatch.setattr("os.fsync", fails)


def deleted_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    save = RunFolder.save

    def save_then_delete(folder: RunFolder, state: dict[str, Any]) -> None:
        save(folder, state)
        Path("runs").rename("elsewhere")

    monkeypatch.setattr(RunFolder, "save", save_then_delete)


def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_given: object, **_options: object) -> None:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: 8 bytes")

    monkeypatch.setattr("arelu_meta.kinds.few_shot.run.validate", fails)


@pytest.mark.parametrize(
    ("main", "words", "fault", "line"),
    [
        (maml, MAML, full_disk, "No space left on device"),
        (maml, MAML, deleted_folder, "No such file or directory"),
        (maml, MAML, no_memory, "there is not enough memory"),
        (classify, CLASSIFY, full_disk, "No space left on device"),
    ],
    ids=["maml-full", "maml-deleted", "maml-memory", "classify-full"],
)
def test_one_line_and_a_run_that_has_failed(
    main: Callable[[list[str]], int],
    words: list[str],
    fault: Callable[[pytest.MonkeyPatch], None],
    line: str,
    store: Path,
    statuses: Callable[[Path], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    fault(monkeypatch)
    assert main(words) == 1
    errors = [text for text in capsys.readouterr().err.splitlines() if text.startswith("error: ")]
    assert len(errors) == 1
    assert line in errors[0]
    assert statuses(store) == ["FAILED"]
    for folder in Path("runs").glob(f"*/{CHECKPOINT}"):
        assert RunFolder.read_last(folder.parent) is not None
