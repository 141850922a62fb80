"""The figures of the paper: drawn from real runs of small comparisons under the names of the built-in ones."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch

from arelu_meta.comparison.cells import expand, parse_only
from arelu_meta.comparison.experiment import Experiment, read_experiment
from arelu_meta.comparison.runner import Plan, run_plan
from arelu_meta.errors import InputError
from arelu_meta.paper import curves
from arelu_meta.paper.figures import FIGURES, choose_figures
from arelu_meta.paper.finished import Finished, finished_runs
from tests.comparison import tiny
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = [MLFLOW_WARNINGS, pytest.mark.figures]
LIMITS = {"data.limit_train": 128, "data.limit_test": 20}
SMALL = {
    "arelu_init": {
        "task": "digits_classify",
        "settings": {**LIMITS, "training.epochs": 2, "network.activation": "arelu"},
        "grid": {"network.activation_options.beta": [1.0], "network.activation_options.alpha": [0.25]},
        "report": {"arm": "beta", "baseline": "1"},
        "seeds": [0, 1],
    },
    "mnist_curves": {
        "task": "digits_classify",
        "settings": {**LIMITS, "training.epochs": 2, "evaluation.protocol": "paper"},
        "grid": {"network.activation": ["relu", "arelu"], "training.optimizer": ["sgd"], "training.lr": [0.01]},
        "report": {"metric": "paper/best_epoch_test/accuracy"},
        "seeds": [0],
    },
    "segmentation_sample": {
        "task": "phantom",
        "settings": {
            "training.epochs": 1,
            "network.filters": 2,
            "volumes.drop_ends": True,
            "volumes.standardise_volumes": True,
        },
        "grid": {"network.activation": ["relu", "arelu"]},
        "report": {"metric": "test/dice"},
        "seeds": [0],
    },
}


@pytest.fixture
def small_runs(store: Path) -> Callable[..., None]:
    """Run small comparisons under names of built-in ones."""
    del store

    def run(*names: str) -> None:
        for name in names:
            about = {"experiment": name, "summary": "s", "title": "t", "question": "q"}
            made = Experiment.model_validate(about | SMALL[name])
            run_plan(Plan(experiment=made, cells=expand(made)), tiny.InProcess())

    return run


def test_what_has_runs_is_drawn_and_the_rest_is_named_with_its_command(small_runs, tmp_path, capsys):
    from arelu_meta.paper.__main__ import main

    small_runs(*SMALL)
    capsys.readouterr()
    assert main(["figures", "--out", str(tmp_path / "out")]) == 1
    captured = capsys.readouterr()
    missing = {"mnistplot", "converge", "gradcam", "mnistplot_small"}
    drawn = {figure.name for figure in FIGURES} - missing
    assert {path.stem for path in (tmp_path / "out").iterdir()} == drawn
    assert all(path.stat().st_size > 5_000 for path in (tmp_path / "out").iterdir())
    last = captured.err.splitlines()[-1]
    assert last.startswith(f"error: 4 of {len(FIGURES)} figures are not drawn: mnistplot, converge, gradcam, ")
    lines = captured.out.splitlines()
    assert f"{tmp_path / 'out' / 'attention.png'}  {FIGURES[0].shows}, 2 of 2 runs" in lines
    assert not any(line.startswith("attention:") for line in lines)
    place = lines.index("alpha_beta_b: 3 runs are missing")  # 2 of the file's 5 seeds
    assert lines[place + 1].strip() == FIGURES[2].command
    assert any(line.startswith("converge: the store holds no comparison 'cifar100_curves'") for line in lines)


@pytest.mark.parametrize("figure", [one for one in FIGURES if one.experiment], ids=lambda one: one.name)
def test_the_command_of_a_figure_makes_the_runs_that_it_is_drawn_from(figure):
    """Its words are those of `compare`: axes and values that the built-in file has."""
    for name in filter(None, (figure.experiment, figure.sample)):
        assert expand(read_experiment(name), only=parse_only(figure.only), seeds=[0])
    assert figure.command.startswith(f"python -m arelu_meta.compare {figure.sample or figure.experiment} ")
    assert figure.command.endswith(" ".join(figure.only))


def test_figures_by_name_and_by_the_name_of_the_whole():
    assert [one.name for one in choose_figures(["seg", "mnistplot"])] == ["seg_overlays", "seg_losses", "mnistplot"]
    assert choose_figures([]) == list(FIGURES)
    with pytest.raises(InputError, match="unknown figure 'gradcan'; did you mean 'gradcam'"):
        choose_figures(["gradcan"])


def test_no_runs_is_said(small_runs):
    small_runs("mnist_curves")
    with pytest.raises(InputError, match="none of the 110 runs has finished"):  # 22 activations, 5 seeds
        finished_runs("mnist_curves", ["optimizer=adam", "lr=0.01"])
    found = finished_runs("mnist_curves", ["lr=1e-2"])
    assert (len(found.runs), found.planned) == (2, 220)
    with pytest.raises(InputError, match="no finished run of mnist_curves has logged train/speed"):
        found.curves("train/speed")
    with pytest.raises(InputError, match="no seed of mnist_curves has finished runs of relu and selu"):
        found.one_of_each("activation", ["relu", "selu"])


class Made(Finished):
    """Runs whose curves are given: alpha and beta of two layers, two seeds, two epochs."""

    def __init__(self) -> None:
        tags = [{"comparison.cell": f'{{"alpha": 0.25, "beta": 1.0, "seed": {seed}}}'} for seed in (0, 1)]
        runs = [SimpleNamespace(data=SimpleNamespace(tags=tag)) for tag in tags]
        super().__init__("made", None, runs, 2)  # type: ignore[arg-type]

    def metrics(self) -> list[str]:
        return [f"activation/{layer}.2.{name}" for layer in ("block1", "block2") for name in ("alpha", "beta")]

    def curves(self, metric: str) -> pd.DataFrame:
        """Seed 0 goes to 0.5 and 0.75, seed 1 to 0.7 and 0.85; beta likewise, one higher."""
        shift = 1.0 if metric.endswith("beta") else 0.0
        values = {(0, 1): 0.5, (0, 2): 0.75, (1, 1): 0.7, (1, 2): 0.85}
        return pd.DataFrame(
            [{"seed": seed, "step": step, "value": value + shift} for (seed, step), value in values.items()]
        )


def test_alpha_and_beta_start_where_they_were_started():
    """Means over the two seeds: 0.25, then (0.5 + 0.7) / 2 and (0.75 + 0.85) / 2."""
    figure = curves.alpha_and_beta(Made(), None)
    alpha, beta = figure.axes[:2]
    assert [line.get_label() for line in alpha.lines] == ["block1.2", "block2.2"]
    assert alpha.lines[0].get_ydata().tolist() == pytest.approx([0.25, 0.6, 0.8])
    assert beta.lines[0].get_ydata().tolist() == pytest.approx([1.0, 1.6, 1.8])
    assert alpha.lines[0].get_xdata().tolist() == [0, 1, 2]


def test_learned_curves_are_those_of_the_last_epoch():
    """At -3 and 3: -3 * 0.8 and 3 * (1 + sigmoid(1.8))."""
    axes = curves.learned_curves(Made(), None).axes[0]
    line = next(line for line in axes.lines if line.get_label() == "block1_2")
    expected = [-2.4, 3 * (1 + torch.sigmoid(torch.tensor(1.8)).item())]
    assert [line.get_ydata()[0], line.get_ydata()[-1]] == pytest.approx(expected, rel=1e-5)
