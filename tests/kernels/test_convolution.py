"""Convolutions as matrix products, against torch's own looped over episodes."""

import pytest
import torch
import torch.nn.functional as F

from arelu_meta.kernels import convolution
from arelu_meta.kernels.convolution import Windows
from arelu_meta.kernels.episode_operations import EpisodeOperations

EPISODES, IMAGES = 3, 4
CALLS = [
    {},
    {"padding": 1},
    {"padding": (2, 0)},
    {"padding": [1]},
    {"stride": 2},
    {"dilation": 2},
    {"groups": 2},
    {"stride": (2, 1), "padding": (0, 1), "dilation": (1, 2)},
    {"padding": "same"},
]
WAYS = {
    "native": {"WINDOWS_AT_MOST": 0, "THIN_AT_MOST": 0},
    "patches": {"STRIPS_FROM": 10**9},
    "strips": {"STRIPS_FROM": 0, "STRIPS_THICK": 0},
}


def drawn(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (5, 2)])
@pytest.mark.parametrize("options", CALLS, ids=str)
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_equals_torch_episode_by_episode(kernel, options, biased, way, monkeypatch):
    for bound, value in WAYS[way].items():
        monkeypatch.setattr(convolution, bound, value)
    torch.manual_seed(0)
    channels = 2 // options.get("groups", 1)
    x, weight, bias = drawn(EPISODES, IMAGES, 2, 10, 9), drawn(EPISODES, 4, channels, *kernel), drawn(EPISODES, 4)
    others = (bias,) if biased else ()

    def convolve(image, kernels, *bias):
        return F.conv2d(image, kernels, *bias, **options)

    with EpisodeOperations():
        ours = torch.vmap(convolve)(x, weight, *others)
    theirs = torch.stack([convolve(*episode) for episode in zip(x, weight, *others, strict=True)])
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    inputs = (x, weight, *others)
    given = torch.randn_like(theirs)
    for one, other in zip(
        torch.autograd.grad((ours**2 * given).sum(), inputs, create_graph=True),
        torch.autograd.grad((theirs**2 * given).sum(), inputs, create_graph=True),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
        again = [torch.autograd.grad(side.square().sum(), inputs, retain_graph=True) for side in (one, other)]
        for second, wanted in zip(*again, strict=True):
            torch.testing.assert_close(second, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("way", WAYS)
def test_shared_weights_and_shared_images(way, monkeypatch):
    """One of the two without a dimension over episodes: the sum over episodes of each episode's gradients."""
    for bound, value in WAYS[way].items():
        monkeypatch.setattr(convolution, bound, value)
    torch.manual_seed(0)
    for x, weight, in_dims in (
        (drawn(EPISODES, IMAGES, 2, 6, 6), drawn(3, 2, 3, 3), (0, None)),
        (drawn(IMAGES, 2, 6, 6), drawn(EPISODES, 3, 2, 3, 3), (None, 0)),
    ):
        with EpisodeOperations():
            ours = torch.vmap(F.conv2d, in_dims=in_dims)(x, weight)
        theirs = torch.stack(
            [F.conv2d(x if x.dim() == 4 else x[t], weight if weight.dim() == 4 else weight[t]) for t in range(EPISODES)]
        )
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
        pairs = [torch.autograd.grad(out.pow(3).sum(), (x, weight), create_graph=True) for out in (ours, theirs)]
        for one, other in zip(*pairs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("way", ["patches", "strips"])
def test_kept_images_with_a_bias_of_all_episodes(way, monkeypatch):
    """What is made once of the support set gives the same values and gradients in every pass, bias included."""
    for bound, value in WAYS[way].items():
        monkeypatch.setattr(convolution, bound, value)
    torch.manual_seed(0)
    x, weight, bias = torch.randn(EPISODES, IMAGES, 2, 6, 6, dtype=torch.float64), drawn(EPISODES, 3, 2, 3, 3), drawn(3)

    def twice(images, kernels):
        with EpisodeOperations(images):
            return F.conv2d(images, kernels, bias) * F.conv2d(images, kernels**2, bias)

    ours = torch.vmap(twice)(x, weight)
    theirs = torch.stack([F.conv2d(a, b, bias) * F.conv2d(a, b**2, bias) for a, b in zip(x, weight, strict=True)])
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    pairs = [torch.autograd.grad(out.pow(3).sum(), (weight, bias), create_graph=True) for out in (ours, theirs)]
    for one, other in zip(*pairs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("channels", "gradient", "cut"), [(1, True, True), (1, False, False), (2, True, False)])
def test_large_batches_of_thin_patches_are_cut_where_gradients_are_wanted(channels, gradient, cut):
    """Of 25 images of 28x28 and a kernel of 5x5, patches are 490,000 numbers for each channel: above 2^18.

    Which way was taken shows in the layout of the result: products of patches leave channels last.
    """
    torch.manual_seed(0)
    x, weight = torch.randn(2, 25, channels, 28, 28), torch.randn(2, 10, channels, 5, 5)
    with EpisodeOperations(), torch.set_grad_enabled(gradient):
        ours = torch.vmap(F.conv2d)(x, weight)
    torch.testing.assert_close(ours, torch.stack([F.conv2d(*one) for one in zip(x, weight, strict=True)]))
    assert ours[0].is_contiguous(memory_format=torch.channels_last) == cut


def test_what_torch_refuses_is_refused():
    """A kernel taller than the image, in a size that would go by strips."""
    with EpisodeOperations(), pytest.raises(RuntimeError, match="Kernel size can't be greater than actual input size"):
        F.conv2d(torch.randn(20, 32, 4, 12), torch.randn(8, 32, 5, 5))


def test_complex_numbers_are_left_to_torch(monkeypatch):
    """Strips, whose gradients conjugate nothing, would be wrong for them."""
    for bound, value in WAYS["strips"].items():
        monkeypatch.setattr(convolution, bound, value)
    x = torch.randn(2, 3, 5, 5, dtype=torch.complex64)
    weight = torch.randn(4, 3, 3, 3, dtype=torch.complex64, requires_grad=True)
    with EpisodeOperations():
        ours = F.conv2d(x, weight)
    gradients = [torch.autograd.grad(out.abs().square().sum(), weight)[0] for out in (ours, F.conv2d(x, weight))]
    torch.testing.assert_close(*gradients)


def test_adding_windows_up_is_the_transpose_of_cutting_them():
    """<cut x, w> = <x, add w> for any x and w."""
    x, windows = torch.randn(2, 6, 7, 3, dtype=torch.float64), torch.randn(2, 4, 6, 3, 2, 3, dtype=torch.float64)
    left, right = (Windows.apply(x, 3, 2, False) * windows).sum(), (x * Windows.apply(windows, 3, 2, True)).sum()
    torch.testing.assert_close(left, right)


def test_a_window_by_hand():
    x = torch.arange(9.0).view(3, 3, 1)
    assert Windows.apply(x, 2, 2, False)[1, 0].flatten().tolist() == [3, 4, 6, 7]
    assert Windows.apply(torch.ones(2, 2, 2, 2, 1), 2, 2, True).flatten().tolist() == [1, 2, 1, 2, 4, 2, 1, 2, 1]


def test_kept_images_are_cut_once_per_kernel(monkeypatch):
    calls = []
    original = Windows.forward
    monkeypatch.setattr(Windows, "forward", staticmethod(lambda *args: calls.append(args[1:3]) or original(*args)))
    x, other = torch.randn(2, 1, 6, 6), torch.randn(2, 1, 6, 6)
    with EpisodeOperations(x):
        for _ in range(3):
            F.conv2d(x, torch.randn(4, 1, 3, 3))
            F.conv2d(x, torch.randn(4, 1, 5, 5))
            F.conv2d(other, torch.randn(4, 1, 3, 3))
    assert sorted(calls) == sorted([(3, 3), (5, 5), *[(3, 3)] * 3])
