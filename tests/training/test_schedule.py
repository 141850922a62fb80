import math

import pytest
import torch

from arelu_meta.training.schedule import rate_factor


def test_constant():
    assert [rate_factor(epoch, schedule="constant", epochs=4) for epoch in (0, 1.5, 4)] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(("epoch", "factor"), [(0, 1), (1.99, 1), (2, 0.1), (4.9, 0.1), (5, 0.01), (9, 0.01)])
def test_steps_at_the_milestones(epoch: float, factor: float):
    assert rate_factor(epoch, schedule="step", epochs=10, milestones=[2, 5]) == pytest.approx(factor, rel=1e-12)


def test_warmup_is_a_line_from_zero():
    """Two epochs of warmup: 0, 1/4, 1/2, 3/4, then the schedule's own 1."""
    factors = [rate_factor(epoch, schedule="constant", epochs=5, warmup_epochs=2) for epoch in (0, 0.5, 1, 1.5, 2)]
    assert factors == [0, 0.25, 0.5, 0.75, 1]


def test_cosine_is_torchs():
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    reference = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)
    for epoch in range(8):
        assert rate_factor(epoch, schedule="cosine", epochs=8) == pytest.approx(reference.get_last_lr()[0], abs=1e-6)
        optimizer.step()
        reference.step()


def test_cosine_after_warmup_falls_over_what_is_left():
    """Warmup 2 of 6: at 2 the top, at 4 half of the way down, at 6 zero, at 3 (1 + cos(45 degrees)) / 2."""
    factors = [rate_factor(epoch, schedule="cosine", epochs=6, warmup_epochs=2) for epoch in (2, 3, 4, 6)]
    assert factors == pytest.approx([1, (1 + math.sqrt(0.5)) / 2, 0.5, 0], abs=1e-12)
    assert rate_factor(1, schedule="cosine", epochs=6, warmup_epochs=2) == 0.5


def test_nothing_but_warmup():
    assert rate_factor(1, schedule="cosine", epochs=2, warmup_epochs=2) == 0.5
