import torch
from torch import nn

from arelu_meta import activations
from arelu_meta.activations.clamped import Clamped
from arelu_meta.activations.parameters import activation_modules


def test_values_and_gradients_by_hand():
    """Slope 2 above zero, bounded by 6: 2 -> 4, 4 -> 6; where the bound holds nothing is learned."""
    layer = Clamped(activations.build("relu_gain", gain=2.0), 6.0)
    x = torch.tensor([-1.0, 2.0, 4.0], requires_grad=True)
    assert layer(x).tolist() == [0.0, 4.0, 6.0]
    layer(x).sum().backward()
    assert x.grad.tolist() == [0.0, 2.0, 0.0]


def test_it_counts_as_one_activation_of_the_kind_inside():
    network = nn.Sequential(nn.Linear(2, 2), Clamped(activations.build("arelu"), 6.0))
    assert list(activation_modules(network)) == ["1"]
    assert network[1].activation_name == "arelu"
