"""Attempts of trials are kept: a trial can be stopped, shared out and repeated, and nothing of that is hidden."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.faults.record import Log, history, tried_at


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


def test_commits_are_named_where_there_are_several(log: Log):
    lines = [{"name": "a", "number": number, "wrong": [], "commit": commit} for number, commit in enumerate("ssr")]
    log.path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert tried_at(log.rows()) == "s"
    assert history(log.rows()) == ["tried at s (2), r (1)"]
    assert history(log.rows()[:2]) == []


def test_several_may_add_to_one_log(log: Log):
    """Lines of other processes are whole: each is written by one call to the end of the file."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: log.add({"name": "a" * 5000, "number": number, "wrong": []}), range(64)))
    assert {row["number"] for row in Log("trial", ("name", "number"), log.path.parent).rows()} == set(range(64))
