"""The page on reliability is made from records, by the code here."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.__main__ import trials
from tests.faults.page import COLUMNS, INTRODUCTION, read_records, write_page
from tests.faults.record import PAGE, Record, write_record

KEPT = Record("b_kept", "It goes on.", "It is killed.", "python -m tests.faults.x", {"c0ffee1": 1200}, 0, "a | b")
BROKEN = Record("a_broken", "It stays.", "It is cut.", "python -m tests.faults.y", {"c0ffee2": 20}, 3)


def rows(page: str) -> list[list[str]]:
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    return [re.split(r" (?<!\\)\| ", line[2:-2]) for line in lines]


def test_a_page_of_records(tmp_path: Path):
    """In the order of their names; what was lost is in bold, and said above the table."""
    for record in (KEPT, BROKEN):
        write_record(record, tmp_path)
    (tmp_path / "kills.jsonl").write_text("no record\n")
    page = write_page(read_records(tmp_path))
    header, _, first, second = rows(page)
    assert tuple(header) == COLUMNS
    assert first == ["It stays.", "It is cut.", "20", "**3**", "`python -m tests.faults.y`", "c0ffee2", ""]
    assert second == ["It goes on.", "It is killed.", "1,200", "0", "`python -m tests.faults.x`", "c0ffee1", "a \\| b"]
    assert "**In 1 of 2 rows something was lost**" in page
    (tmp_path / "a_broken.json").unlink()
    assert "Nothing was lost in any of them." in write_page(read_records(tmp_path))


def test_seeds_of_one_promise_are_one_row(tmp_path: Path):
    """47 tried at two commits, and 3 more with another seed at a third: 50, of which 1 and 1 were lost."""
    first = replace(KEPT, commits={"c0ffee1": 39, "c0ffee2": 8}, lost=1, notes="60 kills")
    for record in (replace(first, seed=1, commits={"c0ffee3": 3}, notes="4 kills"), first):
        write_record(record, tmp_path)
    _, _, (_, _, tried, lost, command, commit, notes) = rows(write_page(read_records(tmp_path)))
    assert (tried, lost, commit) == ("50", "**2**", "c0ffee1")
    assert command == "`python -m tests.faults.x`, `python -m tests.faults.x --seed 1`"
    assert notes == "seed 0: 60 kills; seed 1: 4 kills; tried at c0ffee1 (39), c0ffee2 (8), c0ffee3 (3)"


def test_the_page_in_docs_is_what_the_records_give():
    """Every row has a command of a trial, a commit and counts that can be."""
    page = PAGE.read_text()
    assert page == write_page(read_records())
    assert page.startswith(INTRODUCTION)
    header, _, *found = rows(page)
    assert tuple(header) == COLUMNS
    assert found
    for promise, how, tried, lost, command, commit, _ in found:
        assert promise.endswith(".")
        assert how
        assert 0 <= int(lost.strip("*").replace(",", "")) <= int(tried.replace(",", ""))
        assert set(re.findall(r"`python -m tests\.faults\.(\w+)", command)) <= set(trials())
        assert re.fullmatch(r"[0-9a-f]{7,40}(-dirty)?", commit)
    lost_rows = sum(row[3] != "0" for row in found)
    assert (f"**In {lost_rows} of {len(found)} rows" in page) == bool(lost_rows)


@pytest.mark.parametrize("name", ["kills", "servers", "writers", "mutants"])
def test_trials_are_found(name: str):
    assert name in trials()
    assert "record" not in trials()
