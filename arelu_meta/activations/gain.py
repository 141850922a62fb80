"""The gain of an activation, and any activation at ReLU's gain: "is it the gain?", asked of every one."""

import math

import torch
from torch import Tensor, nn

from arelu_meta import activations
from arelu_meta.errors import InputError

POINTS = 1 << 17  # quantiles that stand for a Gaussian
RELU_MEAN_SQUARE = 0.5


@torch.no_grad()
def mean_square(activation: nn.Module) -> float:
    """Mean square of an activation's output for Gaussian input of mean 0 and variance 1.

    Args:
        activation: as it is before training; random ones (RReLU) are taken in evaluation mode

    Returns:
        The mean; 1 over its root is the gain by which weights before it keep a signal's size.

    Raises:
        InputError: the output is zero or not finite.

    >>> round(mean_square(nn.ReLU()), 3), round(mean_square(nn.Identity()), 3)
    (0.5, 1.0)
    """
    quantiles = torch.special.ndtri((torch.arange(POINTS, dtype=torch.float64, device="cpu") + 0.5) / POINTS).float()
    random = torch.Generator().manual_seed(0)
    pieces = int(getattr(activation, "input_multiple", 1))
    x = torch.stack([quantiles[torch.randperm(POINTS, generator=random, device="cpu")] for _ in range(pieces)], 1)
    training = activation.training
    mean = activation.eval()(x[:, :, None, None]).double().square().mean().item()
    activation.train(training)
    if not (math.isfinite(mean) and mean > 0):
        raise InputError(f"{type(activation).__name__} gives a mean square of {mean}, from which no gain can be made")
    return mean


class GainMatched(nn.Module):
    """Any activation divided by its RMS gain over ReLU's at its start: its shape and its learning at ReLU's gain.

    `arelu_unit` is `base="arelu"`, and `relu_gain` asks the opposite of ReLU.

    Args:
        base: any activation, as in `activations.build`; it keeps its own parameters

    >>> gelu = GainMatched("gelu")
    >>> round(gelu.gain, 3), round(mean_square(gelu), 3)
    (0.922, 0.5)
    """

    def __init__(self, base: "activations.Activation" = "relu") -> None:
        super().__init__()
        self.base = activations.build(base)
        with torch.device("cpu"):  # what is built on `meta` has no numbers
            self.gain = math.sqrt(mean_square(activations.build(base)) / RELU_MEAN_SQUARE)
        self.input_multiple = int(getattr(self.base, "input_multiple", 1))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the base and divide."""
        return self.base(x) / self.gain

    def extra_repr(self) -> str:
        """Show the gain in the printed network."""
        return f"gain={self.gain:.4f}"
