"""`clamp_output`: an upper bound on any activation. ReLU6 has one at 6, AReLU has none.

Surgery gives it to what replaces a ReLU6 of a trained network: without the bound the signal grows from layer to layer,
and the network's answers are lost (EfficientNet-Lite0 in docs/finetuning.md). The activation becomes an instance of a
subclass of its class, so its parameters keep their names: with and without the bound a state dict is the same.
"""

from typing import Any

from torch import Tensor, nn

_classes: dict[type[nn.Module], type[nn.Module]] = {}  # one for each class, so that a copy is of the same


class Clamped(nn.Module):
    """Compute min(f(x), maximum), f being the `forward` of the class that it is mixed into."""

    maximum: float

    def forward(self, x: Tensor) -> Tensor:
        """Apply the activation, then the bound."""
        return super().forward(x).clamp(max=self.maximum)

    def extra_repr(self) -> str:
        """Show the bound in the printed network."""
        return ", ".join(part for part in (super().extra_repr(), f"maximum={self.maximum:g}") if part)

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        return _rebuild, (original_class(self),), self.__getstate__()


def clamp_output(activation: nn.Module, maximum: float) -> nn.Module:
    """Bound the output of an activation, in place.

    Args:
        activation: any module that gives one tensor
        maximum: the bound

    Returns:
        The same object, now of a subclass of its class; of two bounds the lower one holds.

    >>> import torch
    >>> clamp_output(nn.ReLU(), 6.0)(torch.tensor([-1.0, 2.0, 9.0])).tolist()
    [0.0, 2.0, 6.0]
    """
    if isinstance(activation, Clamped):
        activation.maximum = min(activation.maximum, maximum)
        return activation
    activation.__class__ = _clamped_class(type(activation))
    activation.maximum = maximum  # type: ignore[assignment]
    return activation


def original_class(activation: Clamped) -> type[nn.Module]:
    """Give the class of an activation before it was bounded."""
    return type(activation).__mro__[2]


def _clamped_class(original: type[nn.Module]) -> type[nn.Module]:
    if original not in _classes:
        _classes[original] = type(f"Clamped{original.__name__}", (Clamped, original), {"__module__": __name__})
    return _classes[original]


def _rebuild(original: type[nn.Module]) -> nn.Module:
    return nn.Module.__new__(_clamped_class(original))
