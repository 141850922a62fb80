"""A network as a row of boxes, layer by layer, each with the shape of its output."""

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from arelu_meta.pictures.layer_statistics import record_calls

TALLEST, LOWEST = 1.0, 0.25  # heights of boxes
FILL = {nn.Conv2d: "#56B4E9", nn.MaxPool2d: "#E69F00", nn.Linear: "#CC79A7"}
OTHER = "#009E73"  # activations


@torch.no_grad()
def network_sketch(network: nn.Module, image: Tensor, *, title: str) -> Figure:
    """Draw every layer without layers inside, in the order of its calls, as tall as its maps and named by its type.

    Args:
        network: any network.
        image: one image as it takes it, (C, H, W).
        title: what is written above.

    Returns:
        The figure, drawn off screen.

    >>> sketch = network_sketch(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU()), torch.rand(1, 8, 8), title="two layers")
    >>> [text.get_text() for text in sketch.axes[0].texts]
    ['Conv2d', '4, 6x6', 'ReLU', '4, 6x6']
    """
    leaves = {name: module for name, module in network.named_modules() if not list(module.children())}
    calls: list[tuple[nn.Module, tuple[int, ...]]] = []
    with record_calls(leaves, lambda name, _, output: calls.append((leaves[name], tuple(output.shape[1:])))):
        network(image[None])
    figure = Figure(figsize=(1.0 * len(calls) + 0.6, 2.6), layout="constrained")
    axes = figure.subplots()
    largest = max((shape[-1] for _, shape in calls if len(shape) == 3), default=1)
    for place, (layer, shape) in enumerate(calls):
        size = shape[-1] / largest if len(shape) == 3 else 0.0
        height = LOWEST + (TALLEST - LOWEST) * size
        colour = next((colour for kind, colour in FILL.items() if isinstance(layer, kind)), OTHER)
        axes.bar(place, height, width=0.5, bottom=-height / 2, color=colour, edgecolor="0.2")
        described = f"{shape[0]}, {'x'.join(map(str, shape[1:]))}" if len(shape) == 3 else f"{shape[0]}"
        axes.text(place, TALLEST / 2 + 0.1, type(layer).__name__, ha="center", fontsize="small")
        axes.text(place, -TALLEST / 2 - 0.2, described, ha="center", fontsize="small")
    axes.set(xlim=(-0.6, len(calls) - 0.4), ylim=(-TALLEST / 2 - 0.3, TALLEST / 2 + 0.25))
    axes.axis("off")
    figure.suptitle(f"{title}: layers and their output channels and maps", fontsize="medium")
    return figure
