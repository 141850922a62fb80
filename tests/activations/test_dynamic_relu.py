"""Dynamic ReLU against numpy."""

import numpy as np
import torch
import torch.nn.functional as F

from arelu_meta.activations.dynamic_relu import DynamicReLU


def by_hand(x: np.ndarray, state: dict[str, np.ndarray]) -> np.ndarray:
    """Equations 3 and 4 of the paper for two lines: a = (1, 0) + 1.0 d, b = (0, 0) + 0.5 d, channel by channel."""
    out, channels = np.empty_like(x), x.shape[1]
    for number, image in enumerate(x):
        means = image.reshape(channels, -1).mean(1)
        hidden = np.maximum(state["hidden_weight"] @ means + state["hidden_bias"], 0)
        d = 2 / (1 + np.exp(-(state["weight"] @ hidden + state["bias"]))) - 1
        a1, a2, b1, b2 = d.reshape(4, channels)
        for channel in range(channels):
            lines = (
                (1 + a1[channel]) * image[channel] + 0.5 * b1[channel],
                a2[channel] * image[channel] + 0.5 * b2[channel],
            )
            out[number, channel] = np.maximum(*lines)
    return out


def test_formula():
    random = np.random.default_rng(0)
    x, module = random.normal(size=(3, 16, 4, 5)), DynamicReLU(16).double()
    state = {name: random.normal(size=tuple(value.shape)) for name, value in module.state_dict().items()}
    assert state["hidden_weight"].shape == (2, 16)  # 16 / 8
    module.load_state_dict({name: torch.tensor(value) for name, value in state.items()})
    np.testing.assert_allclose(module(torch.tensor(x)).detach(), by_hand(x, state), rtol=1e-12, atol=1e-14)
    module.channels_last = True
    last = torch.tensor(x).permute(0, 2, 3, 1)
    found = module(last).detach().permute(0, 3, 1, 2)
    np.testing.assert_allclose(found, by_hand(x, state), rtol=1e-12, atol=1e-14)


def test_it_starts_as_relu_and_learns():
    x, module = torch.randn(6, 16, 3, 3), DynamicReLU(16)
    torch.testing.assert_close(module(x), F.relu(x))
    module(x).square().sum().backward()
    assert module.weight.grad.abs().max() > 0


def test_images_do_not_see_each_other():
    module = DynamicReLU(16)
    with torch.no_grad():
        module.weight.normal_(generator=torch.Generator().manual_seed(0))
    x = torch.randn(4, 16, 3, 3)
    torch.testing.assert_close(module(x)[1:2], module(x[1:2]))
    assert not torch.allclose(module(x), module(2 * x) / 2)
