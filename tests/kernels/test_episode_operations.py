"""Which calls of torch's functions are taken over, and which are left alone."""

import torch
import torch.nn.functional as F

from arelu_meta.kernels.episode_operations import EpisodeOperations, ExactOperations
from arelu_meta.kernels.pooling import MaxPool


def test_single_images_and_other_functions_pass_untouched():
    x = torch.randn(2, 4, 6, 6)
    with EpisodeOperations():
        assert F.conv2d(x[0], torch.randn(5, 4, 3, 3)).shape == (5, 4, 4)
        assert torch.equal(F.relu(x), x.clamp(min=0))


def test_under_autocast_torch_chooses_the_types():
    x, weight = torch.randn(2, 4, 32, 9, 9), torch.randn(8, 32, 3, 3)
    with torch.autocast("cpu", torch.bfloat16):
        theirs = torch.vmap(F.conv2d, in_dims=(0, None))(x, weight)
        with EpisodeOperations():
            ours = torch.vmap(F.conv2d, in_dims=(0, None))(x, weight)
    assert torch.equal(ours, theirs)
    assert ours.dtype == theirs.dtype


def test_layers_and_functions_of_torch_reach_it(monkeypatch):
    calls = []
    original = MaxPool.forward
    monkeypatch.setattr(MaxPool, "forward", staticmethod(lambda *args: calls.append(args[1:]) or original(*args)))
    x = torch.randn(2, 1, 4, 4)
    with EpisodeOperations():
        for pooled in (
            torch.nn.MaxPool2d(2)(x),
            F.max_pool2d(x, kernel_size=2),
            torch.max_pool2d(input=x, kernel_size=2),
        ):
            assert pooled.shape == (2, 1, 2, 2)
    assert len(calls) == 3


def test_a_hard_sigmoid_in_place_changes_what_it_is_given():
    x = torch.linspace(-4, 4, 9)
    expected = F.hardsigmoid(x)
    with ExactOperations():
        given = x.clone()
        F.hardsigmoid(given, inplace=True)
    assert torch.allclose(given, expected)
