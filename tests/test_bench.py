"""The command `python -m arelu_meta.bench`."""

import json
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest
import torch

from arelu_meta import bench, benchmarks
from arelu_meta.benchmarks import timing
from arelu_meta.benchmarks.report import BenchReport, Row, timing_rows
from arelu_meta.errors import RunError
from arelu_meta.registry import Entry


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """Put a benchmark of no work in place of the real one; gives the data roots it was called with."""
    roots: list[str | None] = []

    def work(root: str | None = None) -> list[BenchReport]:
        roots.append(root)
        return [BenchReport("title", [Row("ours", 0.001, 1.0), Row("theirs", 0.0025, 2.5, "slow")])]

    monkeypatch.setattr(benchmarks, "entry", lambda name: Entry(name, work))
    monkeypatch.setattr(timing, "load_warning", lambda: "")
    return roots


def test_json_parses(quick: list[str | None], capsys: pytest.CaptureFixture[str]):
    assert bench.main(["sampler", "--json", "--no-track", "--data-root", "here"]) == 0
    captured = capsys.readouterr()
    rows = [
        {"name": "ours", "seconds": 0.001, "ratio": 1.0, "note": ""},
        {"name": "theirs", "seconds": 0.0025, "ratio": 2.5, "note": "slow"},
    ]
    document = json.loads(captured.out)
    assert document["reports"] == [{"title": "title", "rows": rows, "of": "ours"}]
    assert (document["command"], document["run_id"]) == ("bench", None)
    assert captured.err == ""
    assert quick == ["here"]


def test_tables_are_written_as_markdown(quick: list[str | None], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    page = tmp_path / "measured.md"
    assert bench.main(["sampler", "--no-track", "--markdown", str(page)]) == 0
    first, *rest = page.read_text().split("\n\n")
    assert first.endswith(f"Measured by `python -m arelu_meta.bench sampler --no-track --markdown {page}`.")
    assert rest[0] == "**title**"
    assert rest[1].splitlines()[2:] == ["| ours | 1.000 | 1.00 |  |", "| theirs | 2.500 | 2.50 | slow |"]
    assert bench.main(["sampler", "--no-track", "--markdown", str(tmp_path / "none" / "measured.md")]) == 2
    assert "there is no such folder" in capsys.readouterr().err
    assert len(quick) == 1  # nothing was measured in vain


def test_tables(quick: list[str | None], capsys: pytest.CaptureFixture[str]):
    assert bench.main(["all", "--no-track"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("processor ")
    assert lines[2] == "title"
    rows = [line.split() for line in lines if "theirs" in line]
    assert rows == [["theirs", "2.500", "2.50", "slow"]] * len(benchmarks.names())
    assert quick == [None] * len(benchmarks.names())


@pytest.mark.usefixtures("store")
def test_a_profile_of_our_own_way(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    x = torch.ones(64, 64)

    def work(root: str | None = None) -> list[BenchReport]:
        del root
        timings = timing.interleaved({"products": lambda: [x @ x for _ in range(3)], "sums": x.sum}, repeats=1)
        return [BenchReport("title", timing_rows(timings))]

    monkeypatch.setattr(benchmarks, "entry", lambda name: Entry(name, work))
    monkeypatch.setattr(timing, "load_warning", lambda: "")
    assert bench.main(["sampler", "--no-track", "--profile"]) == 0
    shown = capsys.readouterr().out
    assert "profile of products, one call" in shown
    (row,) = (line.split() for line in shown.splitlines() if line.split()[:1] == ["aten::mm"])
    assert row[-1] == "3"
    assert "aten::sum" not in shown
    assert bench.main(["sampler", "--no-track"]) == 0
    assert "profile of" not in capsys.readouterr().out


def test_a_busy_machine_is_warned_of_on_standard_error(
    quick: list[str | None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(timing, "load_warning", lambda: "the machine is busy")
    assert bench.main(["sampler", "--json", "--no-track"]) == 0
    captured = capsys.readouterr()
    assert captured.err == "warning: the machine is busy\n"
    assert len(json.loads(captured.out)["reports"]) == len(quick) == 1


def test_unknown_names(capsys: pytest.CaptureFixture[str]):
    assert bench.main(["samplr"]) == 2
    assert capsys.readouterr().err == "error: unknown benchmark 'samplr'; did you mean 'sampler'?\n"
    assert bench.main([]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.usefixtures("quick", "store")
def test_figures_are_kept_in_mlflow(capsys: pytest.CaptureFixture[str]):
    assert bench.main(["sampler"]) == 0
    run_id = capsys.readouterr().err.removeprefix("MLflow run ").strip()
    kept = mlflow.get_run(run_id)
    assert kept.data.metrics["title/theirs/ratio"] == 2.5
    assert kept.data.metrics["title/ours/seconds"] == 0.001
    assert kept.data.tags["torch"] == torch.__version__
    assert json.loads(mlflow.artifacts.load_text(f"{kept.info.artifact_uri}/bench.json"))[0]["title"] == "title"


def test_json_has_no_place_for_a_profile(quick: list[str | None], capsys: pytest.CaptureFixture[str]):
    assert bench.main(["sampler", "--json", "--profile"]) == 2
    assert capsys.readouterr().err == "error: --json has no place for a profile; leave one of the two out\n"
    assert quick == []


def test_what_was_measured_before_a_fault_is_shown_and_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def work(root: str | None = None) -> Iterator[BenchReport]:
        del root
        yield BenchReport("first", [Row("ours", 0.001, 1.0)])
        raise RunError("the second cannot be measured")

    monkeypatch.setattr(benchmarks, "entry", lambda name: Entry(name, work))
    monkeypatch.setattr(timing, "load_warning", lambda: "")
    assert bench.main(["sampler"]) == 1
    captured = capsys.readouterr()
    assert "first" in captured.out.splitlines()
    kept, error = captured.err.splitlines()[-2:]
    assert error == "error: the second cannot be measured"
    assert mlflow.get_run(kept.split()[-1]).data.metrics["first/ours/ratio"] == 1.0


def test_every_benchmark_is_there_and_named_for_what_it_measures():
    names = "activation maml commands waiting memory growth sampler pipeline folder epoch epoch_cropped"
    assert benchmarks.names() == names.split()
    assert all(callable(entry.load()) and entry.summary for entry in benchmarks.entries())
