"""The command `python -m arelu_meta.maml`."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import mlflow
import numpy as np
import pytest
from PIL import Image

from arelu_meta.maml import main
from arelu_meta.store.models import open_model

TINY = [
    "--iterations",
    "2",
    "--meta-batch",
    "2",
    "--inner-steps",
    "2",
    "--queries",
    "2",
    "--test-queries",
    "3",
    "--test-episodes",
    "4",
    "--validation-episodes",
    "2",
    "--device",
    "cpu",
]


def test_prints_the_result(store: Path, statuses: Callable, capsys: pytest.CaptureFixture[str]):
    assert main(["--ways", "5", "--shots", "1", *TINY]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("arelu in mnist_conv: 5-way 1-shot maml on digits, protocol sound, seed 0\n")
    for part in (
        "n = 4)",
        "by inner step",
        "20.00 %",
        "held out",
        "MLflow run",
        "mlflow ui --backend-store-uri",
        "--support FOLDER",
    ):
        assert part in captured.out
    assert captured.err.splitlines()[1].startswith("meta-train 2/2  loss ")
    assert statuses(store) == ["FINISHED"]


@pytest.mark.filterwarnings("ignore:.*differ in size", "ignore:left out")
def test_photographs_of_different_sizes_by_class(store: Path, capsys: pytest.CaptureFixture[str]):
    """Six classes, two in an episode: two are held out to validate and two to test, though no flag says how many."""
    random, photos = np.random.default_rng(0), store.parent / "photos"
    for label in "abcdef":
        (photos / label).mkdir(parents=True)
        for number in range(8):
            pixels = random.integers(0, 256, (*random.integers(30, 60, 2), 3), dtype=np.uint8)
            Image.fromarray(pixels).save(photos / label / f"{number}.png")
    (photos / "a" / "broken.png").write_bytes(b"no image")
    words = ["--data", "photos", "--split", "by_class", "--ways", "2", *TINY]
    assert main(words) == 2
    assert "photos/a/broken.png is not a readable image" in capsys.readouterr().err
    assert main([*words, "--skip-broken", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    run = mlflow.get_run(document["run_id"])
    assert run.data.tags["split_sizes"] == "train=16 validation=16 test=16"
    assert open_model(document["run_id"]).inputs.read_size == 28
    assert main([*words, "--skip-broken", "--ways", "3"]) == 2
    message = "photos has 6 classes, 3 to validate and 3 to test on do not go with it; lower --ways to 2, "
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("method", ["maml", "protonet"])
@pytest.mark.usefixtures("store")
def test_vectors(method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Six features, classes far from each other: prototypes of an untrained network tell most of them apart."""
    random, labels = np.random.default_rng(0), np.repeat(np.arange(6), 20)
    centres = 50 * random.normal(size=(6, 6))
    np.savez(tmp_path / "vectors.npz", x=centres[labels] + random.normal(size=(120, 6)), y=labels)
    data = ["--data", str(tmp_path / "vectors.npz"), "--test-queries", "3", "--queries", "2"]
    assert main([*data, *TINY]) == 2
    assert (
        "holds vectors of 6 features, and 'mnist_conv' takes images; set --backbone to mlp" in capsys.readouterr().err
    )
    assert main([*TINY, *data, "--backbone", "mlp", "--method", method]) == 0
    report = capsys.readouterr().out
    assert "standardised by mean and deviation of the training vectors" in report
    if method == "protonet":
        assert float(report.split("test accuracy")[1].split("%")[0]) > 60


BAD = [
    ("--train-ways 8", "train_ways = 8, but the head of method 'maml' has ways = 5 outputs; use --method protonet"),
    ("--backbone conv4 --norm running", "norm 'running' does not adapt, and method 'maml' adapts by gradient"),
    ("--activation arleu", "did you mean 'arelu'"),
    ("--backbone mnist_cnv", "did you mean 'mnist_conv'"),
    ("--dataset digts", "did you mean 'digits'"),
    ("--task digit", "did you mean 'digits'"),
    ("--activaton relu", "did you mean '--activation'"),
    ("--ways 11", "10 classes, but ways = 11; lower --ways"),
    ("--meta-batch 1000000000", "--meta-batch 1000000000 takes"),
    ("--test-episodes 100000000000", "GiB, more than this machine has; lower it"),
    ("--ways 1", "ways = 1 must be at least 2: one class cannot be told from others"),
    ("--shots 0", "--shots 0: must be at least 1"),
    ("--inner-lr -0.1", "--inner-lr -0.1: must be greater than 0"),
    ("--outer_lr -0.1", "--outer-lr -0.1: must be greater than 0"),
    (
        "--shots 60 --queries 60",
        "shots + queries = 120; lower --shots, or --queries (in validation and test --test-queries)",
    ),
    ("--test-queries 40", "shots + queries = 41; lower --shots, or --queries (in validation and test --test-queries)"),
    ("--device cudda", "device 'cudda' is not available here; set"),
    ("--task digits_classify", "is of kind 'classify'; run it with python -m arelu_meta.classify"),
    ("--activation-options alpha=abc", "activation 'arelu' cannot be made with alpha='abc'"),
    ("--backbone-options channels=3", "unknown option of backbone 'mnist_conv': 'channels'"),
    ("--backbone conv4 --backbone-options norm=group filters=4", "multiple of 8 channels, not 4"),
]


@pytest.mark.parametrize(("flags", "message"), BAD, ids=[flags for flags, _ in BAD])
def test_wrong_input_is_one_line(refused, flags, message):
    assert message in refused(main, [*TINY, *flags.split()])


def test_wrong_input_of_a_process_has_no_traceback(python: Callable, tmp_path: Path):
    done = python("-m", "arelu_meta.maml", "--ways", "11")
    assert done.returncode == 2
    assert done.stdout == ""
    said, error = done.stderr.splitlines()
    assert said == "digits: loading torch and MLflow"  # so that a terminal is not empty for seconds
    assert error == "error: digits/train has 10 classes, but ways = 11; lower --ways to 10 or less"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["missing", "folder"])
def test_a_store_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str
):
    folder = tmp_path / "folder"
    if kind == "folder":
        folder.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder if kind == 'folder' else folder / 'mlflow.db'}")
    assert main(TINY) == 2
    captured = capsys.readouterr()
    (line,) = (line for line in captured.err.splitlines() if not line.endswith(": loading torch and MLflow"))
    assert line.startswith("error: cannot use the MLflow store sqlite:///")
    assert [path.name for path in tmp_path.rglob("*")] == (["folder"] if kind == "folder" else [])


def test_a_loss_that_is_not_finite(store: Path, statuses: Callable, capsys: pytest.CaptureFixture[str]):
    assert main([*TINY, "--inner-lr", "1e30"]) == 1
    assert (
        "error: the query loss is nan at iteration 1, episode 0 of the batch; lower --inner-lr"
        in capsys.readouterr().err
    )
    assert statuses(store) == ["FAILED"]


def test_terminated_run_is_killed(store: Path, statuses: Callable, root: Path):
    """SIGTERM, twice at once, when the run is under way (its parameters are logged): exit code 143, nothing RUNNING."""
    process = subprocess.Popen(
        [sys.executable, "-m", "arelu_meta.maml", *TINY, "--iterations", "100000"],
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 90
        while not logged_parameters(store) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        assert statuses(store) == ["RUNNING"]
        process.send_signal(signal.SIGTERM)
        time.sleep(0.002)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 143, err
    assert out == ""
    assert "terminated\n" in err
    assert "Traceback" not in err
    assert statuses(store) == ["KILLED"]


def logged_parameters(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute("SELECT COUNT(*) FROM params").fetchone()[0])
    finally:
        connection.close()
