"""Functions of one number before and after adaptation: what a learner of a regression answers along the axis."""

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from arelu_meta.data.episodes import Episode
from arelu_meta.learners.gradient_learner import GradientLearner
from arelu_meta.pictures.figures import COLOURS

POINTS = 200
COLUMNS = 3
SHADES = {0: COLOURS[5], 1: COLOURS[4]}  # by steps; the last has a colour of its own


@torch.no_grad()
def adapted_curves(learner: GradientLearner, episodes: Episode, *, title: str) -> Figure:
    """Draw a panel for each episode: its points, and the network's curve before, after one step and after the last.

    Args:
        learner: adapts as in tests.
        episodes: a batch of regressions with one feature and one target, x (episodes, N, 1, 1, 1), y (episodes, N, 1).
        title: above all panels.
    """
    x = torch.cat([episodes.support_x, episodes.query_x], 1).flatten(2)  # (episodes, N, 1)
    line = torch.linspace(float(x.min()), float(x.max()), POINTS, dtype=x.dtype, device=x.device)
    shape = (len(episodes), POINTS, *episodes.support_x.shape[2:])
    along = line.view(1, -1, *(1 for _ in shape[2:])).expand(shape)
    asked = Episode(episodes.support_x, episodes.support_y, along, episodes.query_y.new_zeros(len(episodes), POINTS, 1))
    answers = learner.test_logits(asked, every_step=True)[..., 0].cpu()  # (episodes, steps + 1, POINTS)
    last = answers.shape[1] - 1
    rows = -(-len(episodes) // COLUMNS)
    figure = Figure(figsize=(4 * COLUMNS, 2.9 * rows), layout="constrained")
    panels = figure.subplots(rows, COLUMNS, squeeze=False, sharex=True).ravel()
    for number, episode in enumerate(episodes):
        axes = panels[number]
        _points(axes, episode.query_x, episode.query_y, color="#999999", marker=".", label="query points")
        for step in sorted({0, 1, last}):
            label = f"{step} step{'' if step == 1 else 's'}" if step else "before"
            axes.plot(line.cpu(), answers[number, step], color=SHADES.get(step, COLOURS[0]), label=label)
        _points(axes, episode.support_x, episode.support_y, color=COLOURS[1], marker="o", label="support")
        axes.grid(alpha=0.3)
    for axes in panels[len(episodes) :]:
        axes.set_visible(False)
    figure.suptitle(title)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", frameon=False)
    return figure


def _points(axes: Axes, x: Tensor, y: Tensor, *, color: str, marker: str, label: str) -> None:
    points = x.flatten().cpu(), y.flatten().cpu()
    axes.plot(*points, linestyle="none", markersize=5, zorder=3, color=color, marker=marker, label=label)
