import json
import os
import pickle
from pathlib import Path

import pytest
import torch

from arelu_meta.errors import InputError
from arelu_meta.store.run_folder import RunFolder
from tests.tiny_runs import tiny_spec


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.setenv("ARELU_META_RUNS", str(tmp_path / "runs"))
    made = RunFolder(tiny_spec())
    made.create()
    return made


def test_the_folder_belongs_to_the_spec(folder, tmp_path):
    spec = tiny_spec()
    assert folder.path.parent == tmp_path / "runs"
    assert RunFolder(tiny_spec()).path == folder.path
    assert RunFolder(tiny_spec(seed=1)).path != folder.path
    assert json.loads((folder.path / "spec.json").read_text()) == spec.model_dump(mode="json")


def test_runs_in_the_working_folder_unless_told_otherwise(monkeypatch):
    monkeypatch.delenv("ARELU_META_RUNS", raising=False)
    assert RunFolder(tiny_spec()).path.parent == Path("runs")


def test_what_is_saved_is_loaded(folder):
    assert folder.load() is None
    random = torch.Generator().manual_seed(3)
    folder.save({"weights": {"w": torch.arange(3.0)}, "curve": [(1, 0.5)], "random": random.get_state()})
    found = folder.load()
    assert found["weights"]["w"].tolist() == [0, 1, 2]
    assert found["curve"] == [(1, 0.5)]
    assert torch.equal(found["random"], random.get_state())
    assert sorted(path.name for path in folder.path.iterdir()) == ["checkpoint.pt", "spec.json"]


@pytest.mark.parametrize(
    "error", [OSError("No space left on device"), KeyboardInterrupt()], ids=["full", "interrupted"]
)
@pytest.mark.parametrize("place", ["write", "fsync", "replace"])
def test_a_crash_while_saving_leaves_the_old_checkpoint(folder, monkeypatch, error, place):
    folder.save({"done": 1})

    def half_written(_state, file):
        file.write(b"half of it")
        raise error

    def fails(*_arguments):
        raise error

    if place == "write":
        monkeypatch.setattr(torch, "save", half_written)
    else:
        monkeypatch.setattr(*((os, "fsync") if place == "fsync" else (Path, "replace")), fails)
    with pytest.raises(type(error)):
        folder.save({"done": 2})
    monkeypatch.undo()
    assert folder.load()["done"] == 1
    assert sorted(path.name for path in folder.path.iterdir()) == ["checkpoint.pt", "spec.json"]


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", "half"], ids=["empty", "text", "half"])
def test_a_corrupt_checkpoint_is_wrong_input(folder, content):
    folder.save({"weights": torch.zeros(1000)})
    whole = folder.checkpoint_path.read_bytes()
    folder.checkpoint_path.write_bytes(whole[: len(whole) // 2] if content == "half" else content)
    with pytest.raises(InputError, match=r"checkpoint.pt is not a checkpoint \(\w+\); delete it, or run"):
        folder.load()


class Mischief:
    """What a pickle can do when it is opened: call anything."""

    def __reduce__(self):
        return os.mkdir, ("opened",)


@pytest.mark.parametrize("other", [{"run_id": "1"}, {"run_id": "1", "format": 0}, [1, 2]], ids=str)
def test_a_checkpoint_of_another_version_is_wrong_input(folder, other):
    folder.save({"run_id": "1"})
    torch.save(other, folder.checkpoint_path)
    with pytest.raises(InputError, match=r"was written by another version of arelu_meta; delete it, or run"):
        folder.load()


def test_code_in_a_checkpoint_is_refused_and_not_run(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for write in (lambda: torch.save({"state": Mischief()}, folder.checkpoint_path), _plain_pickle(folder)):
        write()
        with pytest.raises(InputError, match="is not a checkpoint"):
            folder.load()
        assert not (tmp_path / "opened").exists()
    pickle.loads(folder.checkpoint_path.read_bytes())
    assert (tmp_path / "opened").exists()  # the pickle is no dud


def _plain_pickle(folder):
    return lambda: folder.checkpoint_path.write_bytes(pickle.dumps({"state": Mischief()}))


def test_a_folder_that_cannot_be_made_names_the_variable(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ARELU_META_RUNS", str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"cannot write the run folder .*; set ARELU_META_RUNS to another"):
        RunFolder(tiny_spec()).create()


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(13, "Permission denied"),
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_may_be_read_the_next_time_is_not_called_damaged(folder, monkeypatch, error):
    """A runner that took it for damaged would delete the run it belongs to."""

    def fails(*_, **__):
        raise error

    folder.save({"run_id": "1"})
    monkeypatch.setattr(torch, "load", fails)
    with pytest.raises(type(error)) as raised:
        folder.load()
    assert raised.value is error
