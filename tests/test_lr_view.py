"""The command `python -m arelu_meta.lr_view`."""

import json
from pathlib import Path

import pandas as pd
import pytest
from mlflow import MlflowClient

from arelu_meta.comparison.collect import results
from arelu_meta.errors import InputError
from arelu_meta.kinds.command import read_flags
from arelu_meta.lr_view import learning_rates, main
from tests.comparison.tiny import InProcess
from tests.supervised_runs import no_model
from tests.tiny_images import NEGATIVE
from tests.tiny_networks import TINY
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = MLFLOW_WARNINGS
__all__ = ["no_model"]  # a fixture
FLAGS = ["--model", TINY, "--data", NEGATIVE, "--epochs", "1", "--device", "cpu", "--lr-sweep", "0.01:0.1"]


@pytest.fixture
def in_process(monkeypatch):
    """Run cells in this process, so that `no_model` holds for them."""
    monkeypatch.setattr("arelu_meta.lr_view.Pool", lambda **_threads: InProcess())


@pytest.mark.usefixtures("store", "no_model", "in_process")
def test_table_csv_and_figure(capsys):
    assert main([*FLAGS, "--arms", "own", "arelu", "own"]) == 0
    captured = capsys.readouterr()
    title, heads = captured.out.splitlines()[:2]
    assert title == "validation accuracy % by learning rate, mean of 1 seed"
    assert heads.split() == ["activation", "0.01", "0.1"]
    assert captured.out.splitlines()[4:6] == ["own: the activations that the network has", ""]
    assert "fine-tuned on" in captured.out
    assert ", seed 0\n" in captured.out
    assert "lr_view: 4 cells, 0 of them finished before" in captured.err
    assert "4/4  arelu lr=0.1 seed 0" in captured.err
    table = results("lr_view")
    assert list(zip(table["activation"], table["lr"], strict=True)) == [
        (arm, lr) for arm in ("own", "arelu") for lr in (0.01, 0.1)
    ]
    points = pd.read_csv("lr_view/points.csv")
    assert list(points.columns) == ["activation", "lr", "seed", "validation_accuracy", "test_accuracy"]
    assert points["test_accuracy"].tolist() == pytest.approx((table["test/accuracy"] / 100).tolist(), abs=1e-6)
    assert Path("lr_view/lr_view.png").read_bytes().startswith(b"\x89PNG")
    assert Path("lr_view/table.txt").read_text() in captured.out
    assert main([*FLAGS, "--arms", "own", "arelu"]) == 0
    assert "lr_view: 4 cells, 4 of them finished before" in capsys.readouterr().err
    assert main([*FLAGS, "--arms", "own", "arelu", "--json", "--quiet"]) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert captured.err == ""
    assert {row["activation"] for row in document["arms"]} == {"own", "arelu"}
    assert document["runs"] == 4
    assert document["missing"] == []
    assert (Path(document["report"]) / "report.html").is_file()


@pytest.mark.usefixtures("store", "no_model", "in_process")
def test_cells_are_those_of_finetune_and_a_diverged_one_is_found_again(capsys):
    """A rate at which the loss is no longer finite is an answer: it is shown, and not run a second time."""
    flags = [*FLAGS[:-2], "--arms", "own", "--lr-sweep", "1e29:1e30", "--seeds", "3", "--batch-size", "16"]
    assert main(flags) == 0
    first = capsys.readouterr()
    assert "own lr=1e+30 seed 3" in first.err
    assert first.err.count("diverged") == 2
    assert first.out.splitlines()[2].split() == ["own", "diverged", "diverged"]
    assert main(flags) == 0
    assert "lr_view: 2 cells, 2 of them finished before" in capsys.readouterr().err
    client = MlflowClient()
    runs = client.search_runs([client.get_experiment_by_name("lr_view").experiment_id], "tags.diverged != ''")
    settings = ["--seed", "3", "--batch-size", "16", "--lr", "1e30", "--activation", "own"]
    spec, _ = read_flags("finetune", [*FLAGS[:-2], *settings])
    assert spec.identity in {run.data.tags["spec_hash"] for run in runs}
    assert len(runs) == 2


def test_learning_rates():
    assert learning_rates("1e-5:1e-1") == [1e-5, 1e-4, 1e-3, 1e-2, 1e-1]
    assert learning_rates("0.002:0.2") == [0.002, 0.02, 0.2]
    assert learning_rates("0.1:1:4") == [0.1, 0.177828, 0.316228, 0.562341, 1.0]
    assert learning_rates("1e-4:5e-2") == [1e-4, 1e-3, 1e-2]  # none above the highest


@pytest.mark.parametrize("text", ["1e-3", "1:0.1", "0:1", "a:b", "1e-3:1:0", "1e-3:1:2:3", "-1:1", "nan:1", "1e-3:inf"])
def test_wrong_learning_rates(text):
    with pytest.raises(InputError, match="give LOW:HIGH or LOW:HIGH:PER_DECADE"):
        learning_rates(text)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--lr-sweep 1", "--lr-sweep 1: give LOW:HIGH"),
        ("--lr-sweep 1e-3:3e-3", "--lr-sweep 1e-3:3e-3 has one rate; widen it, or give more per decade"),
        ("--protocol paper", "the best rate is chosen on validation images; use --protocol sound"),
        ("--experiment a/b", "the name 'a/b' has more than letters, digits, _ . and -"),
        ("--arms arleu", "unknown activation 'arleu'; did you mean 'arelu'"),
        ("--seeds a", "seeds 'a' are not numbers and ranges such as 0-4"),
        ("--seed 4", "--seed is set by lr_view itself; give --seeds"),
        ("--lr=0.1", "--lr=0.1 is set by lr_view itself; give --lr-sweep"),
        ("--activation relu", "--activation is set by lr_view itself; give --arms"),
        ("--sedes 1", "unknown flag '--sedes'"),
        ("--data strete", "did you mean 'street'"),
    ],
)
def test_wrong_input_is_one_line_and_leaves_nothing(tmp_path, monkeypatch, capsys, flags, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert main([*FLAGS, *flags.split()]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
