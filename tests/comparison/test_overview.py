import sys
from collections.abc import Callable

import pytest

from arelu_meta.comparison import overview
from arelu_meta.comparison.cells import Cell
from arelu_meta.comparison.overview import Overview
from arelu_meta.comparison.worker import CellOutcome
from arelu_meta.kinds.few_shot.spec import FewShotSpec


@pytest.fixture
def cell(tiny_spec: Callable[..., FewShotSpec]) -> Callable[[str], Cell]:
    return lambda arm: Cell({"activation": arm}, tiny_spec(network={"activation": arm}))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(overview.time, "monotonic", lambda: now[0])
    return now


def test_time_left_counts_parts_of_cells(cell: Callable[[str], Cell], clock: list[float], capsys):
    """Four few-shot cells, two stages each. One done and one half through its first stage: 1.25 cells in 50 s.

    So 40 s for a cell, and 2.75 cells are left: 110 s.
    """
    with Overview(4) as view:
        assert view.left() is None
        view.on_start(cell("relu"))
        view.on_start(cell("arelu"))
        clock[0] += 50
        view.on_progress(cell("arelu"), "meta-train", 2, 4)
        view.on_end(CellOutcome(cell("relu"), run_id="1", seconds=50))
        assert view.done == pytest.approx(1.25)
        assert view.left() == pytest.approx(110)
        view.on_progress(cell("arelu"), "test", 1, 2)
        assert view.done == pytest.approx(1.75)
    assert capsys.readouterr().err == "1/4  relu seed 0  50 s  2 min left\n"


def test_failures_and_notes_are_said(cell: Callable[[str], Cell], capsys):
    with Overview(1) as view:
        view.on_message("warning: once")
        view.on_message("warning: once")
        view.on_end(CellOutcome(cell("relu"), reason="RuntimeError: no"))
    assert capsys.readouterr().err == "warning: once\n1/1  relu seed 0  failed: RuntimeError: no\n"


def test_on_a_terminal(cell: Callable[[str], Cell], monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    with Overview(2) as view:
        view.on_start(cell("arelu"))
        view.on_progress(cell("arelu"), "meta-train", 1, 4)
        view.on_message("something [happened]")
        view.on_end(CellOutcome(cell("arelu"), run_id="1", seconds=3))
    shown = capsys.readouterr().err
    assert "all cells" in shown
    assert "1.0/2" in shown
    assert "something [happened]" in shown
