"""The steps that measure the paper: each a comparison that exists, run in order, stopped by the clock, gone on with."""

import subprocess
from types import SimpleNamespace

import pandas as pd
import pytest

from arelu_meta.compare import _parser
from arelu_meta.comparison.cells import expand, parse_only
from arelu_meta.comparison.experiment import read_experiment
from arelu_meta.errors import InputError
from arelu_meta.kinds.execution import seed_numbers
from arelu_meta.paper.campaign import STEPS, choose_steps, run_steps
from tests.published_cells import RESULTS

SMALL = ("transfer", "curves", "own_rates", "unit_rates_mnist", "lgg")
ORDER = ("maml", "transfer", "first_epoch", "curves", "frozen", "inner_rates", "starts", "lgg", "cifar100")


def test_the_order_is_that_of_their_worth():
    names = [step.name for step in STEPS]
    assert len(set(names)) == len(names)
    assert [name for name in names if name in ORDER] == list(ORDER)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_step_is_a_comparison_that_compare_understands(step):
    given = _parser().parse_args(step.words())
    assert (given.experiment, given.budget, given.seeds or "") == (step.experiment, step.budget, step.seeds)
    seeds = seed_numbers(step.seeds) if step.seeds else None
    if step.name in SMALL:  # building the specs of all takes a minute
        assert step.cells == len(expand(read_experiment(step.experiment), only=parse_only(step.only), seeds=seeds))
    assert step.cells > 0


MEASURED = {
    "first_epoch": ("mnist_first_epoch", 1.0),
    "frozen": ("glyphs_rates", 1.0),
    "maml": ("maml_mnist_clip", 1.0),
    "maml_paper": ("maml_mnist", 1.0),
    "curves": ("mnist_curves", 1.0),
    "lgg": ("segmentation_sample", 1.0),
    "starts": ("arelu_init", 1.0),
    "transfer": ("transfer_mnist_to_svhn", 1.0),
}


@pytest.mark.parametrize("name", MEASURED)
def test_seconds_of_a_run_are_those_of_the_shipped_runs(name):
    (step,) = choose_steps([name])
    experiment, times = MEASURED[name]
    median = pd.read_csv(RESULTS / f"{experiment}_runs.csv")["seconds"].median()
    assert step.seconds == pytest.approx(times * median, rel=0.03)
    assert f"docs/results/{experiment}_runs.csv" in step.basis


def test_steps_go_on_after_one_that_failed_and_none_begins_after_the_time(monkeypatch):
    """The first fails, the second is run; with the clock at its end only what was begun has run."""
    called: list[list[str]] = []

    def run(command, **_):
        called.append(command[3:])
        return SimpleNamespace(returncode=int(command[3] == "maml_mnist_clip"))

    monkeypatch.setattr(subprocess, "run", run)
    steps = choose_steps(["first_epoch", "maml"])
    assert run_steps(steps, ["--workers", "2"], hours=1.0) == ["maml"]
    assert called == [["maml_mnist_clip", "--workers", "2"], ["mnist_first_epoch", "--workers", "2"]]
    assert run_steps(steps, [], hours=0.0) == ["maml", "first_epoch"]
    assert len(called) == 2


def test_an_unknown_step_is_named():
    with pytest.raises(InputError, match="unknown step 'mamal'; did you mean 'maml'"):
        choose_steps(["mamal"])
