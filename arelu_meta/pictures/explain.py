"""Look into a network: Grad-CAM, feature maps before and after an activation, statistics layer by layer.

    maps = grad_cam(network, x, labels, layer="stages.3")
    grad_cam_figure(x, {"relu": maps}).savefig("grad_cam.png")
    layer_statistics(network, x, y)["stem.2"].rms

Grad-CAM is captum's (extra `explain`); the rest needs torch and matplotlib alone. Layers go by their name in
`network.named_modules()`. Nothing here changes the network: modes, running statistics and gradients stay as they are.
"""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

from arelu_meta.activations.arelu import SlopeParameters, bounded_alpha
from arelu_meta.activations.parameters import activation_modules, is_activation
from arelu_meta.errors import InputError

HEAT = "cividis"  # made for colour-blind readers
SIGNED = "PuOr_r"  # white at zero; orange against purple is safe for them too


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


def find_layer(network: nn.Module, name: str) -> nn.Module:
    """Give a layer by its name, or raise with the near names."""
    layers = {key: module for key, module in network.named_modules() if key}
    if name not in layers:
        near = difflib.get_close_matches(name, layers, n=3, cutoff=0.4) or [key for key, _ in network.named_children()]
        raise InputError(f"unknown layer {name!r}; near names: {', '.join(near) or 'none'}")
    return layers[name]


def grad_cam(network: nn.Module, x: Tensor, target: int | Tensor, *, layer: str, upsample: bool = True) -> Tensor:
    """Give the Grad-CAM of a class on a layer's feature maps A_k: ReLU(sum over k of a_k A_k), with a_k the mean over
    the plane of the class score's gradient for A_k.

    `target` is a class for all images or one for each (N,). A segmentation network's class score is the sum of its
    logits over the plane. x (N, C, H, W) -> (N, H, W), or of the layer's plane without `upsample`. In evaluation mode.
    Source: Selvaraju et al. 2017, arXiv 1610.02391.
    """
    layer_gradcam = _layer_gradcam()
    module = find_layer(network, layer)
    x = x.detach().requires_grad_()
    with _evaluation(network), torch.enable_grad():
        _check_target(network, x, target, module, layer)
        explained = layer_gradcam(lambda x: _scores(network(x)), module)
        maps: Tensor = explained.attribute(x, target, relu_attributions=True).detach()  # (N, 1, h, w)
    if upsample:
        maps = F.interpolate(maps, x.shape[2:], mode="bilinear", align_corners=False)
    return maps.squeeze(1)


def layer_statistics(
    network: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
    activations_only: bool = False,
) -> dict[str, LayerStatistics]:
    """Measure every activation and every layer with parameters on one batch, in the mode the network is in.

    A layer that is called several times counts all its outputs; one that is not called is left out.
    """
    outputs: dict[str, list[Tensor]] = {}
    layers = activation_modules(network) if activations_only else _measured_layers(network)
    with _recording(layers, lambda name, _, output: outputs.setdefault(name, []).append(output)):
        buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
        with torch.random.fork_rng(), torch.enable_grad():
            logits = torch.func.functional_call(network, buffers, (x.detach().requires_grad_(),))
            value = loss(logits, y)
    learned = {name: _own_parameters(layers[name]) for name in outputs}
    wanted = [tensor for name in outputs for tensor in (*outputs[name], *learned[name])]
    gradients = iter(torch.autograd.grad(value, wanted, allow_unused=True))
    return {
        name: LayerStatistics(
            rms=_norm(found) / sum(output.numel() for output in found) ** 0.5,
            output_gradient=_norm(islice(gradients, len(found))),
            parameter_gradient=_norm(islice(gradients, len(learned[name]))),
            dead_alpha=dead_alpha_share(layers[name]),
        )
        for name, found in outputs.items()
    }


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


@torch.no_grad()
def feature_maps_figure(networks: Mapping[str, nn.Module], image: Tensor, *, layer: str, channels: int = 8) -> Figure:
    """Draw the first channels of one image (C, H, W) before and after an activation, the networks below each other.

    All maps share one colour scale, so gains can be compared; it is cut at the 99.5th percentile of the magnitude. Of
    Maxout's pieces the first is drawn before it.
    """
    rows: dict[str, Tensor] = {}
    for name, network in networks.items():
        before, after = _before_and_after(network, image, layer)
        rows[f"{name}\nbefore"], rows[f"{name}\nafter"] = before[:: max(1, len(before) // len(after))], after
    shown = min(channels, *(len(maps) for maps in rows.values()))
    limit = torch.cat([maps[:shown].abs().flatten() for maps in rows.values()]).quantile(0.995).item() or 1.0
    figure = Figure(figsize=(1.3 * shown + 2.4, 1.25 * len(rows) + 0.7), layout="constrained")
    grid = figure.add_gridspec(len(rows), shown + 1)
    _show(figure.add_subplot(grid[:, 0]), image, title="input")
    drawn = []
    for row, (name, maps) in enumerate(rows.items()):
        for column in range(shown):
            axes = figure.add_subplot(grid[row, column + 1])
            drawn.append(axes)
            picture = axes.imshow(maps[column].cpu(), cmap=SIGNED, vmin=-limit, vmax=limit)
            axes.set(xticks=[], yticks=[], title=f"channel {column}" if row == 0 else "")
            if column == 0:
                axes.set_ylabel(name)
    figure.colorbar(picture, ax=drawn, label="feature value", extend="both", shrink=0.8)
    side = "x".join(str(length) for length in maps.shape[1:])
    figure.suptitle(f"feature maps at {layer!r}: {shown} of {len(maps)} channels, {side} pixels")
    return figure


def grad_cam_figure(x: Tensor, maps: Mapping[str, Tensor], *, titles: list[str] | None = None) -> Figure:
    """Draw images (N, C, H, W) and below them, row by row, the named Grad-CAM maps (N, H, W) laid over them."""
    figure = Figure(figsize=(1.6 * len(x) + 1.6, 1.6 * (len(maps) + 1) + 0.5), layout="constrained")
    grid = figure.subplots(len(maps) + 1, len(x), squeeze=False)
    for column, image in enumerate(x):
        _show(grid[0, column], image, title=titles[column] if titles else "")
        for row, (name, heat) in enumerate(maps.items(), start=1):
            share = heat[column].detach().cpu() / heat[column].max().clamp(min=1e-12).cpu()
            _show(grid[row, column], image.mean(0, keepdim=True))
            picture = grid[row, column].imshow(share, cmap=HEAT, vmin=0, vmax=1, alpha=0.65)
            grid[row, 0].set_ylabel(name)
    grid[0, 0].set_ylabel("input")
    figure.colorbar(picture, ax=grid[1:], label="Grad-CAM, share of the map's maximum")
    return figure


def _layer_gradcam() -> Any:
    try:
        from captum.attr import LayerGradCam
    except ImportError as error:
        raise InputError("Grad-CAM needs captum; install it with: pip install 'arelu-meta[explain]'") from error
    return LayerGradCam


def _scores(logits: Tensor) -> Tensor:
    return logits.flatten(2).sum(2) if logits.dim() > 2 else logits  # (N, classes)


@torch.no_grad()
def _check_target(network: nn.Module, x: Tensor, target: int | Tensor, module: nn.Module, layer: str) -> None:
    outputs: list[Tensor] = []
    with _recording({layer: module}, lambda *arguments: outputs.append(arguments[-1])):
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
    with _recording({layer: find_layer(network, layer)}, lambda _, x, y: passed.append((x, y))), _evaluation(network):
        network(image[None])
    if not passed or any(tensor.dim() != 4 for tensor in passed[0]):
        raise InputError(f"layer {layer!r} passes no feature maps (N, C, h, w); name an activation of a convolution")
    before, after = passed[0]
    return before[0], after[0]


def _measured_layers(network: nn.Module) -> dict[str, nn.Module]:
    """Activations, and layers outside of them that hold parameters of their own, in the network's order."""
    activations = activation_modules(network)
    return {
        name: module
        for name, module in network.named_modules()
        if name in activations
        or (next(module.parameters(recurse=False), None) is not None and not _inside(name, activations))
    }


def _own_parameters(module: nn.Module) -> list[nn.Parameter]:
    """Parameters that learn: all of an activation, and those of a layer that no layer inside it holds."""
    return [parameter for parameter in module.parameters(recurse=is_activation(module)) if parameter.requires_grad]


def _inside(name: str, activations: Mapping[str, nn.Module]) -> bool:
    return any(not outer or name.startswith(f"{outer}.") for outer in activations)


def _norm(tensors: Iterable[Tensor | None]) -> float:
    """L2 norm over all tensors together; None counts as zero."""
    squares = [tensor.detach().float().square().sum().item() for tensor in tensors if tensor is not None]
    return float(sum(squares) ** 0.5)


@contextmanager
def _recording(layers: Mapping[str, nn.Module], record: Callable[[str, Tensor, Tensor], object]) -> Iterator[None]:
    """Hand `record` the name, first input and output of each call of a layer that gives one tensor."""

    def hook_for(name: str) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
        def hook(_: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            if isinstance(output, Tensor):
                record(name, inputs[0], output)

        return hook

    handles = [module.register_forward_hook(hook_for(name)) for name, module in layers.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


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
    axes.imshow(((image - low) / (high - low).clamp(min=1e-12)).permute(1, 2, 0), cmap="gray", vmin=0, vmax=1)
    axes.set(xticks=[], yticks=[], title=title)
