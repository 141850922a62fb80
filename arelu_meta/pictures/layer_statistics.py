"""Statistics of a network layer by layer on one batch: size of outputs, gradients, dead alpha.

    layer_statistics(network, x, y)["stem.2"].rms

The network stays as it is: running statistics and gradients too.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

from arelu_meta.activations.arelu import SlopeParameters, bounded_alpha
from arelu_meta.activations.parameters import activation_modules, is_activation
from arelu_meta.data.imageset import ImageSet
from arelu_meta.pictures.figures import layer_curves
from arelu_meta.seeding import forked_generators


@dataclass(frozen=True)
class LayerStatistics:
    """What a batch tells of one layer."""

    rms: float
    """root mean square of the layer's output"""
    output_gradient: float
    """L2 norm of the loss's gradient for the layer's output"""
    parameter_gradient: float
    """L2 norm of the loss's gradient for the layer's own parameters; 0 without any that learn"""
    dead_alpha: float | None
    """share of the layer's alpha that the clamp gives no gradient; None without alpha"""


def layer_statistics(
    network: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
    activations_only: bool = False,
) -> dict[str, LayerStatistics]:
    """Measure every activation and every layer with parameters on one batch, in the mode the network is in.

    Args:
        network: maps images to what `loss` takes.
        x: images, (N, C, H, W).
        y: targets of the loss, for cross-entropy labels (N,).
        loss: loss of the outputs and `y`, a scalar.
        activations_only: whether layers that are no activations are left out.

    Returns:
        Statistics by the layer's name; one that is called several times counts all outputs, one that is not none.

    Example:
        >>> from arelu_meta import activations
        >>> network = nn.Sequential(nn.Conv2d(1, 4, 3), activations.build("arelu"), nn.Flatten(), nn.Linear(144, 3))
        >>> sorted(layer_statistics(network, torch.rand(2, 1, 8, 8), torch.tensor([0, 2])))
        ['0', '1', '3']

    """
    outputs: dict[str, list[Tensor]] = {}
    layers = activation_modules(network) if activations_only else _measured_layers(network)
    with record_calls(layers, lambda name, _, output: outputs.setdefault(name, []).append(output)):
        buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
        with forked_generators(), torch.enable_grad():
            logits = torch.func.functional_call(network, buffers, (x.detach().requires_grad_(),))
            value = loss(logits, y)
    # Parameters that learn: all of an activation, and those of a layer that no layer inside it holds.
    learned = {
        name: [one for one in layers[name].parameters(recurse=is_activation(layers[name])) if one.requires_grad]
        for name in outputs
    }
    wanted = [tensor for name in outputs for tensor in (*outputs[name], *learned[name])]
    gradients = iter(torch.autograd.grad(value, wanted, allow_unused=True))
    return {
        name: LayerStatistics(
            rms=_norm(tensors) / sum(output.numel() for output in tensors) ** 0.5,
            output_gradient=_norm(islice(gradients, len(tensors))),
            parameter_gradient=_norm(islice(gradients, len(learned[name]))),
            dead_alpha=dead_alpha_share(layers[name]),
        )
        for name, tensors in outputs.items()
    }


class LayerLog:
    """Activation RMS, gradient norm, dead alpha and learned scalars of every activation layer, epoch by epoch.

    Measured in training mode on probe images that stay the same: a fiftieth of the training images, 2 to 32 of them,
    evenly spread and not augmented, so that it costs at most that share of an epoch. With `enabled` false, or without
    activations, it does nothing. `courses` maps quantity and layer to (epoch, value), for checkpoint and figure; with
    `as_metrics` false that is all.
    """

    def __init__(
        self,
        network: nn.Module,
        images: ImageSet,
        loss: Callable[[Tensor, Tensor], Tensor],
        *,
        enabled: bool = True,
        as_metrics: bool = True,
    ) -> None:
        self.network, self.loss, self.as_metrics = network, loss, as_metrics
        self.enabled = enabled and bool(activation_modules(network))
        count = min(len(images), max(2, min(32, len(images) // 50)))
        numbers = torch.arange(count, device=images.device) * (len(images) // count)
        self.x = images.pixels(numbers)
        self.y = images.labels[numbers] if images.masks is None else images.masks[numbers].float()
        self.courses: dict[str, dict[str, list[tuple[int, float]]]] = {}

    def measure(self, epoch: int) -> dict[str, float]:
        """Measure, and give the metrics of the epoch if asked: `layers/NAME/rms`, `.../gradient`, `.../dead_alpha`."""
        if not self.enabled:
            return {}
        mode = self.network.training
        self.network.train()
        statistics = layer_statistics(self.network, self.x, self.y, loss=self.loss, activations_only=True)
        self.network.train(mode)
        metrics: dict[str, float] = {}
        for layer, measured in statistics.items():
            values = {"rms": measured.rms, "gradient": measured.output_gradient}
            if measured.dead_alpha is not None:
                values["dead_alpha"] = measured.dead_alpha
            metrics |= {f"layers/{layer}/{quantity}": value for quantity, value in values.items()}
            parameters = self.network.get_submodule(layer).named_parameters()
            scalars = {name: value.item() for name, value in parameters if value.numel() == 1}
            for quantity, value in (values | scalars).items():
                self.courses.setdefault(quantity, {}).setdefault(layer, []).append((epoch, value))
        return metrics if self.as_metrics else {}

    def figure(self, *, title: str) -> Figure | None:
        """Draw what was measured, learned scalars first; None when nothing was."""
        courses = dict(self.courses)
        if not any(value for points in courses.get("dead_alpha", {}).values() for _, value in points):
            courses.pop("dead_alpha", None)  # none ever was: the panel would be empty
        order = sorted(courses, key=lambda quantity: quantity in ("rms", "gradient", "dead_alpha"))
        drawn = {quantity: courses[quantity] for quantity in order}
        return layer_curves(drawn, title=title, n=len(self.x)) if drawn else None


def dead_alpha_share(network: nn.Module) -> float | None:
    """Share of the alpha of a network, or of one layer, that gets no gradient: hard-clamped outside [0.01, 0.99].

    None without any alpha. A straight-through clamp lets all gradients pass.
    """
    derivatives = []
    for module in network.modules():
        if isinstance(module, SlopeParameters):
            alpha = module.alpha.detach().requires_grad_()
            with torch.enable_grad():
                slope = bounded_alpha(alpha, module.clamp)
            derivatives.append(torch.autograd.grad(slope.sum(), alpha)[0].flatten())
    return (torch.cat(derivatives) == 0).float().mean().item() if derivatives else None


@contextmanager
def record_calls(layers: Mapping[str, nn.Module], record: Callable[[str, Tensor, Tensor], object]) -> Iterator[None]:
    """Hand `record` the name, first input and output of each call of a layer that gives one tensor."""

    def hook(name: str, _: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if isinstance(output, Tensor):
            record(name, inputs[0], output)

    handles = [module.register_forward_hook(partial(hook, name)) for name, module in layers.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _measured_layers(network: nn.Module) -> dict[str, nn.Module]:
    """Activations, and layers outside of them that hold parameters of their own, in the network's order."""
    activations = activation_modules(network)
    measured = {}
    for name, module in network.named_modules():
        inside = any(not outer or name.startswith(f"{outer}.") for outer in activations)
        if name in activations or (not inside and next(module.parameters(recurse=False), None) is not None):
            measured[name] = module
    return measured


def _norm(tensors: Iterable[Tensor | None]) -> float:
    """L2 norm over all tensors together; None counts as zero."""
    squares = [tensor.detach().float().square().sum().item() for tensor in tensors if tensor is not None]
    return float(sum(squares) ** 0.5)
