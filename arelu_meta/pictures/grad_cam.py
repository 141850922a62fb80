"""Look into a network: Grad-CAM, and feature maps before and after an activation.

    maps = grad_cam(network, x, labels, layer="stages.3")
    grad_cam_figure(x, {"relu": maps}).savefig("grad_cam.png")

Grad-CAM is captum's (extra `explain`); the rest needs torch and matplotlib alone. Layers go by their name in
`network.named_modules()`. Nothing here changes the network: modes, running statistics and gradients stay as they are.
"""

import difflib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from torch import Tensor, nn

from arelu_meta.errors import InputError
from arelu_meta.pictures.layer_statistics import record_calls

HEAT = "cividis"  # made for colour-blind readers
SIGNED = "PuOr_r"  # white at zero; orange against purple is safe for them too
TITLE_INCHES = 0.105  # of a character of a figure's title


def find_layer(network: nn.Module, name: str) -> nn.Module:
    """Give a layer by its name, or raise with the near names."""
    layers = {key: module for key, module in network.named_modules() if key}
    if name not in layers:
        near = difflib.get_close_matches(name, layers, n=3, cutoff=0.4) or [key for key, _ in network.named_children()]
        raise InputError(f"unknown layer {name!r}; near names: {', '.join(near) or 'none'}")
    return layers[name]


def layers_with_maps(network: nn.Module, x: Tensor) -> list[str]:
    """Names of the layers whose output for images (N, C, H, W) is feature maps of more than one pixel, as called.

    >>> layers_with_maps(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten()), torch.rand(2, 1, 8, 8))
    ['0', '1']
    """
    found: dict[str, None] = {}

    def record(name: str, _: Tensor, maps: Tensor) -> None:
        if maps.dim() == 4 and maps.shape[2:].numel() > 1:
            found[name] = None

    layers = {name: module for name, module in network.named_modules() if name}
    with record_calls(layers, record), _evaluation(network), torch.no_grad():
        network(x)
    return list(found)


def grad_cam(network: nn.Module, x: Tensor, target: int | Tensor, *, layer: str, upsample: bool = True) -> Tensor:
    """Give the Grad-CAM of a class on a layer's feature maps A_k: ReLU(sum over k of a_k A_k), with a_k the mean over
    the plane of the class score's gradient for A_k.

    A segmentation network's class score is the sum of its logits over the plane. Computed in evaluation mode; the
    network stays as it is. Source: Selvaraju et al. 2017, arXiv 1610.02391.

    Args:
        network: maps images to logits, (N, classes) or (N, classes, H, W).
        x: images as the network takes them, (N, C, H, W).
        target: class to explain: one for all images, or one for each, (N,).
        layer: a layer with feature maps (N, K, h, w), by its name in `network.named_modules()`.
        upsample: whether the maps are brought to the size of the images.

    Returns:
        Maps of values from 0 on, (N, H, W), or (N, h, w) without `upsample`.

    Raises:
        InputError: captum is missing, there is no such layer, it has no feature maps, or `target` is no class.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3))
        >>> grad_cam(network, torch.rand(2, 1, 8, 8), target=torch.tensor([0, 2]), layer="1").shape
        torch.Size([2, 8, 8])

    """
    try:
        from captum.attr import LayerGradCam
    except ImportError as error:
        raise InputError("Grad-CAM needs captum; install it with: pip install 'arelu-meta[explain]'") from error
    module = find_layer(network, layer)
    x = x.detach().requires_grad_()
    with _evaluation(network), torch.enable_grad():
        _check_target(network, x, target, module, layer)
        explained = LayerGradCam(lambda x: _scores(network(x)), module)
        maps: Tensor = explained.attribute(x, target, relu_attributions=True).detach()  # (N, 1, h, w)
    if upsample:
        maps = F.interpolate(maps, x.shape[2:], mode="bilinear", align_corners=False)
    return maps.squeeze(1)


def grad_cam_figure(x: Tensor, maps: Mapping[str, Tensor], *, titles: list[str] | None = None) -> Figure:
    """Draw images and below them, row by row, named Grad-CAM maps laid over them.

    Args:
        x: images of any range, (N, C, H, W).
        maps: maps (N, H, W) of `grad_cam`, by the name of their row.
        titles: a title for each image.

    Returns:
        The figure, drawn off screen.

    Example:
        >>> figure = grad_cam_figure(torch.rand(2, 1, 8, 8), {"relu": torch.rand(2, 8, 8)}, titles=["a", "b"])
        >>> [axes.get_title() for axes in figure.axes[:2]]
        ['a', 'b']

    """
    size = (1.6 * len(x) + 1.6, 1.6 * (len(maps) + 1) + 0.5)
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.1))  # by default names of rows end at the edge
    grid = figure.subplots(len(maps) + 1, len(x), squeeze=False)
    for column, image in enumerate(x):
        _show(grid[0, column], image, title=titles[column] if titles else "")
        for row, (name, heat) in enumerate(maps.items(), start=1):
            share = heat[column].detach().cpu() / heat[column].max().clamp(min=1e-12).cpu()
            _show(grid[row, column], image.mean(0, keepdim=True))
            picture = grid[row, column].imshow(share.numpy(), cmap=HEAT, vmin=0, vmax=1, alpha=0.65)
            grid[row, 0].set_ylabel(name)
    grid[0, 0].set_ylabel("input")
    figure.colorbar(picture, ax=grid, label="share of the maximum")  # beside all rows, so that columns stay below
    return figure


@torch.no_grad()
def feature_maps_figure(networks: Mapping[str, nn.Module], image: Tensor, *, layer: str, channels: int = 8) -> Figure:
    """Draw the first channels of one image before and after an activation, the networks below each other.

    All maps share one colour scale, so gains can be compared; it is cut at the 99.5th percentile of the magnitude. Of
    Maxout's pieces the first is drawn before it.

    Args:
        networks: networks by the name of their rows.
        image: one image as the networks take it, (C, H, W).
        layer: activation of a convolution, by its name in `network.named_modules()`.
        channels: number of channels to draw.

    Returns:
        The figure, drawn off screen.

    Raises:
        InputError: a network has no such layer, or what it passes are no feature maps.

    Example:
        >>> network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU())
        >>> feature_maps_figure({"relu": network}, torch.rand(1, 8, 8), layer="1").get_suptitle()
        "feature maps at '1': 4 of 4 channels, 6x6 pixels"

    """
    rows: dict[str, Tensor] = {}
    for name, network in networks.items():
        before, after = _before_and_after(network, image, layer)
        rows[f"{name}\nbefore"], rows[f"{name}\nafter"] = before[:: max(1, len(before) // len(after))], after
    shown = min(channels, *(len(maps) for maps in rows.values()))
    limit = torch.cat([maps[:shown].abs().flatten() for maps in rows.values()]).quantile(0.995).item() or 1.0
    side = "x".join(str(length) for length in after.shape[1:])
    title = f"feature maps at {layer!r}: {shown} of {len(after)} channels, {side} pixels"
    width = max(1.3 * shown + 2.4, TITLE_INCHES * len(title))  # few channels are narrower than what is said of them
    figure = Figure(figsize=(width, 1.25 * len(rows) + 0.7), layout="constrained")
    grid = figure.add_gridspec(len(rows), shown + 1)
    _show(figure.add_subplot(grid[:, 0]), image, title="input")
    drawn = []
    for row, (name, maps) in enumerate(rows.items()):
        for column in range(shown):
            axes = figure.add_subplot(grid[row, column + 1])
            drawn.append(axes)
            picture = axes.imshow(maps[column].detach().cpu().numpy(), cmap=SIGNED, vmin=-limit, vmax=limit)
            axes.set(xticks=[], yticks=[], title=f"channel {column}" if row == 0 else "")
            if column == 0:
                axes.set_ylabel(name)
    figure.colorbar(picture, ax=drawn, label="feature value", extend="both", shrink=0.8)
    figure.suptitle(title)
    return figure


def _scores(logits: Tensor) -> Tensor:
    return logits.flatten(2).sum(2) if logits.dim() > 2 else logits  # (N, classes)


@torch.no_grad()
def _check_target(network: nn.Module, x: Tensor, target: int | Tensor, module: nn.Module, layer: str) -> None:
    outputs: list[Tensor] = []
    with record_calls({layer: module}, lambda *arguments: outputs.append(arguments[-1])):
        classes = _scores(network(x)).shape[1]
    if not outputs or outputs[0].dim() != 4:
        found = f"gives {tuple(outputs[0].shape)}" if outputs else "is not called by the network"
        raise InputError(f"Grad-CAM needs a layer with feature maps (N, C, h, w); {layer!r} {found}")
    wanted = torch.as_tensor(target)
    if not 0 <= int(wanted.min()) <= int(wanted.max()) < classes:
        raise InputError(f"target {wanted.tolist()} does not lie below the network's {classes} classes")


def _before_and_after(network: nn.Module, image: Tensor, layer: str) -> tuple[Tensor, Tensor]:
    """Input and output of a layer for one image, each (channels, h, w)."""
    passed: list[tuple[Tensor, Tensor]] = []
    with record_calls({layer: find_layer(network, layer)}, lambda _, x, y: passed.append((x, y))), _evaluation(network):
        network(image[None])
    if not passed or any(tensor.dim() != 4 for tensor in passed[0]):
        raise InputError(f"layer {layer!r} passes no feature maps (N, C, h, w); name an activation of a convolution")
    before, after = passed[0]
    return before[0], after[0]


@contextmanager
def _evaluation(network: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; then each module as it was."""
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def _show(axes: Any, image: Tensor, *, title: str = "") -> None:
    """Draw an image (C, H, W) of any range, stretched to its own extremes: colour if it has three channels."""
    image = image.detach().float().cpu()
    image = image if len(image) == 3 else image.mean(0, keepdim=True)
    low, high = image.min(), image.max()
    stretched = (image - low) / (high - low).clamp(min=1e-12)
    axes.imshow(stretched.permute(1, 2, 0).numpy(), cmap="gray", vmin=0, vmax=1)
    axes.set(xticks=[], yticks=[], title=title)
