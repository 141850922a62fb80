"""Batch norm in plain operations: torch's values, and right in second order under vmap, where torch's own is not."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from arelu_meta.backbones.norm import BatchStatisticsNorm, make_norm, statistics_from
from arelu_meta.errors import InputError

Loss = Callable[[dict[str, Tensor]], Tensor]
TASKS, INNER_LR = 3, 0.5


def images(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_equals_torchs_batch_norm_on_batch_statistics():
    norm = BatchStatisticsNorm(3).double()
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([0.5, 1.0, -2.0]))
        norm.bias.copy_(torch.tensor([1.0, 0.0, 3.0]))
    x, y = (images(4, 3, 5, 6).mul(3).add(1).requires_grad_() for _ in range(2))
    out = norm(x)
    expected = F.batch_norm(y, None, None, norm.weight, norm.bias, training=True)
    assert torch.allclose(out, expected, rtol=1e-10)
    weights = images(4, 3, 5, 6, seed=1)
    for ours, theirs in zip(
        torch.autograd.grad((out * weights).sum(), [x, *norm.parameters()]),
        torch.autograd.grad((expected * weights).sum(), [y, *norm.parameters()]),
        strict=True,
    ):
        assert torch.allclose(ours, theirs, rtol=1e-8, atol=1e-10)


def test_output_has_mean_zero_and_variance_one():
    """Variance v / (v + eps), with eps = 1e-5 and v near 9."""
    out = BatchStatisticsNorm(2).double()(images(8, 2, 4, 4) * 3 + 5)
    assert out.mean((0, 2, 3)).abs().max() < 1e-10
    assert (out.var((0, 2, 3), correction=0) - 1).abs().max() < 1e-5


def test_training_and_evaluation_do_the_same():
    norm, x = BatchStatisticsNorm(2), images(4, 2, 3, 3).float()
    assert torch.equal(norm.train()(x), norm.eval()(x))
    assert not list(norm.buffers())


def network(norm: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3), norm, nn.Tanh(), nn.Flatten(), nn.Linear(8, 2)).double()


def meta_losses(net: nn.Module) -> tuple[Loss, Loss]:
    """The mean query loss after one inner step, its tasks vectorised, and the same in a loop."""
    x = images(TASKS, 2, 4, 1, 4, 4)  # tasks, support and query, images, channel, plane
    y = torch.tensor([0, 1, 0, 1])

    def task(parameters: dict[str, Tensor], support: Tensor, query: Tensor) -> Tensor:
        def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
            return F.cross_entropy(functional_call(net, parameters, (x,)), y)

        gradients = grad(loss)(parameters, support)
        return loss({key: value - INNER_LR * gradients[key] for key, value in parameters.items()}, query)

    def vectorised(parameters: dict[str, Tensor]) -> Tensor:
        return vmap(task, in_dims=(None, 0, 0))(parameters, x[:, 0], x[:, 1]).mean()

    def looped(parameters: dict[str, Tensor]) -> Tensor:
        return torch.stack([task(parameters, support, query) for support, query in x]).mean()

    return vectorised, looped


def gradients(loss: Loss, net: nn.Module) -> dict[str, Tensor]:
    parameters = dict(net.named_parameters())
    return dict(zip(parameters, torch.autograd.grad(loss(parameters), list(parameters.values())), strict=True))


def finite_differences(loss: Loss, net: nn.Module, name: str, step: float = 1e-5) -> Tensor:
    """Central differences of the loss in every number of one parameter."""
    parameters = {key: value.detach() for key, value in net.named_parameters()}
    slopes = torch.zeros_like(parameters[name])
    for place in range(slopes.numel()):
        change = torch.zeros_like(slopes)
        change.view(-1)[place] = step
        up, down = (loss({**parameters, name: parameters[name] + sign * change}) for sign in (1, -1))
        slopes.view(-1)[place] = (up - down) / (2 * step)
    return slopes


def test_meta_gradient_under_vmap_equals_a_loop_and_finite_differences():
    net = network(BatchStatisticsNorm(2))
    vectorised, looped = meta_losses(net)
    together, alone = gradients(vectorised, net), gradients(looped, net)
    for name, gradient in together.items():
        assert torch.allclose(gradient, alone[name], rtol=1e-9, atol=1e-12), name
        assert torch.allclose(gradient, finite_differences(looped, net, name), rtol=1e-5, atol=1e-8), name
    assert together["0.weight"].abs().max() > 1e-3


def test_torchs_own_batch_norm_is_still_wrong_there():
    """Why `BatchStatisticsNorm` exists. When this fails, torch is mended, and the layer can go.

    The loss is right, and so is the looped meta-gradient; the vectorised one of the convolution before the norm is off
    by more than a part in a thousand, where finite differences are good to one in ten million.
    """
    net = network(nn.BatchNorm2d(2, track_running_stats=False))
    vectorised, looped = meta_losses(net)
    parameters = dict(net.named_parameters())
    assert torch.allclose(vectorised(parameters), looped(parameters), rtol=1e-10)
    exact = finite_differences(looped, net, "0.weight")
    assert (gradients(looped, net)["0.weight"] - exact).norm() / exact.norm() < 1e-7
    wrong = gradients(vectorised, net)["0.weight"]
    assert (wrong - exact).norm() / exact.norm() > 1e-3, f"torch {torch.__version__} has mended batch norm under vmap"


def test_group_norm_is_torchs_and_right_under_vmap():
    net = network(nn.GroupNorm(2, 2))
    vectorised, looped = meta_losses(net)
    gradient = gradients(vectorised, net)["0.weight"]
    assert torch.allclose(gradient, finite_differences(looped, net, "0.weight"), rtol=1e-5, atol=1e-8)


def test_group_norm_has_eight_groups():
    norm = make_norm("group", 16)
    assert (norm.num_groups, norm.num_channels) == (8, 16)
    with pytest.raises(InputError, match="multiple of 8 channels, not 12"):
        make_norm("group", 12)


def test_none_is_the_identity():
    x = images(2, 3, 2, 2)
    assert torch.equal(make_norm("none", 3)(x), x)


def test_unknown_norm_suggests_the_near_one():
    with pytest.raises(InputError, match="unknown norm 'bach'; did you mean 'batch'"):
        make_norm("bach", 8)


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 2, 2)], ids=str)
def test_the_gradients_of_its_gradients_are_those_of_finite_differences(shape):
    torch.manual_seed(0)
    norm = BatchStatisticsNorm(3).double()
    x = torch.randn(*shape, dtype=torch.float64, requires_grad=True)
    weight, bias = (torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(2))

    def normalise(x, weight, bias):
        return torch.func.functional_call(norm, {"weight": weight, "bias": bias}, (x,))

    assert torch.autograd.gradcheck(normalise, (x, weight, bias))
    assert torch.autograd.gradgradcheck(normalise, (x, weight, bias))


def test_channels_far_from_zero_and_without_spread():
    """Means of 1e4 beside a spread of 1, in float32; a constant channel comes out as the bias."""
    torch.manual_seed(0)
    x = torch.randn(8, 2, 5, 5) + 1e4
    theirs = torch.nn.functional.batch_norm(x.double(), None, None, training=True).float()
    torch.testing.assert_close(BatchStatisticsNorm(2, affine=False)(x), theirs, rtol=1e-3, atol=1e-3)
    assert torch.equal(BatchStatisticsNorm(2)(torch.full((3, 2, 4, 4), 7.0)), torch.zeros(3, 2, 4, 4))


@pytest.mark.parametrize("rows", [None, 4])
def test_half_precision_is_computed_in_float32(rows: int | None):
    """Numbers near 300 have steps of 2 in bfloat16: their mean and deviation would be lost."""
    norm = BatchStatisticsNorm(3, support_only=rows is not None)
    x = (300 + 8 * images(6, 3, 5, 6)).bfloat16()
    with statistics_from(rows or 6):
        out, expected = norm(x), norm(x.float())
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, expected.bfloat16())
