"""ACON-C and Meta-ACON against numpy."""

import numpy as np
import torch
import torch.nn.functional as F

from arelu_meta.activations.acon import ACONC, MetaACON, acon

RANDOM = np.random.default_rng(0)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def by_hand(x: np.ndarray, p1: np.ndarray, p2: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """Equation of the paper, channel by channel: (p1 - p2) x sigmoid(beta (p1 - p2) x) + p2 x."""
    out = np.empty_like(x)
    for image in range(len(x)):
        for channel in range(x.shape[1]):
            z, d = x[image, channel], p1[channel] - p2[channel]
            out[image, channel] = d * z * sigmoid(beta[image, channel] * d * z) + p2[channel] * z
    return out


def test_acon_c():
    x, (p1, p2, beta) = RANDOM.normal(size=(2, 3, 4, 5)), RANDOM.normal(size=(3, 3))
    module = ACONC(3).double()
    module.load_state_dict({"p1": torch.tensor(p1), "p2": torch.tensor(p2), "beta": torch.tensor(beta)})
    expected = by_hand(x, p1, p2, np.tile(beta, (2, 1)))
    np.testing.assert_allclose(module(torch.tensor(x)).detach(), expected, rtol=1e-12)
    module.channels_last = True
    last = torch.tensor(x).permute(0, 2, 3, 1)
    np.testing.assert_allclose(module(last).detach().permute(0, 3, 1, 2), expected, rtol=1e-12)


def test_its_members():
    """Swish at its start; p1 = p2 is linear; beta = 0 is the mean of the lines; a large beta is PReLU."""
    x, one = torch.linspace(-3, 3, 30)[None], torch.ones(1)
    torch.testing.assert_close(ACONC()(x), F.silu(x))
    torch.testing.assert_close(acon(x, 2 * one, 2 * one, one), 2 * x)
    torch.testing.assert_close(acon(x, one, 0.5 * one, 0 * one), 0.75 * x)
    torch.testing.assert_close(acon(x, one, 0.25 * one, 1e4 * one), F.leaky_relu(x, 0.25))


def test_meta_acon():
    x, (p1, p2) = RANDOM.normal(size=(2, 32, 3, 4)), RANDOM.normal(size=(2, 32))
    squeeze, expand = RANDOM.normal(size=(2, 32)), RANDOM.normal(size=(32, 2))  # rank 32 / 16
    module = MetaACON(32).double()
    state = {"p1": p1, "p2": p2, "squeeze": squeeze, "expand": expand}
    module.load_state_dict({name: torch.tensor(value) for name, value in state.items()})
    beta = sigmoid(np.einsum("ch,hd,nd->nc", expand, squeeze, x.mean((2, 3))))
    np.testing.assert_allclose(module(torch.tensor(x)).detach(), by_hand(x, p1, p2, beta), rtol=1e-12)
    module.channels_last = True
    last = torch.tensor(x).permute(0, 2, 3, 1)
    np.testing.assert_allclose(module(last).detach().permute(0, 3, 1, 2), by_hand(x, p1, p2, beta), rtol=1e-12)


def test_meta_acon_of_one_set():
    """One beta per image, by the mean over all its numbers: sigmoid(2 * 3 * mean)."""
    x, module = torch.randn(3, 5, 2, 2, dtype=torch.float64), MetaACON().double()
    module.load_state_dict({**module.state_dict(), "squeeze": torch.tensor([[2.0]]), "expand": torch.tensor([[3.0]])})
    beta = torch.sigmoid(6 * x.mean((1, 2, 3)))[:, None, None, None]
    torch.testing.assert_close(module(x), x * torch.sigmoid(beta * x))


def test_the_start_is_one_half_for_every_image():
    x = torch.randn(4, 8)
    torch.testing.assert_close(MetaACON(8)(x), x * torch.sigmoid(x / 2))
