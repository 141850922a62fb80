"""The runs that measure the AReLU paper, in the order of their worth: comparisons that can be stopped and go on.

Seconds of a run are of one thread, from runs in docs/results where there are any; `basis` says which. What the time
does not reach is left out from the end: fewer arms before fewer seeds.
"""

import math
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from arelu_meta.comparison.cells import is_same, parse_only
from arelu_meta.comparison.experiment import read_experiment
from arelu_meta.console import output
from arelu_meta.errors import unknown
from arelu_meta.kinds.execution import seed_numbers

CONTROLS = "arelu_frozen,relu_gain,arelu_unit"
_EPOCH = "median of docs/results/mnist_first_epoch_runs.csv"
_GLYPHS = "median of docs/results/glyphs_rates_runs.csv"
_MAML = "median of docs/results/inner_rates_runs.csv"
_TRANSFER = "median of docs/results/transfer_mnist_to_svhn_runs.csv"


@dataclass(frozen=True)
class Step:
    """A comparison, or a part of one."""

    name: str
    experiment: str
    seconds: float
    """of one run, on one thread"""
    basis: str
    """where `seconds` comes from"""
    only: tuple[str, ...] = ()
    seeds: str = ""
    budget: float = 1.0

    @property
    def cells(self) -> int:
        """Number of its runs: values that are chosen of every axis, with every seed."""
        experiment, only = read_experiment(self.experiment), parse_only(self.only)
        seeds = seed_numbers(self.seeds) if self.seeds else experiment.seeds
        chosen = [
            sum(axis not in only or any(is_same(value, word) for word in only[axis]) for value in values)
            for axis, values in experiment.axes.items()
        ]
        return math.prod(chosen) * len(seeds)

    def words(self) -> list[str]:
        """What follows `python -m arelu_meta.compare`, without workers and data."""
        words = [self.experiment]
        words += ["--only", *self.only] if self.only else []
        words += ["--seeds", self.seeds] if self.seeds else []
        return words + (["--budget", f"{self.budget:g}"] if self.budget < 1 else [])


def _transfer(name: str, arms: str) -> Step:
    return Step(name, "transfer_mnist_to_svhn", 1565, _TRANSFER, (f"activation={arms}", "pretrain_epochs=5,20"))


STEPS = (
    Step("maml", "maml_mnist_clip", 32, "median of docs/results/maml_mnist_clip_runs.csv"),
    _transfer("transfer", "relu,arelu"),
    _transfer("transfer_prelu", "prelu"),
    Step("first_epoch", "mnist_first_epoch", 8.8, _EPOCH),
    Step(
        "curves",
        "mnist_curves",
        118.9,
        "median of docs/results/mnist_curves_runs.csv",
        (f"activation=relu,arelu,pau,selu,prelu,{CONTROLS}", "optimizer=sgd", "lr=1e-4,1e-5"),
        "0-2",
    ),
    Step("frozen", "glyphs_frozen", 52, _GLYPHS),
    Step("own_rates_high", "glyphs_own_rates", 52, _GLYPHS, ("activation=relu,arelu_unit", "inner_lr=0.08")),
    Step("own_rates", "glyphs_own_rates", 52, _GLYPHS, ("activation=arelu,arelu_frozen,relu_gain", "inner_lr=0.02")),
    Step("glyphs_rates", "glyphs_rates", 52, _GLYPHS, seeds="100-104"),
    Step("inner_rates", "inner_rates", 81, _MAML, seeds="100-104"),
    Step("unit_rates", "glyphs_unit_rates", 52, _GLYPHS),
    Step("unit_rates_mnist", "mnist_unit_rates", 81, _MAML),
    Step("gain_twins", "glyphs_gain_twins", 52, _GLYPHS),
    Step("init_mnist", "mnist_init", 8.8, _EPOCH),
    Step("init_glyphs", "glyphs_init", 52, _GLYPHS),
    Step("outer_rates", "glyphs_outer_rates", 52, _GLYPHS),
    Step("splits", "glyphs_splits", 52, _GLYPHS),
    Step("starts", "arelu_init", 27.9, "median of docs/results/arelu_init_runs.csv", seeds="0-2"),
    Step("starts_alpha", "arelu_init_alpha", 27.9, "median of docs/results/arelu_init_runs.csv"),
    Step(
        "lgg", "segmentation_sample", 38.8, "median of docs/results/segmentation_sample_runs.csv",
        ("activation=relu,arelu",),
    ),
    Step(
        "cifar100", "cifar100_curves", 1800, "estimated",
        ("activation=relu,arelu", "backbone=resnet18,squeezenet"), "0", 0.03,
    ),
    _transfer("transfer_controls", CONTROLS),
    Step("maml_paper", "maml_mnist", 205, "median of docs/results/maml_mnist_runs.csv"),
)  # fmt: skip


def choose_steps(names: Sequence[str]) -> list[Step]:
    """Give steps by name in the campaign's order, all without any.

    Raises:
        InputError: an unknown name.
    """
    by_name = {step.name: step for step in STEPS}
    for name in names:
        if name not in by_name:
            raise unknown("step", name, by_name)
    return [step for step in STEPS if not names or step.name in names]


def run_steps(steps: Sequence[Step], words: Sequence[str], hours: float) -> list[str]:
    """Run steps one after another, each in a process of its own; a step begun is not cut off by the clock.

    Args:
        steps: what to run; finished runs are not repeated, and one that was interrupted goes on.
        words: flags for every step, such as `--workers 2`.
        hours: after which no further step is begun.

    Returns:
        Names of the steps that failed or were not begun.
    """
    end, left = time.monotonic() + 3600 * hours, []
    for step in steps:
        if time.monotonic() >= end:
            left.append(step.name)
            continue
        command = [sys.executable, "-m", "arelu_meta.compare", *step.words(), *words]
        sys.stderr.write(f"step {step.name}: {' '.join(command[1:])}\n")
        stdout = 2 if output.wants_json() else None  # the document is of all steps
        if subprocess.run(command, check=False, stdout=stdout).returncode:  # noqa: S603 - this interpreter, our words
            left.append(step.name)
    return left
