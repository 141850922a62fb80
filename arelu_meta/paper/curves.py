"""Figures of the AReLU paper that are curves: over epochs, over steps, and of the learned activations themselves."""

import re
from collections import OrderedDict
from collections.abc import Callable

import pandas as pd
from matplotlib.figure import Figure
from torch import nn

from arelu_meta import activations
from arelu_meta.comparison.parent_run import coordinates
from arelu_meta.errors import InputError
from arelu_meta.paper.finished import Finished, by_step
from arelu_meta.pictures.curve_panels import Panel, curve_panels
from arelu_meta.pictures.figures import activation_curves

LEARNED = re.compile(r"activation/(.+)\.(alpha|beta)")
OPTIMIZERS = {"sgd": "SGD", "adam": "Adam"}
LABELS = {
    "train/loss": "training loss",
    "test/accuracy": "test accuracy (%)",
    "validation/accuracy": "validation accuracy (%)",
}


def starts(runs: Finished, _root: str | None) -> Figure:
    """Figure alpha_beta (a): accuracy by epoch, a panel per start of alpha, a line per start of beta."""
    metric = "validation/accuracy"
    panels = [
        Panel(
            f"alpha = {alpha:g}",
            LABELS[metric],
            {f"beta = {beta:g}": by_step(rows) for beta, rows in own.groupby("beta")},
        )
        for alpha, own in runs.curves(metric).groupby("alpha")
    ]
    return curve_panels(panels, title="MNIST from different starts of alpha and beta", baseline="beta = 2")


def alpha_and_beta(runs: Finished, _root: str | None) -> Figure:
    """Figure alpha_beta (b): alpha and beta of every layer over the epochs."""
    panels = []
    for quantity in ("alpha", "beta"):
        lines = {layer: by_step(table) for layer, table in _learned(runs, quantity).items()}
        panels.append(Panel(quantity, f"{quantity}, as learned", lines))
    return curve_panels(panels, title="Alpha and beta over training on MNIST", baseline="")


def learned_curves(runs: Finished, _root: str | None) -> Figure:
    """Figure alpha_beta (c): AReLU of every layer with the alpha and beta of the last epoch, means over seeds."""
    last = {
        quantity: {layer: by_step(table).iloc[-1].mean() for layer, table in _learned(runs, quantity).items()}
        for quantity in ("alpha", "beta")
    }
    layers = [
        (layer.replace(".", "_"), activations.build("arelu", alpha=alpha, beta=last["beta"][layer]))
        for layer, alpha in last["alpha"].items()
    ]
    seeds = len(runs.runs)
    title = f"AReLU as learned, by layer ({f'means of n = {seeds} seeds' if seeds > 1 else 'n = 1 seed'})"
    drawn = activation_curves(nn.Sequential(OrderedDict(layers)), title=title)
    if drawn is None:
        raise InputError(f"no layer of {runs.experiment} has an activation to draw")
    return drawn


def _learned(runs: Finished, quantity: str) -> dict[str, pd.DataFrame]:
    """Curves of alpha or beta by layer, from the start on, which the runs know and do not log."""
    found = {}
    start = [
        {"seed": place["seed"], "step": 0, "value": place[quantity]}
        for place in (coordinates(run) for run in runs.runs)
    ]
    for metric in runs.metrics():
        named = LEARNED.fullmatch(metric)
        if named and named[2] == quantity:
            found[named[1]] = pd.concat([pd.DataFrame(start), runs.curves(metric)])
    if not found:
        raise InputError(f"no finished run of {runs.experiment} has logged {quantity} of its layers")
    return found


def mnist_panels(*metrics: str) -> Callable[[Finished, str | None], Figure]:
    """Figures mnistplot: metrics by epoch, a row per metric, a column per optimizer and rate."""

    def draw(runs: Finished, _root: str | None) -> Figure:
        panels = []
        for metric in metrics:
            table = runs.curves(metric)
            for (optimizer, lr), own in table.groupby(["optimizer", "lr"], sort=False):
                rate = f"{lr:.0e}".replace("e-0", "e-")  # 1e-4, as the paper's tables have it
                panels.append(Panel(f"{OPTIMIZERS[optimizer]}, {rate}", LABELS[metric], _by_arm(own)))
        return curve_panels(panels, title="MNIST-Conv on MNIST", columns=len(panels) // len(metrics))

    return draw


def convergence(runs: Finished, _root: str | None) -> Figure:
    """Figure converge: test accuracy by epoch, a panel per network."""
    metric = "test/accuracy"
    panels = [
        Panel(str(network), LABELS[metric], _by_arm(own))
        for network, own in runs.curves(metric).groupby("backbone", sort=False)
    ]
    return curve_panels(panels, title="CIFAR-100", columns=3)


def losses(runs: Finished, _root: str | None) -> Figure:
    """Figure seg, right: training loss over steps and validation loss over epochs."""
    panels = [
        Panel("training", "Dice loss", _by_arm(runs.curves("train/loss_by_step")), "training step"),
        Panel("validation", "Dice loss", _by_arm(runs.curves("validation/loss"))),
    ]
    return curve_panels(panels, title=f"U-Net on LGG, {runs.experiment}")


def _by_arm(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return {str(arm): by_step(own) for arm, own in table.groupby("activation", sort=False)}
