import math

import pytest
import torch

from arelu_meta import activations


def test_learned_swish_by_hand():
    module = activations.build("swish_learned", beta=2.0)
    assert module(torch.tensor([-1.0])).item() == pytest.approx(-1 / (1 + math.exp(2)))
    assert activations.build("swish_learned", beta=0.0)(torch.tensor([5.0])).item() == 2.5
