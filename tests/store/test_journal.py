import json
import os
import random
import tracemalloc
from pathlib import Path

import pytest

from arelu_meta.errors import InputError, RunError
from arelu_meta.runtime.machine import process_name
from arelu_meta.store import journal as journals
from arelu_meta.store.journal import ENTRIES, SENT, Journal, read_entries, remove_leftovers, waiting_journals

START = {"experiment": "tests", "name": "a run", "tags": {"colour": "blue"}}


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """The journal of a run with three points."""
    made = Journal.create(tmp_path / "task-0", "sqlite:///mlflow.db", **START)
    made.append("metrics", points=[["loss", 1.5, 100, 0], ["loss", float("nan"), 200, 1]])
    made.append("metrics", points=[["loss", 0.5, 300, 2]])
    return made


def kinds(journal: Journal) -> list[str]:
    return [entry["kind"] for entry, _ in read_entries(journal.path / ENTRIES)]


def test_it_is_read_as_it_was_written(journal: Journal):
    journal.append("end", status="FINISHED")
    read = Journal.open(journal.path)
    assert (read.count, read.sent, read.status, read.process) == (4, 0, "FINISHED", process_name())
    assert (read.experiment, read.store, read.run_id) == ("tests", "sqlite:///mlflow.db", "")
    assert read.next is not None
    assert read.next["tags"] == {"colour": "blue"}


def test_what_was_sent_is_not_sent_again(journal: Journal):
    journal.run_id = "abc"
    journal.next_was_sent()
    read = Journal.open(journal.path)
    assert (read.sent, read.run_id) == (1, "abc")
    assert read.next is not None
    assert read.next["points"][0] == ["loss", 1.5, 100, 0]
    read.send_again()
    assert (read.sent, read.run_id, read.next["kind"]) == (0, "", "start")


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_line_that_was_not_written_to_its_end_does_not_count(journal: Journal, cut: int):
    """Its process was killed while it wrote; the next one goes on behind the last whole line."""
    path = journal.path / ENTRIES
    journal.release()
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    read = Journal.open(journal.path)
    assert read.count == 2
    assert read.hold()
    read.append("tags", values={})
    assert kinds(read) == ["start", "metrics", "tags"]


def test_a_changed_byte_is_noticed(journal: Journal):
    """In each line but the last, which may be one that was not written to its end."""
    path = journal.path / ENTRIES
    content = path.read_bytes()
    last = content[:-1].rindex(b"\n")
    draw = random.Random(0)  # noqa: S311
    for _ in range(50):
        place = draw.randrange(last)
        changed = bytearray(content)
        changed[place] ^= 1 << draw.randrange(8)
        path.write_bytes(changed)
        with pytest.raises(InputError, match="damaged"):
            Journal.open(journal.path)


@pytest.mark.parametrize(
    "state", ["", "[]", "{}", '{"run_id": "", "sent": 9, "store": ""}', '{"run_id": "", "sent": "x", "store": ""}']
)
def test_what_is_no_journal_is_wrong_input(journal: Journal, state: str):
    (journal.path / SENT).write_text(state)
    with pytest.raises(InputError, match="delete it") as error:
        Journal.open(journal.path)
    assert "\n" not in str(error.value)


def test_a_line_without_end_is_not_read_into_memory(journal: Journal, monkeypatch: pytest.MonkeyPatch):
    """A file with a hole of 64 MiB takes no room on the disk; entries have 64 KiB here at most, `sent.json` 16 MiB."""
    monkeypatch.setattr(journals, "MOST_ENTRY", 64 << 10)
    whole = (journal.path / ENTRIES).stat().st_size
    os.truncate(journal.path / ENTRIES, whole + (64 << 20))
    tracemalloc.start()
    with pytest.raises(InputError, match=r"entry 4 of entries.jsonl is damaged"):
        Journal.open(journal.path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 32 << 20


@pytest.mark.parametrize("name", [ENTRIES, SENT, f"{SENT}.partial", "", ".."])
def test_a_journal_behind_links_is_refused(journal: Journal, tmp_path: Path, name: str):
    """To note what was sent through one would overwrite a file that somebody else has."""
    place = (journal.path / name).parent.resolve() / (journal.path / name).resolve().name
    if place.exists():
        place.rename(tmp_path / "moved")
    place.symlink_to(tmp_path / "moved")
    with pytest.raises(InputError, match=rf"is no journal of ours: {place.name} is no plain file; delete it"):
        Journal.open(journal.path)


def test_points_after_a_checkpoint(journal: Journal):
    """Entry 0 is the start, entry 1 has the steps 0 and 1, entry 2 step 2."""
    assert journal.points_after(2) == {("loss", 2)}
    assert journal.points_after(1) == {("loss", 0), ("loss", 1), ("loss", 2)}
    assert journal.points_after(3) == set()


def test_a_disk_that_takes_nothing_more_is_one_line(journal: Journal):
    """The entry is sent all the same, so that the store knows how the run ended."""
    (journal.path / ENTRIES).unlink()
    (journal.path / ENTRIES).mkdir()
    with pytest.raises(RunError, match=r"cannot write .*entries\.jsonl"):
        journal.append("end", status="FAILED")
    assert journal.status == "FAILED"


def test_who_holds_it(journal: Journal):
    assert not Journal.open(journal.path).hold()
    journal.release()
    assert Journal.open(journal.path).hold()


def test_which_ones_wait(tmp_path: Path):
    """Ended and not sent, or left by a process that is gone; not one that a living process writes, nor one all sent."""
    mine = Journal.create(tmp_path / "alive", "", **START)
    ended = Journal.create(tmp_path / "ended", "", **START)
    ended.append("end", status="KILLED")
    sent = Journal.create(tmp_path / "sent", "", **START)
    sent.append("end", status="FAILED")
    sent.next_was_sent()
    sent.next_was_sent()
    left = Journal.create(tmp_path / "left", "", **START)
    left.append("resume", **START, process=process_name().replace(f":{os.getpid()}:", ":4194305:"))
    elsewhere = Journal.create(tmp_path / "elsewhere", "", **START)
    elsewhere.append("resume", **START, process="another-machine:1:1")
    broken = tmp_path / "broken" / "journal" / "0"
    broken.mkdir(parents=True)
    (broken / SENT).write_text(json.dumps({}))
    assert waiting_journals(tmp_path) == sorted([ended.path, left.path, broken])
    assert mine.path not in waiting_journals(tmp_path)


def test_killed_as_it_was_begun_or_removed(journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nothing of it waits for the store or is in the way, and the next run of the folder deletes it."""
    journal.append("end", status="FINISHED")
    read = Journal.open(journal.path)
    with monkeypatch.context() as patch:
        patch.setattr("arelu_meta.store.journal.shutil.rmtree", lambda *_, **__: None)
        journal.remove()
        patch.setattr(Journal, "append", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            Journal.create(tmp_path / "task-0", "", **START)
    assert waiting_journals(tmp_path) == []
    assert not read.hold()
    assert len(list((tmp_path / "task-0" / "journal").iterdir())) == 2
    remove_leftovers(tmp_path / "task-0")
    assert list((tmp_path / "task-0" / "journal").iterdir()) == []


def test_folders_behind_a_link_are_nobodys_leftovers(tmp_path: Path):
    """A stranger's run folder may have a link to mine where its journals would be."""
    (tmp_path / "mine" / "papers").mkdir(parents=True)
    (tmp_path / "task-0").mkdir()
    (tmp_path / "task-0" / "journal").symlink_to(tmp_path / "mine")
    remove_leftovers(tmp_path / "task-0")
    assert (tmp_path / "mine" / "papers").is_dir()


def test_only_what_is_of_no_use_is_left_over(tmp_path: Path):
    """A finished run that was sent and not yet removed; not one that may be resumed, nor one to be sent."""
    kept = []
    for status, sent in (("FINISHED", 2), ("FINISHED", 1), ("FAILED", 2), ("KILLED", 2)):
        journal = Journal.create(tmp_path, "", **START)
        journal.append("end", status=status)
        for _ in range(sent):
            journal.next_was_sent()
        journal.release()
        kept += [journal.path] if (status, sent) != ("FINISHED", 2) else []
    remove_leftovers(tmp_path)
    assert sorted((tmp_path / "journal").iterdir()) == sorted(kept)
