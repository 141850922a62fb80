"""The pages of the documentation do what they say: their Python is run, in order, as one script."""

import json
import os
import re
import shutil
import sys
import tomllib
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
import torch

from arelu_meta import activations, compare
from arelu_meta.__main__ import commands
from tests.comparison import tiny
from tests.pages import DOCS, blocks, execute


@pytest.mark.usefixtures("workplace")
def test_finetuning(capsys):
    """Guessing gets a tenth of the 300 right, and more than half of them never."""
    names = execute("finetuning.md")
    right = names["classifier"].score(names["X"][300:600], names["y"][300:600])
    assert right > 0.5
    assert f"{right:.0%} of 300 right\n" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:.*Any type hint:UserWarning")  # the import of mlflow.pyfunc warns of itself
@pytest.mark.usefixtures("workplace")
def test_adapting(tmp_path, monkeypatch, capsys):
    """The stored model answers as the network of the run, and the report says how to ask it."""
    monkeypatch.setenv("ARELU_META_CACHE", str(tmp_path / "cache"))
    names = execute("adapting.md")
    images, result = names["images"], names["result"]
    pixels = names["model"].served.inputs.normalise(torch.from_numpy(images).float() / 255)
    with torch.no_grad():
        answers = [str(label) for label in result.network(pixels).argmax(1).tolist()]
    assert names["model"].predict(images)["class"].tolist() == answers
    assert f"python -m arelu_meta.predict {result.run_id} IMAGES..." in capsys.readouterr().out


@pytest.mark.figures
@pytest.mark.usefixtures("workplace")
def test_explain(monkeypatch):
    """The grid of starts takes an hour; its rows are made up, in the form in which they come."""
    rows = [(0.9, beta, 0, "validation/accuracy", epoch, 90.0 + epoch) for beta in (1.0, 2.0) for epoch in (1, 2)]
    found = pd.DataFrame(rows, columns=["alpha", "beta", "seed", "metric", "step", "value"])
    monkeypatch.setattr("arelu_meta.comparison.collect.curves", lambda *_: found)
    assert execute("explain.md")["means"].loc[1, (0.9, 1.0)] == 91.0
    assert all(Path(name).stat().st_size > 5_000 for name in ("grad_cam.png", "feature_maps.png", "starts.png"))


@pytest.mark.usefixtures("workplace")
def test_judging(capsys):
    """Differences of 5, 6, 5.5, 4 and 3 hundredths: t = 4.7 sqrt(5) / 1.204 = 8.73 on 4 degrees of freedom."""
    names = execute("judging.md")
    assert capsys.readouterr().out.splitlines()[-1].startswith("different 0 0.00094")
    assert Path("judged/report.html").is_file()
    assert str(names["found"].answer) == "different"


def test_regression(capsys):
    """Answering 0 costs E[a^2] / 2 = 4.25; twenty steps from an untrained network are somewhat better."""
    names = execute("regression.md")
    assert 1 < names["error"].mean() < 4.25
    assert f"mean squared error {names['error'].mean():.2f}\n" in capsys.readouterr().out


@pytest.mark.usefixtures("workplace")
def test_few_shot_classifier(capsys):
    names = execute("few_shot_classifier.md")
    classifier, x_new, y_new = names["classifier"], names["X_new"], names["y_new"]
    assert x_new.shape == (10, 1, 28, 28)
    assert sorted(y_new) == sorted(["one", "two", "four", "six", "seven"] * 2)
    right = (classifier.predict(x_new) == y_new).mean()
    assert right >= 0.7  # guessing is right two times in ten, and seven times or more with a chance of 0.09 %
    assert f"{right:.0%} of 10 right\n" in capsys.readouterr().out
    np.testing.assert_array_equal(names["again"].predict_proba(x_new), classifier.predict_proba(x_new))
    assert Path("my_model", "weights.safetensors").is_file()


@pytest.mark.filterwarnings("ignore:.*Any type hint:UserWarning")  # the import of mlflow.pyfunc warns of itself
@pytest.mark.usefixtures("workplace")
def test_mlflow_ui(tmp_path, monkeypatch, capsys):
    """A comparison of seconds under the name that the page uses; whichever run validated best is what is registered."""
    monkeypatch.setattr("arelu_meta.compare.Pool", lambda *_numbers: tiny.InProcess())
    tiny.write(tmp_path, ("ways = 2", "ways = 5"), name="maml_digits")
    assert tiny.compare(tmp_path, "maml_digits.toml", "--threads", "1").returncode == 0
    names = execute("mlflow_ui.md")
    runs, best, answer = names["runs"], names["best"], names["answer"]
    assert len(runs) == 4
    assert best["validation/accuracy"] == runs["validation/accuracy"].max()
    assert mlflow.MlflowClient().get_model_version("digits_adapter", "1").run_id == best["run_id"]
    shares = answer[[f"probability_{digit}" for digit in range(5)]].to_numpy()
    assert shares.shape == (10, 5)
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-5)
    assert f"{(shares.argmax(1) == names['truth']).mean():.0%} of 10 right\n" in capsys.readouterr().out
    sent = {name: np.array(value) for name, value in json.loads(Path("request.json").read_text())["inputs"].items()}
    shapes = {name: value.shape for name, value in sent.items()}
    assert shapes == {"support_x": (5, 1, 28, 28), "support_y": (5,), "query_x": (10, 1, 28, 28)}


@pytest.mark.parametrize("page", [DOCS.parent / "README.md", *sorted(DOCS.glob("*.md"))], ids=lambda page: page.name)
def test_links_and_pictures_are_there(page):
    """Every relative link leads to a file; pictures stay small, because every clone fetches them."""
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    for target in (target for target in targets if "://" not in target):
        assert (page.parent / target).is_file(), target
        assert not target.endswith(".png") or (page.parent / target).stat().st_size < 200_000, target


def test_the_readme_is_short_its_python_runs_and_it_names_every_command(monkeypatch):
    monkeypatch.setattr(activations._REGISTRY, "_entries", dict(activations._REGISTRY._entries))
    execute("../README.md")
    assert "mine" in activations.names()
    text = (DOCS.parent / "README.md").read_text()
    assert text.count("\n") <= 150
    assert [name for name in commands() if f"python -m {name}" not in text] == []


@pytest.mark.usefixtures("workplace")
def test_statistics(capsys: pytest.CaptureFixture[str]):
    execute("statistics.md")
    assert capsys.readouterr().out.startswith("Does AReLU help?\n\narelu is detectably better than relu")
    assert Path("report/report.html").is_file()


@pytest.mark.usefixtures("workplace")
def test_extending(tmp_path, monkeypatch, capsys, python, root, new_store):
    """Its first block is `mine.py`; the others are run beside it, and its package is laid out as pip would."""
    shutil.copy(new_store, tmp_path / "mlflow.db")
    (tmp_path / "mine.py").write_text(blocks("extending.md", "python")[0])
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("mine", None)  # of another page
    names = execute("extending.md")
    written = capsys.readouterr().out
    assert written.startswith("tensor([0, 1, 2])\n")
    assert "mine:Squareplus" in written
    assert names["network"].hidden.out_features == 16
    experiment, package = blocks("extending.md", "toml")
    (tmp_path / "my_experiment.toml").write_text(experiment)
    assert compare.main(["my_experiment.toml", "--dry-run", "--trust", "mine"]) == 0
    assert capsys.readouterr().out.startswith("my_experiment: 18 cells of task digits\n")  # 3 arms, 2 methods, 3 seeds
    groups = tomllib.loads(package)["project"]["entry-points"]
    lines = []
    for group, points in groups.items():
        lines += [f"[{group}]\n", *(f"{name} = {place}\n" for name, place in points.items())]
    metadata = tmp_path / "mine-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("".join(lines))
    printed = python("-m", "arelu_meta", PYTHONPATH=f"{root}{os.pathsep}{tmp_path}").stdout
    listed = printed.partition("\nplug-ins")[2].partition("\n\n")[0]
    assert {line.split()[0] for line in listed.splitlines()[2:]} == {"squareplus", "tiny_net", "cautious", "stripes"}
