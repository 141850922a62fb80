import torch

from arelu_meta.activations.apl import APL, apl


def test_by_hand():
    """a = (0.5, -1), b = (1, -1), so at x = -2: 0 + 0.5 * 3 - 1 * 1 = 0.5; x = 0: 0.5 * 1 - 0 = 0.5; x = 3: 3."""
    out = apl(torch.tensor([-2.0, 0.0, 3.0]), torch.tensor([0.5, -1.0]), torch.tensor([1.0, -1.0]))
    assert out.tolist() == [0.5, 0.5, 3.0]


def test_gradients_by_hand():
    """One segment a = 0.5, b = 1 at x = -2: df/da = b - x = 3, df/db = a, df/dx = -a."""
    x, a, b = torch.tensor([-2.0]), torch.tensor([0.5]), torch.tensor([1.0])
    for tensor in (x, a, b):
        tensor.requires_grad_()
    apl(x, a, b).sum().backward()
    assert (a.grad.item(), b.grad.item(), x.grad.item()) == (3.0, 0.5, -0.5)


def test_start_of_the_comparison():
    """a = 0.2, b = 0.5: at -1, 0.2 * 1.5 = 0.3; at 0.25, 0.25 + 0.2 * 0.25 = 0.3; at 2, 2."""
    assert torch.allclose(APL()(torch.tensor([-1.0, 0.25, 2.0])), torch.tensor([0.3, 0.3, 2.0]))


def test_two_parameters_per_segment():
    assert sum(parameter.numel() for parameter in APL(segments=4).parameters()) == 8
