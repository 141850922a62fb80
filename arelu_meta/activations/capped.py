"""A bound above any activation: what ReLU6 has and AReLU has not."""

from torch import Tensor, nn

from arelu_meta.activations import ACTIVATION_MARK


class Capped(nn.Module):
    """min(base(x), cap), the base with its own parameters. Networks with ReLU6 rely on the bound: see docs/surgery.md.

    >>> import torch
    >>> Capped(nn.ReLU(), 6.0)(torch.tensor([-1.0, 2.0, 9.0])).tolist()
    [0.0, 2.0, 6.0]
    """

    def __init__(self, base: nn.Module, cap: float) -> None:
        super().__init__()
        self.base, self.cap = base, cap
        setattr(self, ACTIVATION_MARK, getattr(base, ACTIVATION_MARK, type(base).__name__))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the base, then the bound."""
        return self.base(x).clamp(max=self.cap)

    def extra_repr(self) -> str:
        """Show the bound."""
        return f"cap={self.cap:g}"
