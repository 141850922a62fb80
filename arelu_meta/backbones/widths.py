"""How much wider a layer must be for the activation behind it."""

from torch import nn


def input_multiple(activation: nn.Module) -> int:
    """Channels the activation takes for each one it gives: the number of pieces for Maxout, one for all others."""
    return int(getattr(activation, "input_multiple", 1))
