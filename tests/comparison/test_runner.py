"""The runner with workers that do nothing but what is told here: what others do meanwhile to its cells."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from arelu_meta.comparison.experiment import read_experiment
from arelu_meta.comparison.grid import expand
from arelu_meta.comparison.job import Job, Listener, Outcome
from arelu_meta.comparison.runner import Plan, compare
from arelu_meta.store.connection import open_store
from tests.comparison import tiny
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = [MLFLOW_WARNINGS, pytest.mark.usefixtures("store_uri")]


class ByOthers:
    """Finds every cell finished, as a worker does when another runner was faster, below that runner's own parent."""

    def __init__(self, *lost: int) -> None:
        self.lost = lost
        """Numbers of cells whose run is deleted right after."""

    def run(self, jobs: Sequence[Job], listener: Listener) -> Iterator[Outcome]:
        for number, job in enumerate(jobs):
            client, experiment_id = open_store(job.execution.experiment)
            tags = {**job.execution.tags, "spec_hash": job.cell.spec.identity, "mlflow.parentRunId": "another parent"}
            run = client.create_run(experiment_id, tags=tags)
            client.log_metric(run.info.run_id, "test/accuracy", 0.5)
            client.set_terminated(run.info.run_id)
            if number in self.lost:
                client.delete_run(run.info.run_id)
            outcome = Outcome(job.cell, run_id=run.info.run_id)
            listener.ended(outcome)
            yield outcome


@contextmanager
def given(workers: ByOthers) -> Iterator[ByOthers]:
    yield workers


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.chdir(tmp_path)
    tiny.write(tmp_path, ('validation_metric = "validation/accuracy"', ""))
    experiment = read_experiment("tiny.toml")
    return Plan(experiment=experiment, cells=expand(experiment))


def test_what_another_runner_finished_below_its_own_parent_is_in_the_report(plan: Plan):
    done = compare(plan, given(ByOthers()))
    assert len(done.findings.runs) == 4
    assert done.findings.missing == ()


def test_a_finished_run_that_is_gone_is_missing(plan: Plan):
    done = compare(plan, given(ByOthers(2)))
    assert len(done.findings.runs) == 3
    assert done.findings.missing == (f"{plan.cells[2].label}: its run is no longer in the store",)


def test_the_reason_of_a_cell_without_a_result_is_kept(plan: Plan):
    class Failing(ByOthers):
        def run(self, jobs: Sequence[Job], listener: Listener) -> Iterator[Outcome]:
            yield from super().run(jobs[1:], listener)
            yield Outcome(jobs[0].cell, reason="it broke")

    done = compare(plan, given(Failing()))
    assert done.findings.missing == (f"{plan.cells[0].label}: it broke",)
