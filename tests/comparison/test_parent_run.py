"""The parent run of a comparison: one run of each cell below it, and nothing of an earlier report on it."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from arelu_meta import __version__
from arelu_meta.comparison.cells import Cell
from arelu_meta.comparison.collect import results
from arelu_meta.comparison.parent_run import (
    AXES,
    BUDGET,
    HASH,
    NAME,
    STARTED,
    ParentRun,
    coordinates,
    latest_parent_run,
    open_parent_run,
)
from arelu_meta.errors import InputError
from arelu_meta.store.connection import experiment_exists
from tests.tiny_runs import MLFLOW_WARNINGS, tiny_spec

pytestmark = [MLFLOW_WARNINGS, pytest.mark.usefixtures("store_uri")]


def finished(parent: ParentRun, cell: Cell, end: int, **tags: str) -> str:
    """A finished run of a cell, as a worker leaves it."""
    given = {**parent.tags_for(cell, "mine"), "spec_hash": cell.spec.identity, **tags}
    run = parent.client.create_run(parent.experiment_id, tags=given, start_time=1)
    parent.client.set_terminated(run.info.run_id, end_time=end)
    return str(run.info.run_id)


@pytest.fixture
def parent() -> ParentRun:
    return open_parent_run("mine", "a hash", note="")


def test_of_two_runs_of_a_cell_the_first_counts(parent: ParentRun):
    """Two runners that met all the same: a report with both would count a seed twice."""
    cells = [Cell({"activation": "relu"}, tiny_spec(seed=seed)) for seed in (0, 1)]
    late, first = finished(parent, cells[0], 20), finished(parent, cells[0], 10)
    other = finished(parent, cells[1], 30)
    assert [run.info.run_id for run in parent.ended_cells()] == [first, other]
    assert parent.adopt(cells, "mine") == {cell.spec.identity for cell in cells}
    assert late not in {run.info.run_id for run in parent.ended_cells()}


def test_cells_are_in_the_order_of_the_file_as_it_is_now(parent: ParentRun):
    cells = [Cell({"activation": name}, tiny_spec(seed=seed)) for seed, name in enumerate(("relu", "arelu", "elu"))]
    for cell in cells:
        finished(parent, cell, 10)
    for order in (["elu", "relu", "arelu"], ["arelu", "elu", "relu"]):
        parent.start({AXES: json.dumps({"activation": order})})
        assert [coordinates(run)["activation"] for run in parent.ended_cells()] == order


def test_values_of_an_axis_may_have_commas(parent: ParentRun):
    """They were joined by a comma and taken apart at it."""
    order = ["b, a", "a", "b"]
    for seed, name in enumerate(sorted(order)):
        finished(parent, Cell({"path": name}, tiny_spec(seed=seed)), 10)
    parent.start({AXES: json.dumps({"path": order})})
    assert [coordinates(run)["path"] for run in parent.ended_cells()] == order


def test_a_comparison_does_not_read_the_runs_of_other_editions(parent: ParentRun, monkeypatch: pytest.MonkeyPatch):
    """In a store of ten thousand runs it took minutes; the calls do not grow with the cells either."""
    cells = [Cell({"activation": "relu"}, tiny_spec(seed=seed)) for seed in range(6)]
    other = open_parent_run("mine", "another hash", note="")
    for cell in cells[:4]:
        finished(parent, cell, 10)
    for seed in range(10, 16):
        finished(other, Cell({"activation": "relu"}, tiny_spec(seed=seed)), 10)
    moved = finished(other, cells[4], 10)
    read, calls = set(), []
    search = MlflowClient.search_runs

    def counted(*given: Any, **options: Any) -> Any:
        found = search(*given, **options)
        calls.append(given)
        read.update(run.info.run_id for run in found)
        return found

    monkeypatch.setattr(MlflowClient, "search_runs", counted)
    again = open_parent_run("mine", "a hash", note="")
    assert again.adopt(cells[:5], "mine") == {cell.identity for cell in cells[:5]}
    assert moved in read
    assert len(read) == 2 + 4 + 1  # parents, those below, and the one that moves
    calls.clear()
    assert len(again.adopt(cells[:5], "mine")) == len(again.ended_cells()) == 5
    assert len(calls) == 2  # finished ones and diverged ones, once


def test_of_two_parent_runs_the_earliest_counts(parent: ParentRun):
    """Two shards that start at the same moment may make one each."""
    tags = {NAME: "mine", HASH: "a hash", "arelu_meta": __version__}
    earlier = parent.client.create_run(parent.experiment_id, tags=tags, start_time=1).info.run_id
    assert open_parent_run("mine", "a hash", note="").run_id == earlier


def test_of_two_runs_that_finished_at_the_same_moment_all_choose_the_same(parent: ParentRun):
    cell = Cell({"activation": "relu"}, tiny_spec())
    runs = [finished(parent, cell, 10) for _ in range(4)]
    assert [run.info.run_id for run in parent.ended_cells()] == [min(runs)]


def artifacts(client: MlflowClient, run_id: str, folder: str) -> list[str]:
    return sorted(entry.path for entry in client.list_artifacts(run_id, folder))


def test_a_report_replaces_the_one_before(parent: ParentRun, tmp_path: Path):
    """Numbers it no longer has are NaN, for MLflow keeps a metric; its files are gone."""
    for names, metrics in ((("arms.png", "report.md"), {"a": 1.0, "b": 2.0}), (("report.md",), {"b": 3.0})):
        folder = tmp_path / f"{len(names)}"
        (folder / "figures").mkdir(parents=True)
        for name in names:
            (folder / "figures" / name).write_text("x")
        parent.write_report(folder, metrics, {"cells.finished": "1"})
    found = parent.client.get_run(parent.run_id).data.metrics
    assert found["b"] == 3.0
    assert math.isnan(found["a"])
    assert artifacts(parent.client, parent.run_id, "report/figures") == ["report/figures/report.md"]
    parent.write_report(folder, {"a": 4.0, "b": 3.0}, {})  # and back again
    assert parent.client.get_run(parent.run_id).data.metrics == {"a": 4.0, "b": 3.0}
    history = [(point.step, point.value) for point in parent.client.get_metric_history(parent.run_id, "b")]
    assert history == [(0, 2.0), (1, 3.0)]  # the third report changed nothing of it
    assert [point.step for point in parent.client.get_metric_history(parent.run_id, "a")] == [0, 1, 2]
    parent.write_report(folder, {"a": 4.0, "b": math.nan}, {})
    parent.write_report(folder, {"a": 4.0, "b": math.nan}, {})
    assert len(parent.client.get_metric_history(parent.run_id, "b")) == 3


def test_results_are_those_run_last_with_the_budget_asked_for():
    old, new, trial = (open_parent_run("mine", text, note="") for text in ("old", "new", "trial"))
    for number, (one, budget) in enumerate([(new, "1"), (old, "1"), (trial, "0.1")]):
        one.start({BUDGET: budget})
        one.client.set_tag(one.run_id, STARTED, str(number))
    assert latest_parent_run("mine").run_id == old.run_id
    assert latest_parent_run("mine", 0.1).run_id == trial.run_id
    with pytest.raises(InputError, match=r"no comparison 'mine' with budget 0.5; it has it with budget 0.1, 1"):
        latest_parent_run("mine", 0.5)


def test_asking_makes_nothing():
    with pytest.raises(InputError, match=r"the store holds no comparison 'typo'; run python -m arelu_meta.compare"):
        results("typo")
    assert not experiment_exists("typo")
