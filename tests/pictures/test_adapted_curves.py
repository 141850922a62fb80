import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from arelu_meta import learners
from arelu_meta.data.episodes import Episode
from arelu_meta.pictures.adapted_curves import adapted_curves


@pytest.mark.parametrize("steps", [1, 3])
def test_curves_are_those_of_the_adapted_networks(steps: int):
    """A line without a slope, y = b from b = 0: a step of rate 1/2 on the squared error moves b to the mean of y."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(1, 1))
    nn.init.zeros_(network[1].weight).requires_grad_(False)
    nn.init.zeros_(network[1].bias)
    learner = learners.build("maml", network, inner_lr=0.25, inner_steps=steps, loss=F.mse_loss)
    x = torch.linspace(-5, 5, 8).view(2, 4, 1, 1, 1)
    y = torch.tensor([[1.0, 3.0, 1.0, 3.0], [-2.0, -2.0, -6.0, -6.0]]).unsqueeze(-1)
    figure = adapted_curves(learner, Episode(x, y, x, y), title="lines")
    for axes, mean in zip(figure.axes, (2.0, -4.0), strict=False):
        lines = {line.get_label(): np.asarray(line.get_ydata()) for line in axes.get_lines()}
        named = ["before", "1 step", *([f"{steps} steps"] if steps > 1 else [])]
        assert set(lines) == {"query points", "support", *named}
        for label, step in zip(named, (0, 1, steps), strict=False):
            np.testing.assert_allclose(lines[label], mean * (1 - 0.5**step), rtol=1e-5)
    assert [axes.get_visible() for axes in figure.axes] == [True, True, False]
