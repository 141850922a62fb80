import pytest
import torch
from torch import Tensor

from arelu_meta.learners.inner_loop import InnerRule, adapt, clipped


def scalar(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64, requires_grad=True)


def inner_loss(parameters: dict[str, Tensor]) -> Tensor:
    return (2 * parameters["w"]) ** 2 / 2


@pytest.mark.parametrize(("first_order", "expected"), [(False, 27.0), (True, 45.0)])
def test_meta_gradient_of_one_step(first_order, expected):
    """f(w) = (2w)^2 / 2, so one step of 0.1 gives w' = 0.6 w; outer g = (5w')^2 / 2, at w = 3.

    second order: dg/dw  = 25 * 0.6^2 * 3 = 27
    first order:  dg/dw' = 25 * 0.6   * 3 = 45
    """
    w = scalar(3.0)
    path = adapt(inner_loss, {"w": w}, InnerRule(lr=0.1, steps=1, first_order=first_order))
    ((5 * path[-1]["w"]) ** 2 / 2).backward()
    assert w.grad.item() == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_path_has_every_point(steps):
    """w_k = 0.6^k w_0; the meta-gradient of g is 25 * 0.6^(2k) * w_0, or 25 * 0.6^k * w_0 in first order."""
    for first_order, power in ((False, 2 * steps), (True, steps)):
        w = scalar(3.0)
        path = adapt(inner_loss, {"w": w}, InnerRule(lr=0.1, steps=steps, first_order=first_order))
        assert [point["w"].item() for point in path] == pytest.approx([3 * 0.6**k for k in range(steps + 1)])
        ((5 * path[-1]["w"]) ** 2 / 2).backward()
        assert w.grad.item() == pytest.approx(25 * 0.6**power * 3)


def test_only_the_moving_parameters_adapt():
    """f = (a b)^2 / 2 at a = 2, b = 3: da = a b^2 = 18, so one step of 0.05 moves a to 1.1 and leaves b at 3.

    a' = a - 0.05 a b^2 and the outer loss is a' + b: d/da = 1 - 0.05 b^2 = 0.55, d/db = 1 - 0.05 * 2 a b = 0.4.
    """
    a, b = scalar(2.0), scalar(3.0)
    rule = InnerRule(lr=0.05, steps=1, moving=frozenset({"a"}))
    path = adapt(lambda p: (p["a"] * p["b"]) ** 2 / 2, {"a": a, "b": b}, rule)
    assert path[-1]["a"].item() == pytest.approx(1.1)
    assert path[-1]["b"] is b
    (path[-1]["a"] + path[-1]["b"]).backward()
    assert a.grad.item() == pytest.approx(0.55)
    assert b.grad.item() == pytest.approx(0.4)


def test_learned_rates_row_by_row_and_the_last_for_later_steps():
    """From w = 1 with gradient 4w and rates 0.1, 0.2: 1 -> 0.6 -> 0.6 * 0.2 = 0.12 -> 0.12 * 0.2 = 0.024.

    Of the end, (1 - 4r0)(1 - 4r1)^2, the slope in r0 is -4 * 0.2^2 = -0.16 and in r1 2 * 0.6 * 0.2 * -4 = -0.96.
    """
    rates = torch.tensor([0.1, 0.2], dtype=torch.float64, requires_grad=True)
    path = adapt(inner_loss, {"w": scalar(1.0)}, InnerRule(lr={"w": rates}, steps=3))
    assert [point["w"].item() for point in path] == pytest.approx([1.0, 0.6, 0.12, 0.024])
    path[-1]["w"].backward()
    assert rates.grad.tolist() == pytest.approx([-0.16, -0.96])


def test_clipping_by_hand():
    """f = 3a + 4b has gradients 3 and 4, norm 5: clipped to 1 they are 0.6 and 0.8; a bound of 10 changes nothing."""
    start = {"a": scalar(0.0), "b": scalar(0.0)}
    for bound, ends in ((1.0, [-0.6, -0.8]), (10.0, [-3.0, -4.0]), (5.0, [-3.0, -4.0])):
        point = adapt(lambda p: 3 * p["a"] + 4 * p["b"], start, InnerRule(lr=1.0, steps=1, clip_norm=bound))[-1]
        assert [point["a"].item(), point["b"].item()] == pytest.approx(ends)


def test_clipping_is_differentiated_through():
    """f = w^2 / 2 clipped to 1 at w = 3: the step is lr whatever w is, so dw'/dw = 1; unclipped it would be 1 - lr."""
    for bound, slope in ((1.0, 1.0), (10.0, 0.9)):
        w = scalar(3.0)
        adapt(lambda p: p["w"] ** 2 / 2, {"w": w}, InnerRule(lr=0.1, steps=1, clip_norm=bound))[-1]["w"].backward()
        assert w.grad.item() == pytest.approx(slope)


def test_clipping_no_gradient_at_all_is_finite_and_stays_so_when_differentiated():
    """At the minimum the norm is 0, whose square root has no slope; dw'/dw is 1 - 0.1 there."""
    w = scalar(0.0)
    end = adapt(lambda p: p["w"] ** 2 / 2, {"w": w}, InnerRule(lr=0.1, steps=1, clip_norm=1.0))[-1]["w"]
    end.backward()
    assert (end.item(), w.grad.item()) == (0.0, pytest.approx(0.9))


def test_clipping_equals_torchs_own():
    random = torch.Generator().manual_seed(0)
    given = [torch.randn(4, 3, generator=random, dtype=torch.float64), torch.randn(7, generator=random).double()]
    parameters = [torch.nn.Parameter(torch.zeros_like(value)) for value in given]
    for parameter, value in zip(parameters, given, strict=True):
        parameter.grad = value.clone()
    torch.nn.utils.clip_grad_norm_(parameters, 0.5)
    for ours, parameter in zip(clipped(given, 0.5), parameters, strict=True):
        assert torch.allclose(ours, parameter.grad, rtol=1e-5)  # torch adds 1e-6 to the norm


def test_given_parameters_are_left_alone():
    w = scalar(3.0)
    given = {"w": w}
    path = adapt(inner_loss, given, InnerRule(lr=0.1, steps=2))
    assert path[0] is given
    assert given["w"] is w
    assert w.item() == 3.0


def test_under_vmap_every_task_walks_its_own_path():
    """With f = (c w)^2 / 2 a step of 0.1 gives (1 - 0.1 c^2) w: for c = 1, 2, 3 at w = 1: 0.9, 0.6, 0.1."""
    scales = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)

    def one_episode(c: Tensor) -> Tensor:
        start = {"w": torch.ones((), dtype=torch.float64)}
        return adapt(lambda p: (c * p["w"]) ** 2 / 2, start, InnerRule(lr=0.1, steps=1))[-1]["w"]

    assert torch.vmap(one_episode)(scales).tolist() == pytest.approx([0.9, 0.6, 0.1])


def test_works_without_gradient_tracking():
    with torch.no_grad():
        path = adapt(inner_loss, {"w": torch.tensor(3.0)}, InnerRule(lr=0.1, steps=1))
    assert path[-1]["w"].item() == pytest.approx(1.8)
