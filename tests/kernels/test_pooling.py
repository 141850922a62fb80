"""Max pooling over episodes, against torch's own looped over episodes, to the second derivative."""

import pytest
import torch
import torch.nn.functional as F

from arelu_meta.kernels.episode_operations import EpisodeOperations
from arelu_meta.kernels.pooling import AtIndices, MaxPool, PoolWindow

CALLS = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": (2, 3), "stride": (1, 2)},
    {"kernel_size": 2, "stride": 2, "ceil_mode": True},
    {"kernel_size": 2, "dilation": 2},
]


@pytest.mark.parametrize("options", CALLS, ids=str)
@pytest.mark.parametrize("channels_last", [False, True], ids=["channels first", "channels last"])
def test_equals_torch_episode_by_episode(options, channels_last, monkeypatch):
    torch.manual_seed(0)
    x = torch.randn(3, 4, 2, 9, 7, dtype=torch.float64)
    x = (x.movedim(2, -1).contiguous().movedim(-1, 2) if channels_last else x).requires_grad_()

    def pool(images):
        return F.max_pool2d(images**3, **options)

    calls = []
    original = MaxPool.forward
    monkeypatch.setattr(MaxPool, "forward", staticmethod(lambda *args: calls.append(args[1:]) or original(*args)))
    with EpisodeOperations():
        ours = torch.vmap(pool)(x)
    assert len(calls) == 1
    theirs = torch.stack([pool(episode) for episode in x])
    assert torch.equal(ours, theirs)
    given = torch.randn_like(theirs)
    first = [torch.autograd.grad((out**2 * given).sum(), x, create_graph=True)[0] for out in (ours, theirs)]
    torch.testing.assert_close(*first, rtol=1e-12, atol=1e-12)
    second = [torch.autograd.grad(one.square().sum(), x, create_graph=True)[0] for one in first]
    torch.testing.assert_close(*second, rtol=1e-12, atol=1e-12)
    third = [torch.autograd.grad(one.square().sum(), x)[0] for one in second]
    torch.testing.assert_close(*third, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("options", CALLS, ids=str)
@pytest.mark.parametrize("sides", [(8, 8), (9, 7)])
def test_without_a_gradient_it_gives_the_numbers_of_torch(options, sides):
    """NaN passes through, and what does not fill a window is left out."""
    x = torch.randn(3, 4, 2, *sides, generator=torch.Generator().manual_seed(0))
    x[0, 0, 0, 0, :4] = torch.tensor([torch.nan, 1.0, torch.inf, -torch.inf])
    for images in (x, x.movedim(2, -1).contiguous().movedim(-1, 2)):
        with torch.no_grad(), EpisodeOperations():
            ours = torch.vmap(lambda episode: F.max_pool2d(episode, **options))(images)
        theirs = torch.stack([F.max_pool2d(episode, **options) for episode in images])
        assert torch.equal(ours.nan_to_num(7.5), theirs.nan_to_num(7.5))


def test_within_an_inner_loop_without_an_outer_gradient_it_is_differentiated():
    """The largest of each window has slope 1, all others 0, though `no_grad` surrounds it."""
    image = torch.arange(16.0).view(1, 1, 1, 4, 4)
    with torch.no_grad(), EpisodeOperations():
        slopes = torch.vmap(torch.func.grad(lambda episode: F.max_pool2d(episode, 2).sum()))(image)
    assert slopes.flatten().nonzero().flatten().tolist() == [5, 7, 13, 15]


def test_pick_is_the_transpose_of_spread():
    """<spread n, x> = <n, pick x>, also where windows overlap."""
    window = PoolWindow((3, 3), (2, 2))
    images = torch.randn(2, 3, 7, 7, dtype=torch.float64)
    numbers, indices = F.max_pool2d(images, 3, 2, return_indices=True)
    other = torch.randn_like(images)
    left = (AtIndices.apply(numbers, indices, images.shape, window, True) * other).sum()
    torch.testing.assert_close(left, (numbers * AtIndices.apply(other, indices, images.shape, window, False)).sum())


def test_single_images_whole_numbers_and_asked_indices_are_left_to_torch():
    image = torch.randn(1, 4, 4)
    with EpisodeOperations():
        assert F.max_pool2d(image, 2).shape == (1, 2, 2)
        _, indices = F.max_pool2d(image[None], 2, return_indices=True)
        assert F.max_pool2d(torch.arange(16).view(1, 1, 4, 4), 2).flatten().tolist() == [5, 7, 13, 15]
    assert indices.shape == (1, 1, 2, 2)


@pytest.mark.parametrize("size", [1, (1, 1), [1, 1], 2, (1, 2), (None, 1)])
def test_average_pooling_of_two_axes_is_torchs_and_vectorised_without_a_loop(size):
    """torch's own warns of a loop under vmap where the layout is channels last; warnings are errors here."""
    x = torch.randn(2, 3, 4, 5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with EpisodeOperations():
        for images in (x, x.transpose(2, 4).contiguous().transpose(2, 4)):
            if size in (1, (1, 1), [1, 1]):
                found = torch.vmap(lambda one: F.adaptive_avg_pool2d(one, size))(images)
            else:
                found = torch.stack([F.adaptive_avg_pool2d(one, size) for one in images])
            expected = torch.stack([torch.nn.AdaptiveAvgPool2d(size)(one.contiguous()) for one in images])
            assert torch.allclose(found, expected, rtol=1e-12)


def test_average_pooling_of_one_axis_is_torchs_and_vectorised_without_a_loop():
    x = torch.randn(2, 3, 6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).transpose(2, 3)
    with EpisodeOperations():
        found = torch.vmap(lambda one: F.adaptive_avg_pool1d(one, 1))(x)
    assert torch.allclose(found, x.mean(-1, keepdim=True), rtol=1e-12)
