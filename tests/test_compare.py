"""The command: what it refuses, what it lists, what it runs, what it finds again."""

import re
import shutil
import signal
import sqlite3
import subprocess
import time
from pathlib import Path
from random import Random

import pandas as pd
import pytest
from mlflow.exceptions import MlflowException

from arelu_meta import __version__
from arelu_meta.analysis.failures import failed_trainings
from arelu_meta.compare import main
from arelu_meta.comparison.collect import results
from arelu_meta.errors import InputError
from tests.comparison import tiny

TROUBLE = "tests.comparison.trouble"


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory, new_store: Path) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """One finished comparison of four cells, by two workers."""
    folder = tmp_path_factory.mktemp("sweep")
    shutil.copy(new_store, folder / "mlflow.db")
    tiny.write(folder)
    return folder, tiny.compare(folder, "tiny.toml", "--workers", "2", "--threads", "1")


@pytest.fixture
def new_folder(tmp_path: Path, new_store: Path) -> Path:
    shutil.copy(new_store, tmp_path / "mlflow.db")
    return tmp_path


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run cells in this process, which has loaded torch."""
    monkeypatch.setattr("arelu_meta.compare.Pool", lambda *_numbers: tiny.InProcess())


def refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


def test_a_flag_that_the_cells_do_not_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Runs on episodes are not compiled; left out in silence, the flag would seem to do nothing."""
    line = refused([str(tiny.write(tmp_path)), "--dry-run", "--compile"], capsys)
    assert line == "error: runs of kind 'few_shot' have no --compile; leave it out\n"


@pytest.mark.usefixtures("store")
def test_the_number_format_makes_other_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """It is a setting of a run: bf16 has identities of its own, and fp32, the default, those of the file."""
    listed = []
    for flags in ([], ["--precision", "fp32"], ["--precision", "bf16"]):
        assert main([str(tiny.write(tmp_path)), "--dry-run", *flags]) == 0
        listed.append(capsys.readouterr().out)
    assert listed[0] == listed[1] != listed[2]
    line = refused([str(tiny.write(tmp_path)), "--dry-run", "--precision", "fp16"], capsys)
    assert "precision" in line
    assert "'bf16'" in line


def test_a_published_figure_that_is_no_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tiny.write(tmp_path, ("curves =", 'published = ["mine.csv"]\ncurves ='))
    (path.parent / "published").mkdir()
    rows = 'activation,metric,value,protocol,source\nrelu,test/accuracy,91,,\nrelu,test/accuracy,"91,5",,\n'
    (path.parent / "published" / "mine.csv").write_text(rows)
    assert "mine.csv, line 3: value '91,5' is not a number" in refused([str(path)], capsys)


def test_dry_run_lists_the_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    tiny.write(tmp_path)
    assert main(["tiny.toml", "--dry-run", "--seeds", "3-4", "--only", "activation=arelu", "--budget", "0.5"]) == 0
    first, header, *rows = capsys.readouterr().out.splitlines()
    assert first == "tiny: 2 cells of task digits, 50 % of the full training"
    assert header.split() == ["activation", "seed", "identity"]
    assert [row.split()[:2] for row in rows] == [["arelu", "3"], ["arelu", "4"]]
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.toml"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (('"arelu"]', '"arleu"]'), "unknown activation 'arleu'; did you mean 'arelu'?"),
        (("inner_steps", "inner_step"), "unknown key 'inner_step', did you mean 'inner_steps'?"),
        (("curves =", 'metric = "test/acc"\ncurves ='), "unknown metric of the report 'test/acc'"),
        (("curves =", 'other_metrics = ["test/acc"]\ncurves ='), "unknown other metric of the report 'test/acc'"),
        (("curves =", 'further = ["test/loss"]\ncurves ='), "[report]: unknown key 'further'"),
        (('"arelu"]', '"relu"]'), "two cells are the same run: 'relu seed 0' and 'relu seed 0'"),
    ],
)
@pytest.mark.usefixtures("store")
def test_wrong_files(tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: tuple[str, str], message: str):
    assert message in refused([str(tiny.write(tmp_path, changes))], capsys)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["maml_digit"], "unknown experiment 'maml_digit'; did you mean 'maml_digits'?"),
        (["maml_digits", "--only", "activation=arleu"], "no such value"),
        (["maml_digits", "--only", "shots=1"], "no such axis"),
        (["maml_digits", "--seeds", "4-1"], "are not numbers and ranges such as 0-4"),
        (["maml_digits", "--budget", "2"], "--budget 2 must be above 0 and at most 1"),
        (["maml_digits", "--workers", "0"], "--workers 0 must be at least 1"),
        (["maml_digits", "--threads", "-1"], "--threads -1 must be at least 0"),
        (["maml_digits", "--threads", "100000"], "at most 1024"),
        (["maml_digits", "--on", "ray", "--cpus", "0"], "--cpus 0 must be above 0"),
        (["maml_digits", "--on", "ray", "--gpus", "-1"], "--gpus -1 at least 0"),
        (["maml_digits", "--shard", "0/8"], "--shard '0/8' is not of the form NUMBER/COUNT with 1 <= NUMBER <= COUNT"),
        (["maml_digits", "--shard", "9/8"], "--shard '9/8' is not of the form"),
        (["maml_digits", "--shard", "a/b"], "--shard 'a/b' is not of the form"),
        (["maml_digits", "--device", "cuda:77"], "device 'cuda:77' is not available here"),
        (["maml_digits", "--device", "nosuch", "--dry-run"], "device 'nosuch' is not available here"),
        (["maml_digits", "--on", "slurm"], "invalid choice: 'slurm'"),
    ],
)
@pytest.mark.usefixtures("store")
def test_wrong_flags(capsys: pytest.CaptureFixture[str], argv: list[str], message: str):
    assert message in refused(argv, capsys)


@pytest.mark.usefixtures("store")
def test_ray_missing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert "Ray is not installed; pip install" in refused(["maml_digits", "--on", "ray"], capsys)


def test_every_cell_ends_once_below_one_parent(sweep: tuple[Path, subprocess.CompletedProcess[str]]):
    folder, done = sweep
    assert done.returncode == 0, done.stderr
    found = tiny.cells(folder)
    places = sorted((place["activation"], place["seed"]) for place, _, _ in found)
    assert places == [("arelu", 0), ("arelu", 1), ("relu", 0), ("relu", 1)]
    assert {status for _, status, _ in found} == {"FINISHED"}
    ((parent, status),) = tiny.parents(folder)
    assert status == "FINISHED"
    assert {below for _, _, below in found} == {parent}
    assert parent in done.stdout
    assert "tiny: 4 cells, 0 of them finished before" in done.stderr
    assert "4/4" in done.stderr


@pytest.mark.slow
def test_overhead_of_a_cell_is_under_a_second(sweep: tuple[Path, subprocess.CompletedProcess[str]]):
    """What a worker does for a cell beside the run itself: from the cell's start to the start of its MLflow run.

    The first cell of each worker is left out: it also loads what a run needs. It holds for a machine that is not busy,
    hence among the slow ones.
    """
    folder, _ = sweep
    rows = tiny.query(
        folder,
        "SELECT (end_time - start_time) / 1000.0, tags.value FROM runs JOIN tags ON tags.run_uuid = runs.run_uuid "
        "AND tags.key = 'comparison.seconds' ORDER BY start_time",
    )
    assert len(rows) == 4
    assert sorted(float(whole) - own for own, whole in rows)[0] < 1.0


def test_results_as_a_table(sweep: tuple[Path, subprocess.CompletedProcess[str]], monkeypatch: pytest.MonkeyPatch):
    folder, _ = sweep
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlflow.db'}")
    import arelu_meta

    table = arelu_meta.results("tiny")
    assert isinstance(table, pd.DataFrame)
    assert list(table.columns[:2]) == ["activation", "seed"]
    assert len(table) == 4
    (report,) = (folder / "runs").glob("comparison-*/report/runs.csv")
    pd.testing.assert_frame_equal(table, pd.read_csv(report))
    stored = tiny.query(folder, "SELECT run_uuid, value FROM latest_metrics WHERE key = 'test/accuracy'")
    shares = dict(stored)
    for row in table.itertuples():
        assert table.loc[row.Index, "test/accuracy"] == pytest.approx(100 * shares[row.run_id])


def test_curves_as_a_table(sweep: tuple[Path, subprocess.CompletedProcess[str]], monkeypatch: pytest.MonkeyPatch):
    folder, _ = sweep
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlflow.db'}")
    import arelu_meta

    table = arelu_meta.curves("tiny", "train/accuracy")
    assert list(table.columns) == ["activation", "seed", "metric", "step", "value"]
    stored = tiny.query(folder, "SELECT value FROM metrics WHERE key = 'train/accuracy'")
    assert sorted(table["value"]) == pytest.approx(sorted(100 * value for (value,) in stored))
    with pytest.raises(InputError, match="unknown metric 'train/acuracy'; did you mean 'train/accuracy'"):
        arelu_meta.curves("tiny", "train/acuracy")


def test_the_report_hangs_on_the_parent(sweep: tuple[Path, subprocess.CompletedProcess[str]]):
    """Its numbers are metrics (the mean worked out here from the cells' own metrics), its files artifacts."""
    folder, done = sweep
    ((parent, _),) = tiny.parents(folder)
    metrics = dict(tiny.query(folder, f"SELECT key, value FROM latest_metrics WHERE run_uuid = '{parent}'"))  # noqa: S608
    of_arelu = tiny.query(
        folder,
        "SELECT metric.value FROM latest_metrics metric JOIN params ON params.run_uuid = metric.run_uuid AND "
        "params.key = 'activation' AND params.value = 'arelu' WHERE metric.key = 'test/accuracy'",
    )
    assert len(of_arelu) == 2
    values = pd.Series([100 * value for (value,) in of_arelu])
    learned = values.drop(list(failed_trainings(values, None, 50.0)))  # after two steps, some may be at chance
    counted = learned if len(learned) else values
    assert metrics["arelu/test/accuracy_n"] == len(counted)
    assert metrics["arelu/test/accuracy_mean"] == pytest.approx(counted.mean())
    assert metrics.get("arelu/test/accuracy_ci95_low", 0.0) <= metrics["arelu/test/accuracy_mean"]
    ((place,),) = tiny.query(folder, f"SELECT artifact_uri FROM runs WHERE run_uuid = '{parent}'")  # noqa: S608
    files = {path.name for path in (Path(place.removeprefix("file://")) / "report").iterdir()}
    assert {"report.html", "report.md", "tables.tex", "runs.csv", "table.csv"} <= files
    assert re.search(r"relu +baseline +(\d of 2 +)?[12] ", done.stdout)


def test_finished_cells_are_found(sweep: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path):
    """A second call runs nothing and says the same."""
    folder = tmp_path / "again"
    shutil.copytree(sweep[0], folder)
    before, parents = tiny.final_table(folder), tiny.parents(folder)
    done = tiny.compare(folder, "tiny.toml")
    assert done.returncode == 0, done.stderr
    assert "4 cells, 4 of them finished before" in done.stderr
    assert tiny.final_table(folder) == before
    assert tiny.parents(folder) == parents


@pytest.mark.usefixtures("in_process")
def test_a_wider_call_and_another_edition_run_what_is_new(
    sweep: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
):
    """Other seeds go below the same parent; another arm makes another comparison, which takes finished cells over."""
    folder = tmp_path / "wider"
    shutil.copytree(sweep[0], folder)
    ((old, _),) = tiny.parents(folder)
    done = tiny.compare(folder, "tiny.toml", "--only", "activation=relu", "--seeds", "1-2")
    assert "2 cells, 1 of them finished before" in done.stderr
    assert len(tiny.cells(folder)) == 5
    assert {parent for _, _, parent in tiny.cells(folder)} == {old}
    assert len(tiny.final_table(folder).splitlines()) == 6  # all that is known: the header and five cells
    tiny.write(folder, ('["relu", "arelu"]', '["relu", "arelu", "elu"]'))
    done = tiny.compare(folder, "tiny.toml", "--seeds", "0", "--only", "activation=relu,arelu")
    assert "2 cells, 2 of them finished before" in done.stderr
    (new,) = {parent for parent, _ in tiny.parents(folder)} - {old}
    below = {(place["activation"], place["seed"]): parent for place, _, parent in tiny.cells(folder)}
    assert below == {
        ("relu", 0): new,
        ("arelu", 0): new,
        ("relu", 1): old,
        ("arelu", 1): old,
        ("relu", 2): old,
    }


def test_another_version_stands_in_the_way(sweep: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path):
    folder = tmp_path / "older"
    shutil.copytree(sweep[0], folder)
    with sqlite3.connect(folder / "mlflow.db") as connection:
        connection.execute("UPDATE tags SET value = '0.0.1' WHERE key = 'arelu_meta'")
    done = tiny.compare(folder, "tiny.toml")
    assert done.returncode == 2
    expected = f"the store holds comparison 'tiny' made by arelu_meta 0.0.1, this is {__version__}; "
    assert done.stderr.startswith(f"error: {expected}")
    assert done.stderr.count("\n") == 1
    done = tiny.compare(folder, "tiny.toml", "--any-version")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("error", [MlflowException("no answer\nfor long"), OSError(28, "No space left on device")])
def test_a_store_or_disk_that_fails_in_the_end(
    sweep: tuple[Path, subprocess.CompletedProcess[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
):
    """One line that says how to go on; the parent run is closed."""
    folder = tmp_path / "again"
    shutil.copytree(sweep[0], folder)

    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("arelu_meta.comparison.runner.collect_findings", fails)
    done = tiny.compare(folder, "tiny.toml")
    assert done.returncode == 1
    *_, line = done.stderr.splitlines()
    reason = str(error).splitlines()[0]
    assert line.startswith(f"error: the store or the disk failed: {reason}; to resume: python -m")
    assert [status for _, status in tiny.parents(folder)] == ["FAILED"]


def test_trouble_is_retried_once_and_stops_nobody(new_folder: Path):
    """Three arms: one fails at first, one kills its worker at first, one always fails; and a good one."""
    arms = ", ".join(
        f'"{name}"' for name in ("relu", *(f"{TROUBLE}:{k}" for k in ("FailsOnce", "KillsOnce", "AlwaysFails")))
    )
    tiny.write(new_folder, ('["relu", "arelu"]', f"[{arms}]"), ("seeds = [0, 1]", "seeds = [0]"))
    done = tiny.compare(new_folder, "tiny.toml", "--workers", "2", "--trust", "tests")
    assert done.returncode == 1
    assert "FailsOnce seed 0: RuntimeError: the first time is hard; it is retried" in done.stderr
    assert "KillsOnce seed 0: its worker died; it is retried" in done.stderr
    assert "AlwaysFails seed 0  failed: RuntimeError: never works" in done.stderr
    assert "error: 1 of 4 cells has no result; to retry: python -m arelu_meta.compare tiny.toml" in done.stderr
    assert (new_folder / "failures").read_text() == "xx"
    finished = [
        place["activation"].partition(":")[2] for place, status, _ in tiny.cells(new_folder) if status == "FINISHED"
    ]
    assert sorted(finished) == ["", "FailsOnce", "KillsOnce"]
    assert len(tiny.cells(new_folder)) == 3
    assert [status for _, status in tiny.parents(new_folder)] == ["FAILED"]


def test_a_runs_folder_that_is_taken_away_ends_a_comparison(new_folder: Path):
    """It made an empty one, began the cell anew there and trained all the others, without its lock and its report."""
    tiny.write(new_folder, ('["relu", "arelu"]', f'["{TROUBLE}:TakesRunsAway", "relu"]'))
    done = tiny.compare(new_folder, "tiny.toml", "--trust", "tests")
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    (folder,) = (new_folder / "elsewhere").glob("comparison-tiny-*")
    gone = new_folder / "runs" / folder.name
    assert f"error: the store or the disk failed: {gone} was deleted or renamed; put it back; to resume: " in line
    assert not (new_folder / "runs").exists()
    assert [status for _, status, _ in tiny.cells(new_folder)] == ["FAILED"]
    assert [status for _, status in tiny.parents(new_folder)] == ["FAILED"]
    (new_folder / "elsewhere").rename(new_folder / "runs")
    assert tiny.compare(new_folder, "tiny.toml", "--trust", "tests").returncode == 0
    assert [status for _, status, _ in tiny.cells(new_folder)] == ["FINISHED"] * 4


def test_a_cell_that_diverges_has_a_result(new_folder: Path, monkeypatch: pytest.MonkeyPatch):
    """A rate at which the loss is no longer finite is not chosen, not tried again, and no failure."""
    grid = ('["relu", "arelu"]', '["relu", "arelu"]\ntraining.outer_lr = [0.005, 1e30]')
    tiny.write(new_folder, grid, ("seeds = [0, 1]", "seeds = [0]"))
    done = tiny.compare(new_folder, "tiny.toml", "--workers", "1")
    assert done.returncode == 0, done.stderr
    assert "retried" not in done.stderr
    assert len(re.findall(r"outer_lr=1e\+30 seed 0  \d+ s  diverged", done.stderr)) == 2
    statuses = {(place["outer_lr"], status) for place, status, _ in tiny.cells(new_folder)}
    assert statuses == {(0.005, "FINISHED"), (1e30, "FAILED")}
    assert [status for _, status in tiny.parents(new_folder)] == ["FINISHED"]
    (report,) = (new_folder / "runs").glob("comparison-*/report/report.md")
    assert "| finished runs | 4, 2 of them without a finite result |" in report.read_text()
    assert "| arelu |  | 0.005 (edge) |" in report.read_text()
    for name, value in tiny.environment(new_folder).items():
        monkeypatch.setenv(name, value)
    table = results("tiny").set_index(["activation", "outer_lr"])["test/accuracy"]
    assert table.isna().to_dict() == {(arm, lr): lr == 1e30 for arm in ("relu", "arelu") for lr in (0.005, 1e30)}
    again = tiny.compare(new_folder, "tiny.toml")
    assert "4 cells, 4 of them finished before" in again.stderr


def wait_for_a_run(folder: Path) -> None:
    end = time.monotonic() + 200
    while not any(status == "RUNNING" for _, status, _ in tiny.cells(folder)) and time.monotonic() < end:
        time.sleep(0.1)


def check_every_cell_once(folder: Path, reference: Path) -> None:
    found = tiny.cells(folder)
    assert sorted((place["activation"], place["seed"]) for place, _, _ in found) == [
        ("arelu", 0),
        ("arelu", 1),
        ("relu", 0),
        ("relu", 1),
    ]
    assert {status for _, status, _ in found} == {"FINISHED"}
    assert [status for _, status in tiny.parents(folder)] == ["FINISHED"]
    assert {parent for _, _, parent in found} == {run for run, _ in tiny.parents(folder)}
    assert tiny.final_table(folder) == tiny.final_table(reference)


@pytest.mark.slow
def test_an_interrupted_and_a_killed_runner_go_on(
    new_folder: Path, sweep: tuple[Path, subprocess.CompletedProcess[str]]
):
    """Ctrl-C ends cleanly and says how to go on, SIGKILL cannot; after both, the same command gives the same table."""
    tiny.write(new_folder)
    runner = tiny.start(new_folder, "tiny.toml", "--threads", "1")
    wait_for_a_run(new_folder)
    runner.send_signal(signal.SIGINT)
    out, err = runner.communicate(timeout=120)
    assert (runner.returncode, out) == (130, ""), err
    assert "to resume: python -m arelu_meta.compare tiny.toml" in err
    assert "Traceback" not in err
    assert {status for _, status, _ in tiny.cells(new_folder)} <= {"KILLED", "FINISHED"}
    assert [status for _, status in tiny.parents(new_folder)] == ["KILLED"]
    runner = tiny.start(new_folder, "tiny.toml", "--threads", "1")
    wait_for_a_run(new_folder)
    runner.kill()
    runner.communicate(timeout=120)  # ends when the worker has let go of the pipes: it ends with the runner
    assert runner.returncode == -signal.SIGKILL
    assert [status for _, status in tiny.parents(new_folder)] == ["RUNNING"]
    done = tiny.compare(new_folder, "tiny.toml", "--threads", "1")
    assert done.returncode == 0, done.stderr
    check_every_cell_once(new_folder, sweep[0])


@pytest.mark.slow
def test_a_runner_killed_ten_times_goes_on(new_folder: Path, new_store: Path):
    """At moments of chance, from the first second on."""
    tiny.write(new_folder, ("iterations = 4", "iterations = 40"))
    random, kills = Random(0), 0  # noqa: S311
    while kills < 10:
        runner = tiny.start(new_folder, "tiny.toml", "--workers", "2", "--threads", "1")
        try:
            runner.wait(random.uniform(1.0, 40.0))
        except subprocess.TimeoutExpired:
            runner.kill()
        kills += 1
        runner.communicate(timeout=120)
    assert tiny.compare(new_folder, "tiny.toml", "--workers", "2", "--threads", "1").returncode == 0
    undisturbed = new_folder / "undisturbed"
    undisturbed.mkdir()
    shutil.copy(new_store, undisturbed / "mlflow.db")
    tiny.write(undisturbed, ("iterations = 4", "iterations = 40"))
    assert tiny.compare(undisturbed, "tiny.toml", "--workers", "2", "--threads", "1").returncode == 0
    check_every_cell_once(new_folder, undisturbed)


def shard_report(folder: Path) -> list[Path]:
    return sorted((folder / "runs").glob("comparison-*/report/report.md"))


@pytest.mark.usefixtures("in_process")
def test_shards_run_their_cells_and_the_last_one_reports(
    new_folder: Path, sweep: tuple[Path, subprocess.CompletedProcess[str]]
):
    tiny.write(new_folder)
    first = tiny.compare(new_folder, "tiny.toml", "--shard", "1/2", "--threads", "1")
    assert first.returncode == 0, first.stderr
    assert "tiny: 2 cells of 4 (shard 1/2), 0 of them finished before" in first.stderr
    assert "2 of 4 cells have a result; missing:\n" in first.stdout
    assert first.stdout.count("seed") == first.stdout.count(": another shard has not run it yet\n") == 2
    assert "the report follows when all shards are done: the last one writes it" in first.stdout
    assert shard_report(new_folder) == []
    assert [status for _, status in tiny.parents(new_folder)] == ["RUNNING"]
    again = tiny.compare(new_folder, "tiny.toml", "--shard", "1/2", "--threads", "1")
    assert "2 cells of 4 (shard 1/2), 2 of them finished before" in again.stderr
    last = tiny.compare(new_folder, "tiny.toml", "--shard", "2/2", "--threads", "1")
    assert last.returncode == 0, last.stderr
    assert re.search(r"relu +baseline +(\d of 2 +)?[12] ", last.stdout)
    assert len(shard_report(new_folder)) == 1
    check_every_cell_once(new_folder, sweep[0])


@pytest.mark.usefixtures("in_process")
def test_a_shard_whose_cell_fails(new_folder: Path):
    """One of the two cells always fails: its shard says so, the other does not."""
    tiny.write(new_folder, ('"arelu"]', f'"{TROUBLE}:AlwaysFails"]'), ("seeds = [0, 1]", "seeds = [0]"))
    trusted = ("tiny.toml", "--trust", "tests")
    shards = [tiny.compare(new_folder, *trusted, "--shard", f"{number}/2") for number in (1, 2)]
    assert sorted(shard.returncode for shard in shards) == [0, 1]
    (failed,) = [shard for shard in shards if shard.returncode]
    assert f"{TROUBLE}:AlwaysFails seed 0: RuntimeError: never works" in failed.stdout
    assert "error: 1 of 1 cells has no result; to retry: python -m arelu_meta.compare tiny.toml" in failed.stderr
    whole = tiny.compare(new_folder, *trusted)
    assert "1 of 2 cells has no result" in whole.stderr
    assert len(shard_report(new_folder)) == 1


@pytest.mark.slow
def test_shards_in_folders_of_their_own_at_the_same_time(
    new_folder: Path, sweep: tuple[Path, subprocess.CompletedProcess[str]], monkeypatch: pytest.MonkeyPatch
):
    """As in a job array on several machines: one store, nothing else in common; one of them is there twice."""
    given = tiny.environment(new_folder)
    monkeypatch.setattr(tiny, "environment", lambda folder: {**given, "ARELU_META_RUNS": str(folder / "runs")})
    folders = [new_folder / name for name in ("one", "two", "twice")]
    for folder in folders:
        folder.mkdir()
        tiny.write(folder)
    shards = [
        tiny.start(folder, "tiny.toml", "--shard", shard, "--threads", "1")
        for folder, shard in zip(folders, ("1/2", "2/2", "2/2"), strict=True)
    ]
    for shard in shards:
        _, err = shard.communicate(timeout=300)
        assert shard.returncode == 0, err
    assert [path for folder in folders for path in shard_report(folder)]  # by the last, or by two that ended together
    (new_folder / "runs").mkdir()
    tiny.write(new_folder)
    done = tiny.compare(new_folder, "tiny.toml", "--threads", "1")
    assert "4 cells, 4 of them finished before" in done.stderr
    check_every_cell_once(new_folder, sweep[0])


@pytest.mark.slow
def test_shards_in_one_folder_at_the_same_time(new_folder: Path):
    """As in a job array on a shared disk."""
    tiny.write(new_folder, ("seeds = [0, 1]", "seeds = [0]"))
    shards = [tiny.start(new_folder, "tiny.toml", "--shard", f"{number}/2", "--threads", "1") for number in (1, 2)]
    for shard in shards:
        _, err = shard.communicate(timeout=300)
        assert shard.returncode == 0, err
    assert [status for _, status, _ in tiny.cells(new_folder)] == ["FINISHED", "FINISHED"]
    assert [status for _, status in tiny.parents(new_folder)] == ["FINISHED"]
    assert len(shard_report(new_folder)) == 1
