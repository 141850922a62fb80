"""Attempts of trials are kept: a trial can be stopped, shared out and repeated, and nothing of that is hidden."""

import json
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.faults.record import Log, Record, commit, commits_of, end_cleanly, history, write_record


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log("trial", ("name", "number"), tmp_path / "records")


def test_an_attempt_that_was_made_is_not_made_again_unless_it_lost_something(log: Log):
    log.add({"name": "a", "number": 0, "wrong": []})
    log.add({"name": "a", "number": 1, "wrong": ["a point twice"]})
    assert log.is_done(name="a", number=0)
    assert log.is_done(name="a", number=0, again=True)
    assert log.is_done(name="a", number=1)
    assert not log.is_done(name="a", number=1, again=True)
    assert not log.is_done(name="b", number=0)


def test_the_last_attempt_counts_and_what_was_lost_before_is_said(log: Log):
    log.add({"name": "a", "number": 0, "wrong": ["a point twice"]})
    log.add({"name": "a", "number": 0, "wrong": ["a point less"]})
    log.add({"name": "a", "number": 1, "wrong": []})
    log.add({"name": "a", "number": 0, "wrong": []})
    rows = log.rows(name="a")
    assert [(row["number"], row["wrong"], row["before"]) for row in rows] == [(1, [], 0), (0, [], 2)]
    assert history(rows) == ["1 had lost something, which was mended, and were repeated"]


def test_rows_are_counted_by_their_commit(log: Log):
    lines = [{"name": "a", "number": number, "wrong": [], "commit": commit} for number, commit in enumerate("ssr")]
    log.path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert commits_of(log.rows()) == {"s": 2, "r": 1}
    assert history(log.rows()) == []


def test_a_record_takes_the_place_of_that_of_its_seed_alone(tmp_path: Path):
    """The same seed makes the same attempts again, another makes more of them."""
    for seed, commits in ((1, {"a": 3}), (0, {"a": 47}), (0, {"b": 50})):
        record = Record("trial", "It holds.", "It is shaken.", "python -m x", commits, lost=0, seed=seed)
        path = write_record(record, tmp_path)
    assert record.tried == 50
    kept = json.loads(path.read_text())
    assert [(trial["seed"], trial["commits"]) for trial in kept["trials"]] == [(0, {"b": 50}), (1, {"a": 3})]
    assert list(tmp_path.iterdir()) == [path]


def test_what_trials_write_is_no_change_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Neither a record that is not committed nor one that is; a file of the code is."""
    monkeypatch.setattr("tests.faults.record.ROOT", tmp_path)
    monkeypatch.setattr("tests.faults.record.RECORDS", tmp_path / "records")
    monkeypatch.setattr("tests.faults.record.PAGE", tmp_path / "page.md")

    def git(*words: str) -> str:
        command = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *words]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()

    def save(text: str, *names: str) -> None:
        for name in names:
            (tmp_path / name).write_text(text)

    git("init", "--quiet")
    (tmp_path / "records").mkdir()
    save("one", "code.py", "page.md", "records/kills.json")
    git("add", ".")
    git("commit", "--quiet", "--message", "code")
    first = git("rev-parse", "--short", "HEAD")
    assert commit() == first
    save("two", "page.md", "records/kills.json")
    assert commit() == first
    git("commit", "--quiet", "--all", "--message", "records")
    assert commit() == first
    save("two", "code.py")
    assert commit() == f"{first}-dirty"


def test_several_may_add_to_one_log(log: Log):
    """Lines of other processes are whole: each is written by one call to the end of the file."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: log.add({"name": "a" * 5000, "number": number, "wrong": []}), range(64)))
    assert {row["number"] for row in Log("trial", ("name", "number"), log.path.parent).rows()} == set(range(64))


def test_a_trial_that_is_terminated_ends_what_it_began():
    """SIGTERM ends a process without its `finally`, which is where trials end commands and unmount disks."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        end_cleanly()
        with pytest.raises(SystemExit) as ended:
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 128 + signal.SIGTERM
