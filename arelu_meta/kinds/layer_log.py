"""Statistics of every activation layer during training: logged after each epoch, kept for the figure at the end."""

from collections.abc import Callable
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from arelu_meta.activations.parameters import activation_modules
from arelu_meta.data.imageset import ImageSet
from arelu_meta.pictures.figures import layer_curves
from arelu_meta.pictures.layer_statistics import layer_statistics

Loss = Callable[[Tensor, Tensor], Tensor]
Courses = dict[str, dict[str, list[tuple[int, float]]]]
FEWEST, MOST, SHARE = 2, 32, 50


class LayerLog:
    """Activation RMS, gradient norm, dead alpha and learned scalars of every activation layer, epoch by epoch.

    Measured in training mode on probe images that stay the same: a fiftieth of the training images, 2 to 32 of them,
    evenly spread and not augmented, so that it costs at most that share of an epoch. With `enabled` false, or without
    activations, it does nothing.
    """

    def __init__(self, network: nn.Module, images: ImageSet, loss: Loss, *, enabled: bool = True) -> None:
        self.network, self.loss = network, loss
        self.enabled = enabled and bool(activation_modules(network))
        count = min(len(images), max(FEWEST, min(MOST, len(images) // SHARE)))
        numbers = torch.arange(count, device=images.device) * (len(images) // count)
        self.x = images.pixels(numbers)
        self.y = images.labels[numbers] if images.masks is None else images.masks[numbers].float()
        self.courses: Courses = {}

    def measure(self, epoch: int) -> dict[str, float]:
        """Measure, and give the metrics of the epoch: `layers/NAME/rms`, `.../gradient`, `.../dead_alpha`."""
        if not self.enabled:
            return {}
        mode = self.network.training
        self.network.train()
        found = layer_statistics(self.network, self.x, self.y, loss=self.loss, activations_only=True)
        self.network.train(mode)
        values: dict[str, float] = {}
        for layer, statistics in found.items():
            measured = {"rms": statistics.rms, "gradient": statistics.output_gradient}
            if statistics.dead_alpha is not None:
                measured["dead_alpha"] = statistics.dead_alpha
            values |= {f"layers/{layer}/{quantity}": value for quantity, value in measured.items()}
            for quantity, value in (measured | _learned_scalars(self.network.get_submodule(layer))).items():
                self.courses.setdefault(quantity, {}).setdefault(layer, []).append((epoch, value))
        return values

    def figure(self, *, title: str) -> Figure | None:
        """Draw what was measured, learned scalars first; None when nothing was."""
        drawn = {quantity: course for quantity, course in self.courses.items() if _tells(quantity, course)}
        first = [quantity for quantity in drawn if quantity not in ("rms", "gradient", "dead_alpha")]
        order = [*first, *(quantity for quantity in drawn if quantity not in first)]
        shown = {quantity: drawn[quantity] for quantity in order}
        return layer_curves(shown, title=title, n=len(self.x)) if shown else None

    def state_dict(self) -> dict[str, Any]:
        """Give plain values for a checkpoint."""
        return {"courses": self.courses}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.courses = state["courses"]


def _learned_scalars(module: nn.Module) -> dict[str, float]:
    return {name: value.item() for name, value in module.named_parameters() if value.numel() == 1}


def _tells(quantity: str, course: dict[str, list[tuple[int, float]]]) -> bool:
    """Leave out the panel of dead alpha where none ever is."""
    return quantity != "dead_alpha" or any(value for points in course.values() for _, value in points)
