"""The page on reliability is made from records, by the code here."""

import json
import re
from pathlib import Path

import pytest

from tests.faults.__main__ import trials
from tests.faults.page import COLUMNS, INTRODUCTION, PAGE, read_records, write_page
from tests.faults.record import Record, write_record

KEPT = Record("b_kept", "It goes on.", "It is killed.", "python -m tests.faults.x", 1200, 0, notes="a | b")
BROKEN = Record("a_broken", "It stays.", "It is cut.", "python -m tests.faults.y", 20, 3)


def rows(page: str) -> list[list[str]]:
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    return [re.split(r" (?<!\\)\| ", line[2:-2]) for line in lines]


def test_a_page_of_records(tmp_path: Path):
    """In the order of their names; what was lost is in bold, and said above the table."""
    for record in (KEPT, BROKEN):
        write_record(record, tmp_path)
    (tmp_path / "kills.jsonl").write_text("no record\n")
    page = write_page(read_records(tmp_path))
    commit = json.loads((tmp_path / "b_kept.json").read_text())["commit"]
    header, _, first, second = rows(page)
    assert tuple(header) == COLUMNS
    assert first == ["It stays.", "It is cut.", "20", "**3**", "`python -m tests.faults.y`", commit, ""]
    assert second == ["It goes on.", "It is killed.", "1,200", "0", "`python -m tests.faults.x`", commit, "a \\| b"]
    assert "**In 1 of 2 rows something was lost**" in page
    (tmp_path / "a_broken.json").unlink()
    assert "Nothing was lost in any of them." in write_page(read_records(tmp_path))


def test_the_page_in_docs_was_written_so():
    """Its introduction and columns are of this code; every row has a command, a commit and counts that can be."""
    page = PAGE.read_text()
    assert page.startswith(INTRODUCTION)
    header, _, *found = rows(page)
    assert tuple(header) == COLUMNS
    assert found
    for promise, how, tried, lost, command, commit, _ in found:
        assert promise.endswith(".")
        assert how
        assert 0 <= int(lost.strip("*").replace(",", "")) <= int(tried.replace(",", ""))
        assert re.fullmatch(r"`python -m tests\.faults\.(\w+).*`", command)[1] in trials()
        assert re.fullmatch(r"[0-9a-f]{7,40}(-dirty)?", commit)
    lost_rows = sum(row[3] != "0" for row in found)
    assert (f"**In {lost_rows} of {len(found)} rows" in page) == bool(lost_rows)


@pytest.mark.parametrize("name", ["kills", "servers", "writers", "mutants"])
def test_trials_are_found(name: str):
    assert name in trials()
    assert "record" not in trials()
