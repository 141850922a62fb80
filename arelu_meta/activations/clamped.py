"""`Clamped`: an upper bound on any activation. ReLU6 has one at 6, AReLU has none.

Surgery puts it around what replaces a ReLU6 of a trained network: without the bound the signal grows from layer to
layer, and the network's answers are lost (EfficientNet-Lite0 in docs/finetuning.md).
"""

from torch import Tensor, nn

from arelu_meta.activations import ACTIVATION_MARK


class Clamped(nn.Module):
    """Compute min(base(x), maximum), the base with its own parameters; any shape.

    Args:
        base: the activation below the bound
        maximum: the bound

    >>> import torch
    >>> Clamped(nn.ReLU(), 6.0)(torch.tensor([-1.0, 2.0, 9.0])).tolist()
    [0.0, 2.0, 6.0]
    """

    def __init__(self, base: nn.Module, maximum: float) -> None:
        super().__init__()
        self.base, self.maximum = base, maximum
        setattr(self, ACTIVATION_MARK, getattr(base, ACTIVATION_MARK, type(base).__name__))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the base, then the bound."""
        return self.base(x).clamp(max=self.maximum)

    def extra_repr(self) -> str:
        """Show the bound in the printed network."""
        return f"maximum={self.maximum:g}"
