"""What scripts are given: one JSON document of every command, exit codes, pipes, settings as a file."""

import io
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from PIL import Image

from arelu_meta import data, kinds
from arelu_meta.__main__ import main
from arelu_meta.console import catalog
from arelu_meta.console.output import EXIT_CODES
from arelu_meta.kinds.command import read_flags
from tests.comparison import tiny
from tests.tiny_images import DIGITS, DISCS, NEGATIVE
from tests.tiny_networks import TINY as NETWORK
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = MLFLOW_WARNINGS
RUN = {"kind", "task", "identity", "headline", "metrics", "run_id", "experiment_id", "tracking_uri", "settings"}
EPISODES = "--iterations 2 --meta-batch 2 --inner-steps 2 --queries 2 --test-queries 3 --test-episodes 4"
TRAINED = f"--dataset {DIGITS} --epochs 1 --device cpu"


class Printed(NamedTuple):
    code: int
    out: str
    err: str


def printed(line: str) -> Printed:
    """Run a command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(shlex.split(line))
    return Printed(code, out.getvalue(), err.getvalue())


def document(line: str, code: int = 0) -> dict[str, Any]:
    """What a command gives to scripts, and nothing else on standard output or standard error."""
    found = printed(f"{line} --json --quiet")
    assert (found.code, found.err) == (code, "")
    values: dict[str, Any] = json.loads(found.out)
    assert values["command"] == line.split()[0]
    return values


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, own_store: Any) -> Iterator[dict[str, Any]]:
    """A classifier, stored with its network; the folder of its store is the working folder of this module."""
    folder = tmp_path_factory.mktemp("scripting")
    with own_store(folder) as patch:
        patch.setenv("ARELU_META_CACHE", str(folder / "cache"))
        yield document(f"classify {TRAINED}")


@pytest.fixture(autouse=True)
def same_folder(trained: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the store: what runs before every test would name another."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", trained["tracking_uri"])


@pytest.mark.parametrize(
    "line",
    [
        f"maml {EPISODES} --validation-episodes 2",
        f"segment --dataset {DISCS} --epochs 1 --batch-size 8 --filters 2 --no-keep-model",
        f"finetune --source {DIGITS} --target {NEGATIVE} --epochs 1 --report-epochs 1 --pretrain-epochs 1",
        f"finetune --model {NETWORK} --data {NEGATIVE} --epochs 1",
        f"adapt {DIGITS} --model {NETWORK} --weights none --shots 5 --method linear --draws 2",
    ],
)
def test_a_run(line: str):
    values = document(line)
    assert values.keys() >= RUN
    assert kinds.entry(values["kind"]).command == values["command"]
    for estimate in values["metrics"].values():
        assert estimate.keys() == {"mean", "low", "high", "n"}


def test_a_classifier_and_what_is_done_with_it(trained: dict[str, Any]):
    assert trained.keys() >= RUN
    test = trained["metrics"]["test/accuracy"]
    assert test["low"] <= test["mean"] <= test["high"]
    assert test["n"] == 40
    pixels = data.load("digits").images[0, 0].numpy()
    Image.fromarray(pixels).save("zero.png")
    answers = document(f"predict {trained['run_id']} zero.png")["answers"]
    assert [answer["file"] for answer in answers] == ["zero.png"]
    assert sum(answers[0]["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    exported = document(f"export {trained['run_id']} --to safetensors --output taken")
    assert [Path(file).suffix for file in exported["files"] if Path(file).is_file()].count(".safetensors") == 1
    drawn = document(f"look {trained['run_id']} --layer block3 --images 2 --trust tests")
    assert drawn["run_ids"] == [trained["run_id"]]
    assert all(Path(file).is_file() for file in drawn["files"])


def test_lists_and_sets():
    lists = json.loads(printed("--json").out)
    assert lists["command"] == "arelu-meta"
    assert {row["name"] for row in lists["tasks"]} == set(catalog.names("task"))
    assert {row["activation"] for row in lists["activations"]} >= {"relu", "arelu"}
    assert [row["name"] for row in document("data list")["sets"]] == data.names()
    shown = document("data show digits --image-size 14")
    assert (shown["images"], shown["height"], sum(shown["classes"].values())) == (1797, 14, 1797)
    assert Path(shown["sheet"]).is_file()
    assert document("store show")["waiting"] == []
    assert document("store flush")["sent"] == 0
    assert document("survey alexnet")["networks"] == [
        {"network": "alexnet", "swapped": True, "sites": 7, "rewritten": 0, "refused": None}
    ]


def test_a_comparison_and_a_verdict(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("arelu_meta.compare.Pool", lambda *_numbers: tiny.InProcess())
    tiny.write(Path.cwd())
    cells = document("compare tiny.toml --dry-run")["cells"]
    assert {cell["activation"] for cell in cells} == {"relu", "arelu"}
    compared = document("compare tiny.toml")
    assert (compared["runs"], compared["missing"]) == (len(cells), [])
    assert compared["verdict"]
    assert (Path(compared["report"]) / "report.html").is_file()
    judged = document(f"judge {compared['experiment_id']} --arm param:activation --metric test/accuracy", code=3)
    assert judged["exit_code"] == 3


def test_settings_as_a_file():
    """Every default task, with a flag of each sort: the file makes the same run, and holds its settings in words."""
    more = {
        "maml": "--ways 3 --inner-lr 0.1 --outer-clip none --backbone-options a=1",
        "classify": "--milestones 1 2 --schedule step --no-normalise",
        "adapt": "digits --shots 3",
        "finetune": "--model resnet18 --weights none --data digits --tags owner=me",
        "segment": "--percentiles 10 99",
    }
    for command, flags in more.items():
        kind = {"maml": "few_shot", "finetune": "finetune"}.get(command, command)
        named = Path(f"{command}.toml")
        saved = document(f"{command} {flags} --save-task {named}")
        spec = read_flags(kind, ["--task", str(named)], example="x" if command == "adapt" else "")[0]
        assert spec.identity == saved["identity"]
        assert f'kind = "{kind}"' in named.read_text().splitlines()
    assert main(["maml", "--save-task", "mine.txt"]) == 2
    assert main(["maml", "--save-task", "no_such/mine.toml"]) == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("maml --shots -1", "--shots -1: must be at least 1"),
        ("adapt no_such_folder/", "no file or folder 'no_such_folder/'"),
        ("predict RUN no_such.png", "no file or folder 'no_such.png'"),
        ("compare no_such_experiment", "unknown experiment 'no_such_experiment'"),
        ("judge no_such.csv --arm a --metric b", "no_such.csv"),
        ("data show glyfs", "did you mean 'glyphs'"),
        ("survey alexnett", "did you mean 'alexnet'"),
        ("bench samplr", "did you mean 'sampler'"),
        ("clasify", "did you mean 'classify'"),
    ],
)
def test_wrong_input_is_one_line_and_no_document(line: str, message: str):
    found = printed(f"{line} --json --quiet")
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith("error: ")
    assert found.err.count("\n") == 1
    assert message in found.err


def test_a_pipe_in_a_shell(root: Path):
    read = (
        "import json, sys; print(*[row['name'] for row in json.load(sys.stdin)['sets'] if row['source'] == 'bundled'])"
    )
    line = f"{sys.executable} -m arelu_meta data list --json | {sys.executable} -c {shlex.quote(read)}"
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=environment, timeout=120)
    assert (done.stdout, done.stderr) == ("digits glyphs street phantom sinusoid\n", "")  # what comes with the package


def test_exit_codes_are_told(root: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["--help"])
    told = capsys.readouterr().out
    page = (root / "docs" / "scripting.md").read_text()
    for code, meaning in EXIT_CODES.items():
        assert f"{code:>3}  {meaning}" in told
        assert f"| {code} | {meaning} |" in page


def test_looking_for_a_run_makes_no_store(refused: Callable[..., str]):
    for line in ("look deadbeef --layer block1", f"export {'a' * 32}", f"look {'a' * 32} --layer x"):
        said = refused(main, shlex.split(line))
        assert "deadbeef" in said or "there is no MLflow store sqlite:///mlflow.db" in said
