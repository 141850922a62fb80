"""Maxout: the largest of several linear pieces (Goodfellow et al. 2013, arXiv 1302.4389)."""

from torch import Tensor, fx, nn

from arelu_meta.errors import InputError

fx.wrap("maxout")  # asks for the number of channels


def maxout(x: Tensor, pieces: int) -> Tensor:
    """Take the maximum over each `pieces` neighbouring channels: (N, channels * pieces, ...) -> (N, channels, ...).

    >>> import torch
    >>> maxout(torch.tensor([[1.0, 3.0, -2.0, -5.0]]), 2)
    tensor([[ 3., -2.]])
    """
    if x.shape[1] % pieces:
        raise InputError(f"maxout of {pieces} pieces needs a multiple of {pieces} channels, not {x.shape[1]}")
    return x.unflatten(1, (-1, pieces)).max(dim=2).values


class Maxout(nn.Module):
    """Maxout over neighbouring channels: the layer before it is `input_multiple` times as wide, as in our backbones.

    Args:
        pieces: channels of the input, (N, channels * pieces, ...), for each one of the output; 2 or more
    """

    def __init__(self, pieces: int = 2) -> None:
        super().__init__()
        if pieces < 2:
            raise InputError(f"pieces must be at least 2, not {pieces}: the maximum of one piece is the identity")
        self.input_multiple = pieces

    def forward(self, x: Tensor) -> Tensor:
        """Keep the largest of each group of channels."""
        return maxout(x, self.input_multiple)


class MaxoutPaper(nn.Identity):
    """Maxout over one piece, as coded by Chen: the largest of one number is that number, so this is the identity."""
