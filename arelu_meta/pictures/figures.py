"""Figures of a run, drawn off screen: training curves, learned activations, layers over the epochs, answers."""

import copy
import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import nn

from arelu_meta.activations.arelu import SlopeParameters
from arelu_meta.activations.channels import ChannelActivation
from arelu_meta.activations.parameters import activation_modules

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Colours that colour-blind readers can tell apart (Okabe and Ito)."""
DEPTH = "viridis"  # even in lightness, so that depth reads without colour too
FAR = 1e3  # beyond every clamp and where a sigmoid is 0 or 1
QUANTITIES = {
    "alpha": "alpha, as learned",
    "beta": "beta, as learned",
    "rms": "activation RMS",
    "gradient": "gradient norm of the output",
    "dead_alpha": "share of dead alpha",
}


def training_curve(
    series: Mapping[str, Sequence[tuple[int, float]]], *, title: str, ylabel: str, xlabel: str = "outer step"
) -> Figure:
    """Draw named series of (step, value) over the steps."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for colour, (name, points) in zip(COLOURS, series.items(), strict=False):
        steps, values = zip(*points, strict=True) if points else ((), ())
        axes.plot(
            steps,
            values,
            label=f"{name} (n = {len(points)})",
            color=colour,
            marker="o" if len(points) < 30 else None,
            markersize=3,
        )
    axes.set(xlabel=xlabel, ylabel=ylabel, title=title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))  # there is no half step
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return figure


def rate_figure(
    series: Mapping[str, Sequence[tuple[float, float]]], best: Mapping[str, tuple[float, float]], *, title: str
) -> Figure:
    """Draw accuracy over the learning rate on a logarithmic axis, one line per arm, its best rate as a filled mark."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for number, (name, points) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        rates, values = zip(*points, strict=True)
        axes.plot(rates, values, label=name, color=colour, marker="o", markersize=4, markerfacecolor="white")
        lost = [rate for rate, value in points if math.isnan(value)]
        axes.plot(lost, [0.03 * number] * len(lost), color=colour, marker="x", linestyle="none")
        if name in best:
            axes.plot(*best[name], color=colour, marker="o", markersize=8, linestyle="none")
    axes.set(xscale="log", xlabel="learning rate", ylabel="validation accuracy", title=title)
    axes.grid(alpha=0.3)
    figure.legend(frameon=False, title="activation\n(filled: best rate,\ncross: diverged)", loc="outside right upper")
    return figure


@torch.no_grad()
def activation_curves(network: nn.Module, *, title: str, limit: float = 3.0) -> Figure | None:
    """Draw every layer's activation as learned, on [-limit, limit]; None without any of one curve.

    Where alpha and beta are learned, the shaded region is the range of all curves that they can reach.
    """
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    modules = {
        name: module
        for name, module in activation_modules(network).items()
        if not hasattr(module, "input_multiple") and not any(isinstance(m, ChannelActivation) for m in module.modules())
    }
    if not modules:
        return None
    reached = next((module for module in modules.values() if isinstance(module, SlopeParameters)), None)
    if reached is not None:
        axes.fill_between(*_reachable(reached, limit), color="0.85", linewidth=0, zorder=0, label="range")
    for number, (name, module) in enumerate(modules.items()):
        device = next((tensor.device for tensor in (*module.parameters(), *module.buffers())), torch.device("cpu"))
        x = torch.linspace(-limit, limit, 241, device=device)
        axes.plot(
            x.cpu(),
            module(x).cpu(),
            label=f" {name}" if name.startswith("_") else name,  # matplotlib leaves such names out of the legend
            color=COLOURS[number % len(COLOURS)],
            linestyle=("-", "--", ":")[number // len(COLOURS) % 3],
        )
    axes.axhline(0, color="0.7", linewidth=0.8, zorder=0)
    axes.axvline(0, color="0.7", linewidth=0.8, zorder=0)
    axes.set(xlabel="input", ylabel="output", title=title)
    axes.legend(frameon=False, title="layer", fontsize="small", ncols=1 + len(modules) // 12)
    return figure


def _reachable(module: SlopeParameters, limit: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lowest and highest value at each input over all alpha and beta; both enter monotonously, so ends suffice."""
    copied = copy.deepcopy(module).cpu()
    x = torch.linspace(-limit, limit, 241)
    curves = []
    for alpha in (-FAR, FAR):
        for beta in (-FAR, FAR):
            copied.alpha.fill_(alpha)
            copied.beta.fill_(beta)
            curves.append(copied(x))
    stacked = torch.stack(curves)
    return x.numpy(), stacked.amin(0).numpy(), stacked.amax(0).numpy()


def confusion_figure(counts: np.ndarray, class_names: Sequence[str], *, title: str) -> Figure:
    """Draw the share of each label's images by answer, with counts where there is room for them."""
    figure = Figure(figsize=(6, 5.4), layout="constrained")
    axes = figure.subplots()
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    drawn = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(drawn, ax=axes, label="share of the label's images", shrink=0.8)
    if len(class_names) <= 20:
        axes.set_xticks(range(len(class_names)), class_names, rotation=45, ha="right")
        axes.set_yticks(range(len(class_names)), class_names)
        for (row, column), count in np.ndenumerate(counts):
            colour = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, str(count), ha="center", va="center", color=colour, fontsize="x-small")
    axes.set(xlabel="answer", ylabel="label", title=f"{title}\n(n = {counts.sum()} test images)")
    return figure


def overlay_figure(images: torch.Tensor, predicted: torch.Tensor, truth: torch.Tensor, *, title: str) -> Figure:
    """Draw slices (N, C, H, W) with the outline of the prediction in red and of the truth in green."""
    columns = min(3, len(images))
    rows = -(-len(images) // columns)
    figure = Figure(figsize=(3 * columns, 3 * rows + 0.7), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for place in axes.flat:
        place.axis("off")
    for place, image, guess, mask in zip(axes.flat, images, predicted[:, 0], truth[:, 0], strict=False):
        _draw_outlines(place, image, guess, mask)
    figure.suptitle(f"{title}: prediction red, truth green (n = {len(images)} slices)", fontsize="medium")
    return figure


def overlay_rows(images: torch.Tensor, predicted: Mapping[str, torch.Tensor], truth: torch.Tensor) -> Figure:
    """Draw the same slices (N, C, H, W) row by row with the outlines of named predictions, each (N, 1, H, W)."""
    figure = Figure(figsize=(2.4 * len(images) + 0.4, 2.4 * len(predicted) + 0.5), layout="constrained")
    axes = figure.subplots(len(predicted), len(images), squeeze=False)
    for row, (name, guesses) in zip(axes, predicted.items(), strict=True):
        for place, image, guess, mask in zip(row, images, guesses[:, 0], truth[:, 0], strict=True):
            _draw_outlines(place, image, guess, mask)
            place.set(xticks=[], yticks=[])
        row[0].set_ylabel(name)
    figure.suptitle(f"prediction red, truth green (n = {len(images)} slices)", fontsize="medium")
    return figure


def _draw_outlines(place: Axes, image: torch.Tensor, predicted: torch.Tensor, truth: torch.Tensor) -> None:
    """Draw one slice (C, H, W) with the outlines of two masks (H, W); truth below, so that agreement looks red."""
    pixels = image.permute(1, 2, 0).numpy()  # NumPy 2 warns of a tensor where it is asked to copy
    place.imshow(pixels if pixels.shape[2] == 3 else pixels[:, :, 0], cmap="gray")
    for marked, colour in ((truth, "#00FF00"), (predicted, "#FF0000")):
        if marked.any():
            place.contour(marked.float().numpy(), levels=[0.5], colors=colour, linewidths=1.2)


def layer_curves(curves: Mapping[str, Mapping[str, Sequence[tuple[int, float]]]], *, title: str, n: int) -> Figure:
    """Draw one panel per quantity and in it one line per layer over the epochs: quantity -> layer -> (epoch, value).

    Up to seven layers have colours and names; more are coloured by depth. `n` is the number of probe images.
    """
    layers = list(dict.fromkeys(layer for points_by_layer in curves.values() for layer in points_by_layer))
    columns = min(2, len(curves))
    rows = -(-len(curves) // columns)
    figure = Figure(figsize=(4.6 * columns + 1.2, 2.9 * rows + 0.6), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(curves) :]:
        axes.set_visible(False)
    for axes, (quantity, points_by_layer) in zip(grid.flat, curves.items(), strict=False):
        for layer, points in points_by_layer.items():
            steps, values = zip(*points, strict=True) if points else ((), ())
            number = layers.index(layer)
            colour = COLOURS[number] if len(layers) <= len(COLOURS) else colormaps[DEPTH](number / (len(layers) - 1))
            marker = "o" if len(points) < 12 else None  # a short line is hardly seen
            axes.plot(steps, values, label=layer, color=colour, marker=marker, markersize=3, linewidth=1.3)
        axes.set(xlabel="epoch", ylabel=QUANTITIES.get(quantity, quantity))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    if len(layers) <= len(COLOURS):
        handles, names = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside right upper", title="layer", frameon=False, fontsize="small")
    else:
        scale = ScalarMappable(Normalize(1, len(layers)), DEPTH)
        figure.colorbar(scale, ax=grid, label=f"layer, first to last of {len(layers)}", shrink=0.8)
    figure.suptitle(f"{title}\n(RMS and gradient on n = {n} training images)", fontsize="medium")
    return figure
