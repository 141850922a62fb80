import copy
import pickle

import torch
from torch import nn

from arelu_meta import activations
from arelu_meta.activations.arelu import AReLU
from arelu_meta.activations.clamped import Clamped, clamp_output, original_class
from arelu_meta.activations.parameters import activation_modules


def test_values_and_gradients_by_hand():
    """Slope 2 above zero, bounded by 6: 2 -> 4, 4 -> 6; where the bound holds nothing is learned."""
    layer = clamp_output(activations.build("relu_gain", gain=2.0), 6.0)
    x = torch.tensor([-1.0, 2.0, 4.0], requires_grad=True)
    assert layer(x).tolist() == [0.0, 4.0, 6.0]
    layer(x).sum().backward()
    assert x.grad.tolist() == [0.0, 2.0, 0.0]


def test_it_counts_as_one_activation_of_the_kind_it_was():
    network = nn.Sequential(nn.Linear(2, 2), clamp_output(activations.build("arelu"), 6.0))
    assert list(activation_modules(network)) == ["1"]
    assert network[1].activation_name == "arelu"
    assert isinstance(network[1], AReLU)


def test_parameters_keep_their_names_and_others_of_the_class_are_free():
    layer = clamp_output(activations.build("arelu"), 6.0)
    assert list(layer.state_dict()) == ["alpha", "beta"]
    assert str(layer) == "ClampedAReLU(clamp='hard', maximum=6)"
    assert original_class(layer) is AReLU
    assert not isinstance(activations.build("arelu"), Clamped)


def test_copies_and_pickles_keep_the_bound():
    layer = clamp_output(activations.build("arelu", alpha=0.3), 6.0)
    x = torch.tensor([-1.0, 100.0])
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(x), layer(x))
        assert other(x)[1] == 6
        assert type(other) is type(layer)


def test_of_two_bounds_the_lower_one_holds():
    """TypeError: Cannot create a consistent method resolution order."""
    x = torch.tensor([2.0, 4.0, 9.0])
    for first, second in ((6.0, 3.0), (3.0, 6.0)):
        assert clamp_output(clamp_output(nn.ReLU(), first), second)(x).tolist() == [2.0, 3.0, 3.0]
