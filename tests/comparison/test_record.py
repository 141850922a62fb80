"""The parent run of a comparison: one run of each cell below it, and nothing of an earlier report on it."""

import math
from pathlib import Path

import pytest
from mlflow import MlflowClient

from arelu_meta.comparison.grid import Cell
from arelu_meta.comparison.record import BUDGET, CALLED, Record, latest_record, open_record, place
from arelu_meta.comparison.results import results
from arelu_meta.errors import InputError
from arelu_meta.store.connection import experiment_exists
from tests.tiny_runs import MLFLOW_WARNINGS, tiny_spec

pytestmark = [MLFLOW_WARNINGS, pytest.mark.usefixtures("store_uri")]


def finished(record: Record, cell: Cell, end: int, **tags: str) -> str:
    """A finished run of a cell, as a worker leaves it."""
    given = {**record.tags_for(cell, "mine"), "spec_hash": cell.spec.identity, **tags}
    run = record.client.create_run(record.experiment_id, tags=given, start_time=1)
    record.client.set_terminated(run.info.run_id, end_time=end)
    return str(run.info.run_id)


@pytest.fixture
def record() -> Record:
    return open_record("mine", "a hash", note="")


def test_of_two_runs_of_a_cell_the_first_counts(record: Record):
    """Two runners that met all the same: a report with both would count a seed twice."""
    cells = [Cell({"activation": "relu"}, tiny_spec(seed=seed)) for seed in (0, 1)]
    late, first = finished(record, cells[0], 20), finished(record, cells[0], 10)
    other = finished(record, cells[1], 30)
    assert [run.info.run_id for run in record.finished_cells()] == [first, other]
    assert record.take_finished(cells, "mine") == {cells[0].spec.identity: first, cells[1].spec.identity: other}
    assert late not in record.take_finished(cells, "mine").values()


def test_cells_are_in_the_order_of_the_file_as_it_is_now(record: Record):
    cells = [Cell({"activation": name}, tiny_spec(seed=seed)) for seed, name in enumerate(("relu", "arelu", "elu"))]
    for cell in cells:
        finished(record, cell, 10)
    for order in ("elu, relu, arelu", "arelu, elu, relu"):
        record.begin({"axis.activation": order})
        names = [place(run)["activation"] for run in record.finished_cells()]
        assert names == order.split(", ")


def artifacts(client: MlflowClient, run_id: str, folder: str) -> list[str]:
    return sorted(entry.path for entry in client.list_artifacts(run_id, folder))


def test_a_report_replaces_the_one_before(record: Record, tmp_path: Path):
    """Numbers it no longer has are NaN, for MLflow keeps a metric; its files are gone."""
    for names, metrics in ((("arms.png", "report.md"), {"a": 1.0, "b": 2.0}), (("report.md",), {"b": 3.0})):
        folder = tmp_path / f"{len(names)}"
        (folder / "figures").mkdir(parents=True)
        for name in names:
            (folder / "figures" / name).write_text("x")
        record.write(folder, metrics, {"cells.finished": "1"})
    found = record.client.get_run(record.run_id).data.metrics
    assert found["b"] == 3.0
    assert math.isnan(found["a"])
    assert artifacts(record.client, record.run_id, "report/figures") == ["report/figures/report.md"]
    record.write(folder, {"a": 4.0, "b": 3.0}, {})  # and back again
    assert record.client.get_run(record.run_id).data.metrics == {"a": 4.0, "b": 3.0}


def test_results_are_those_run_last_with_the_budget_asked_for():
    old, new, trial = (open_record("mine", text, note="") for text in ("old", "new", "trial"))
    for number, (one, budget) in enumerate([(new, "1"), (old, "1"), (trial, "0.1")]):
        one.begin({BUDGET: budget})
        one.client.set_tag(one.run_id, CALLED, str(number))
    assert latest_record("mine").run_id == old.run_id
    assert latest_record("mine", 0.1).run_id == trial.run_id
    with pytest.raises(InputError, match=r"no comparison 'mine' with budget 0.5; it has it with budget 0.1, 1"):
        latest_record("mine", 0.5)


def test_asking_makes_nothing():
    with pytest.raises(InputError, match=r"the store holds no comparison 'typo'; run python -m arelu_meta.compare"):
        results("typo")
    assert not experiment_exists("typo")
