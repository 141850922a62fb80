"""The runner with workers that do nothing but what is told here: what others do meanwhile to its cells."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from arelu_meta.comparison.cells import expand
from arelu_meta.comparison.collect import results
from arelu_meta.comparison.experiment import read_experiment
from arelu_meta.comparison.overview import Overview
from arelu_meta.comparison.runner import Plan, run_plan
from arelu_meta.comparison.worker import CellOutcome, Job, run_cell
from arelu_meta.errors import RunError
from arelu_meta.store.connection import open_store
from arelu_meta.store.journal import runs_folder
from tests.comparison import tiny
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = [MLFLOW_WARNINGS, pytest.mark.usefixtures("store_uri")]


class ByOthers:
    """Finds every cell finished, as a worker does when another runner was faster, below that runner's own parent."""

    count = 2

    def __init__(self, *lost: int) -> None:
        self.lost = lost
        """Numbers of cells whose run is deleted right after."""

    def run(self, jobs: Sequence[Job], overview: Overview) -> Iterator[CellOutcome]:
        for number, job in enumerate(jobs):
            client, experiment_id = open_store(job.execution.experiment)
            tags = {**job.execution.tags, "spec_hash": job.cell.spec.identity, "mlflow.parentRunId": "another parent"}
            tags["exec.threads"] = "1" if job.cell.values["activation"] == "relu" else str(number)
            run = client.create_run(experiment_id, tags=tags)
            client.log_metric(run.info.run_id, "test/accuracy", 0.5)
            client.set_terminated(run.info.run_id)
            if number in self.lost:
                client.delete_run(run.info.run_id)
            outcome = CellOutcome(job.cell, run_id=run.info.run_id)
            overview.on_end(outcome)
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
    done = run_plan(plan, given(ByOthers()))
    assert len(done.report.analysis.findings.runs) == 4
    assert done.missing == ()


def test_a_finished_run_that_is_gone_is_missing(plan: Plan):
    done = run_plan(plan, given(ByOthers(2)))
    assert len(done.report.analysis.findings.runs) == 3
    assert done.missing == (f"{plan.cells[2].label}: its run is no longer in the store",)


def test_the_reason_of_a_cell_without_a_result_is_kept(plan: Plan):
    class Failing(ByOthers):
        def run(self, jobs: Sequence[Job], overview: Overview) -> Iterator[CellOutcome]:
            yield from super().run(jobs[1:], overview)
            yield CellOutcome(jobs[0].cell, reason="it broke")

    done = run_plan(plan, given(Failing()))
    assert done.missing == (f"{plan.cells[0].label}: it broke",)


def test_no_cell_begins_where_the_runs_folder_was_taken_away(plan: Plan):
    """The cell made an empty one and trained there, as did all after it: without their lock, and from the start."""

    class AfterTheMove(ByOthers):
        def run(self, jobs: Sequence[Job], overview: Overview) -> Iterator[CellOutcome]:
            yield from super().run(jobs[:1], overview)
            runs_folder().rename("elsewhere")
            yield run_cell(jobs[1])
            raise AssertionError("nothing is run after it")

    with pytest.raises(RunError, match=r"comparison-tiny-\w+ was deleted or renamed; put it back; run it again"):
        run_plan(plan, given(AfterTheMove()))
    assert not runs_folder().exists()
    Path("elsewhere").rename(runs_folder())
    assert run_plan(plan, given(ByOthers())).missing == ()


def test_how_the_cells_of_each_arm_were_executed_is_collected(plan: Plan):
    """The cells are relu, arelu, relu, arelu; two of them at once."""
    report = run_plan(plan, given(ByOthers())).report
    assert report.analysis.findings.execution == {
        "relu": {"exec.threads": ("1",), "exec.workers": ("2",)},
        "arelu": {"exec.threads": ("1", "3"), "exec.workers": ("2",)},
    }


def test_two_parent_runs_become_one(plan: Plan):
    """Another shard's was made a moment earlier and showed a moment later: its own goes, and the cells move there."""

    class WithEarlierParent(ByOthers):
        def run(self, jobs: Sequence[Job], overview: Overview) -> Iterator[CellOutcome]:
            client, experiment_id = open_store("tiny")
            (own,) = client.search_runs([experiment_id])
            tags = {key: value for key, value in own.data.tags.items() if not key.startswith("mlflow.")}
            self.earlier = client.create_run(experiment_id, tags=tags, start_time=1).info.run_id
            yield from super().run(jobs, overview)

    workers = WithEarlierParent()
    done = run_plan(plan, given(workers))
    assert done.parent.run_id == workers.earlier
    assert len(done.parent.ended_cells()) == len(results("tiny")) == 4
    client, experiment_id = open_store("tiny")
    assert len(client.search_runs([experiment_id], "tags.`comparison.hash` != ''")) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RunError("3 cells wait")], ids=["Ctrl-C", "error"])
def test_a_store_that_is_away_does_not_hide_what_ended_a_comparison(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, error: BaseException
):
    """Its run is ended by the next command, as that of a process that is gone."""

    class Interrupted(ByOthers):
        def run(self, *_jobs: object) -> Iterator[CellOutcome]:
            monkeypatch.setattr("arelu_meta.comparison.parent_run.check_reachable", refuse)
            raise error
            yield

    def refuse(*_address: object, **_options: object) -> None:
        raise ConnectionError("no server answers")

    with pytest.raises(type(error)) as raised:
        run_plan(plan, given(Interrupted()))
    assert raised.value is error


@pytest.mark.parametrize("named", [True, False])
def test_the_verdict_is_about_the_arm_that_the_file_names(tmp_path: Path, monkeypatch, named: bool):
    """By seed relu has 90, 91, 92 %, arelu 0, 1 and -1 points more, the arm of one's own 20, 21 and 20 less."""
    monkeypatch.setenv("ARELU_META_TRUST", "tests")
    own = "tests.own_parts:Squareplus"
    line = f'explained = "{own}"\n' if named else ""
    changes = [('["relu", "arelu"]', f'["relu", "arelu", "{own}"]'), ("seeds = [0, 1]", "seeds = [0, 1, 2]")]
    path = tiny.write(tmp_path, *changes, ("[report]\n", f"[report]\n{line}"))
    path.write_text(path.read_text().replace('validation_metric = "validation/accuracy"', ""))
    shifts = {"relu": (0, 0, 0), "arelu": (0, 1, -1), own: (-20, -21, -20)}

    class WithScores(ByOthers):
        def run(self, jobs: Sequence[Job], overview: Overview) -> Iterator[CellOutcome]:
            for job in jobs:
                (outcome,) = super().run([job], overview)
                seed = job.cell.spec.seed
                score = (90 + seed + shifts[job.cell.values["activation"]][seed]) / 100
                open_store(job.execution.experiment)[0].log_metric(outcome.run_id, "test/accuracy", score)
                yield outcome

    made = read_experiment(str(path))
    (verdict,) = run_plan(Plan(experiment=made, cells=expand(made)), given(WithScores())).report.verdicts
    if named:
        assert verdict.sentences.startswith(f"{own} is detectably worse than relu on test/accuracy: ")
    else:
        assert verdict.sentences.startswith("Undecided whether arelu differs from relu on test/accuracy: ")
        assert f"1 worse ({own})." in verdict.evidence


def test_steps_to_an_accuracy_are_judged_the_right_way_round(tmp_path: Path):
    """arelu needs a step less, and never gets there in seed 2; the area says that the run measured its speed."""
    changes = [
        ("seeds = [0, 1]", "seeds = [0, 1, 2]"),
        ("[report]\n", '[report]\nmetric = "test/steps_to_80"\nchance = 50\n'),
    ]
    path = tiny.write(tmp_path, *changes)
    path.write_text(path.read_text().replace('validation_metric = "validation/accuracy"', ""))
    steps = {"relu": (3.0, 3.2, 3.1), "arelu": (2.0, 2.1, None)}

    class WithSteps(ByOthers):
        def run(self, jobs: Sequence[Job], overview: Overview) -> Iterator[CellOutcome]:
            for job in jobs:
                (outcome,) = super().run([job], overview)
                client, _ = open_store(job.execution.experiment)
                reached = steps[job.cell.values["activation"]][job.cell.spec.seed]
                values = {"test/accuracy": 0.9, "test/accuracy_area": 0.7, "test/steps_to_80": reached}
                for name, value in values.items():
                    if value is not None:
                        client.log_metric(outcome.run_id, name, value)
                yield outcome

    made = read_experiment(str(path))
    report = run_plan(Plan(experiment=made, cells=expand(made)), given(WithSteps())).report
    findings = report.analysis.findings
    assert (findings.higher_is_better, findings.failure_metric, findings.chance) == (False, "test/accuracy", 50.0)
    assert findings.units["test/steps_to_80"] == "steps"
    (comparison,) = report.analysis.primary
    assert [(arm.name, arm.estimate.n, len(arm.failed)) for arm in comparison.arms] == [("arelu", 2, 1), ("relu", 3, 0)]
    assert "2 of 3 trainings of arelu and 3 of 3 of relu get there" in report.verdicts[0].sentences
