import math

import pytest
import torch

from arelu_meta import activations
from arelu_meta.errors import InputError


def test_xielu_by_hand():
    module = activations.build("xielu", positive=0.3, negative=0.7).double()
    x = torch.tensor([-2.0, 0.0, 3.0], dtype=torch.float64)
    expected = [0.7 * (math.exp(-2) - 1 + 2) - 1.0, 0.0, 0.3 * 9 + 1.5]
    assert module(x).tolist() == pytest.approx(expected, rel=1e-6)


def test_xielu_is_that_of_transformers():
    theirs = pytest.importorskip("transformers.activations").XIELUActivation(dtype=torch.float32)
    x = torch.linspace(-4, 4, 81)
    torch.testing.assert_close(activations.build("xielu")(x), theirs(x).float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", [{"positive": 0.0}, {"negative": 0.5}])
def test_starts_outside_their_range(options: dict[str, float]):
    with pytest.raises(InputError, match="must be above 0, and negative"):
        activations.build("xielu", **options)
