"""AReLU per channel: each channel is AReLU with its own numbers."""

import pytest
import torch

from arelu_meta.activations.arelu import AReLU
from arelu_meta.activations.arelu_channel import AReLUChannel
from arelu_meta.errors import InputError


@pytest.mark.parametrize("clamp", ["hard", "straight_through", "sigmoid"])
def test_each_channel_is_an_arelu(clamp):
    starts = [(0.2, -1.0), (0.5, 0.0), (0.9, 2.0)]
    singles = [AReLU(alpha, beta, clamp).double() for alpha, beta in starts]
    module = AReLUChannel(3, clamp=clamp).double()
    with torch.no_grad():
        module.alpha.copy_(torch.stack([single.alpha for single in singles]))
        module.beta.copy_(torch.stack([single.beta for single in singles]))
    x = torch.randn(2, 3, 4, 4, dtype=torch.float64, requires_grad=True)
    out, expected = module(x), torch.stack([single(x[:, number]) for number, single in enumerate(singles)], 1)
    assert torch.equal(out, expected)
    module_gradients = torch.autograd.grad(out.square().sum(), [x, module.alpha, module.beta])
    slopes = [parameter for single in singles for parameter in (single.alpha, single.beta)]
    gradient, *of_slopes = torch.autograd.grad(expected.square().sum(), [x, *slopes])
    torch.testing.assert_close(module_gradients[0], gradient)
    torch.testing.assert_close(module_gradients[1], torch.stack(of_slopes[::2]))
    torch.testing.assert_close(module_gradients[2], torch.stack(of_slopes[1::2]))


def test_one_set_is_arelu():
    x = torch.randn(2, 5, 3)
    assert torch.equal(AReLUChannel()(x), AReLU()(x))


def test_an_unknown_clamp():
    with pytest.raises(InputError, match="unknown clamp 'soft'"):
        AReLUChannel(clamp="soft")
