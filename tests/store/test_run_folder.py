import json
import os
import pickle
import signal
import zipfile
from pathlib import Path

import pytest
import torch

from arelu_meta.errors import InputError, RunError
from arelu_meta.store.run_folder import CHECKPOINT, PREVIOUS, RunFolder
from tests.tiny_runs import tiny_spec


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.setenv("ARELU_META_RUNS", str(tmp_path / "runs"))
    made = RunFolder(tiny_spec())
    made.create()
    return made


def files(folder: RunFolder) -> list[str]:
    return sorted(path.name for path in folder.path.iterdir())


def test_the_folder_belongs_to_the_spec(folder, tmp_path):
    spec = tiny_spec()
    assert folder.path.parent == tmp_path / "runs"
    assert RunFolder(tiny_spec()).path == folder.path
    assert RunFolder(tiny_spec(seed=1)).path != folder.path
    assert json.loads((folder.path / "spec.json").read_text()) == spec.model_dump(mode="json")


def test_runs_in_the_working_folder_unless_told_otherwise(monkeypatch):
    monkeypatch.delenv("ARELU_META_RUNS", raising=False)
    assert RunFolder(tiny_spec()).path.parent == Path("runs")


@pytest.mark.parametrize("task", ["../../climbed", "/absolute", "..", "", "a\nb", "a/b", "x" * 300])
def test_no_task_leads_out_of_runs(task):
    with pytest.raises(InputError, match=r"task .* cannot be the name of a folder"):
        RunFolder.path_of(task, "0123456789ab")
    with pytest.raises(ValueError, match="cannot be the name of a folder"):
        type(tiny_spec())(**{**tiny_spec().model_dump(), "task": task})


def test_what_is_saved_is_loaded(folder):
    assert folder.load() is None
    random = torch.Generator().manual_seed(3)
    folder.save({"weights": {"w": torch.arange(3.0)}, "curve": [(1, 0.5)], "random": random.get_state()})
    found = folder.load()
    assert found["weights"]["w"].tolist() == [0, 1, 2]
    assert found["curve"] == [(1, 0.5)]
    assert torch.equal(found["random"], random.get_state())
    assert files(folder) == [CHECKPOINT, "spec.json"]


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "interrupted"]
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
    expected = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else RunError
    with pytest.raises(expected, match=r"cannot write .*No space left.*kept" if expected is RunError else None):
        folder.save({"done": 2})
    monkeypatch.undo()
    assert folder.load()["done"] == 1
    assert files(folder) == [CHECKPOINT, "spec.json"]


def test_the_last_two_are_kept_and_a_crash_between_the_renames_loses_none(folder):
    for done in (1, 2, 3):
        folder.save({"done": done})
    assert folder.load()["done"] == 3
    assert RunFolder.read_checkpoint(folder.path / PREVIOUS)["done"] == 2
    folder.checkpoint_path.unlink()
    assert folder.load()["done"] == 2


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", "half"], ids=["empty", "text", "half"])
def test_a_corrupt_checkpoint_is_wrong_input(folder, content):
    folder.save({"weights": torch.zeros(1000)})
    whole = folder.checkpoint_path.read_bytes()
    folder.checkpoint_path.write_bytes(whole[: len(whole) // 2] if content == "half" else content)
    with pytest.raises(InputError, match=r"checkpoint.pt is not a checkpoint \(\w+\); delete it, or run"):
        folder.load()


def test_every_changed_byte_of_a_tensor_is_noticed_and_the_checkpoint_before_is_used(folder):
    """torch itself reads changed bytes without a word."""
    folder.save({"done": 1, "weights": torch.zeros(1000)})
    folder.save({"done": 2, "weights": torch.ones(1000)})
    whole = folder.checkpoint_path.read_bytes()
    start = whole.index(torch.ones(1000).numpy().tobytes())
    for place in range(start, start + 4000, 397):
        changed = bytearray(whole)
        changed[place] ^= 1
        folder.checkpoint_path.write_bytes(changed)
        assert not torch.equal(torch.load(folder.checkpoint_path, weights_only=True)["weights"], torch.ones(1000))
        with pytest.warns(UserWarning, match=r"checkpoint.pt is damaged .*; the one before it is used") as caught:
            assert folder.load()["done"] == 1
        assert len(caught) == 1
    (folder.path / PREVIOUS).write_bytes(b"")
    with pytest.raises(InputError, match=r"checkpoint.pt is damaged \(a changed byte in .*data/0\); delete it"):
        folder.load()


def test_a_packed_checkpoint_and_a_pickle_without_end_are_refused(folder):
    """A packed one could unpack to any size; a tuple of twice a tuple of twice a tuple takes for ever to hash."""
    with zipfile.ZipFile(folder.checkpoint_path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("checkpoint/data.pkl", bytes(1000))
    with pytest.raises(InputError, match="is packed, which no checkpoint is; delete it"):
        folder.load()
    nested: tuple = ()
    for _ in range(60):
        nested = (nested, nested)
    folder.save({"nested": nested})
    with pytest.raises(InputError, match="nests tuples 21 deep"):
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
    """A runner that took it for damaged would delete the run it belongs to; nor is the one before used."""

    def fails(*_, **__):
        raise error

    folder.save({"run_id": "0"})
    folder.save({"run_id": "1"})
    monkeypatch.setattr(torch, "load", fails)
    with pytest.raises(RunError, match=r"cannot read .*checkpoint.pt: .*; try again") as raised:
        folder.load()
    assert raised.value.__cause__ is error


def test_a_pipe_in_place_of_a_checkpoint_is_refused_at_once(folder):
    os.mkfifo(folder.checkpoint_path)
    with pytest.raises(InputError, match=r"is no regular file .*; delete it"):
        folder.load()


def test_a_second_process_is_told_who_holds_the_folder_and_a_dead_one_holds_nothing(folder):
    """Killed with -9, the holder leaves its half-written file and its name; both are gone with the next holder."""
    reading, writing = os.pipe()
    holder = os.fork()
    if not holder:  # the child, until it is killed
        with folder.locked():
            (folder.path / "checkpoint.1.partial").write_text("half")
            os.write(writing, b"held")
            signal.pause()
    assert os.read(reading, 4) == b"held"
    with (
        pytest.raises(RunError, match=rf"is in use by process {holder} on .* since 2.*; wait for it"),
        folder.locked(),
    ):
        pass
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    assert "checkpoint.1.partial" in files(folder)
    with folder.locked():
        assert f"process {os.getpid()} " in (folder.path / "owner").read_text()
        with folder.locked():  # as a comparison's worker does around its run
            pass
        assert not {"checkpoint.1.partial"} & set(files(folder))
        assert "owner" in files(folder)
    assert "owner" not in files(folder)


@pytest.mark.parametrize("name", ["owner", "spec.{}.partial", "checkpoint.{}.partial"])
def test_nothing_is_written_through_a_link_in_the_folder(folder, tmp_path, name):
    """The folder may come from a stranger, and the link lead to a file of mine."""
    mine = tmp_path / "mine"
    mine.write_text("precious")
    (folder.path / name.format(os.getpid())).symlink_to(mine)
    (folder.path / "spec.json").unlink()
    folder.create()
    with folder.locked():
        folder.save({"weights": torch.zeros(1)})
    assert mine.read_text() == "precious"
    assert folder.load()["weights"].tolist() == [0]
