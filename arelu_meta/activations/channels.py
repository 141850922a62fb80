"""Activations with numbers for each channel, and how they come to know how many channels there are.

A factory of activations is called before the layer around it exists, so such an activation starts with one set of
numbers for all channels. `fit_channels` runs the network once on an example and gives each as many as it met;
`backbones.build` does so itself, and `swap` with `example`.
"""

from typing import Any

import torch
from torch import Generator, Tensor, nn

from arelu_meta.errors import InputError, first_line


class ChannelActivation(nn.Module):
    """An activation with numbers for each channel; what computes it is the subclass.

    Args:
        channels: channels of its input; 1: one set of numbers, for any number of channels
        channels_last: whether they are the last axis, as of tokens (N, tokens, C); else (N, C, ...)
    """

    def __init__(self, channels: int = 1, channels_last: bool = False) -> None:
        super().__init__()
        if channels < 1:
            raise InputError(f"channels must be at least 1, not {channels}")
        self.channels, self.channels_last = channels, channels_last

    def set_channels(self, channels: int, random: Generator) -> None:
        """Give every channel the numbers that all had; weights that mix channels are drawn from `random`."""
        del random
        self.channels = channels
        for name, parameter in list(self.named_parameters(recurse=False)):
            if parameter.dim() == 1:
                setattr(self, name, nn.Parameter(parameter.detach()[:1].expand(channels).clone()))

    def extra_repr(self) -> str:
        """Show the channels in the printed network."""
        return f"channels={self.channels}" + (", channels_last=True" if self.channels_last else "")


def spread(values: Tensor, x: Tensor, channels_last: bool) -> Tensor:
    """Shape numbers of the channels, (C,) or (N, C), so that they broadcast against x, in its type.

    >>> spread(torch.zeros(5, 3), torch.zeros(5, 3, 8, 8), False).shape
    torch.Size([5, 3, 1, 1])
    >>> spread(torch.zeros(5, 3), torch.zeros(5, 8, 8, 3), True).shape
    torch.Size([5, 1, 1, 3])
    """
    values = values.to(x.dtype)
    for _ in range(x.dim() - 2):
        if not channels_last:
            values = values.unsqueeze(-1)
        elif values.dim() > 1:
            values = values.unsqueeze(1)
    return values


def channel_means(x: Tensor, channels: int, channels_last: bool) -> Tensor:
    """Mean of each channel over all places of an image, (N, C); with `channels` 1 over all channels too, (N, 1).

    >>> channel_means(torch.tensor([[[1.0, 3.0], [5.0, 7.0]]]), 2, False)
    tensor([[2., 6.]])
    """
    if channels == 1:
        return x.flatten(1).mean(1, keepdim=True)
    if x.dim() == 2:
        return x
    return x.flatten(1, -2).mean(1) if channels_last else x.flatten(2).mean(2)


def unfitted(network: nn.Module) -> list[ChannelActivation]:
    """Activations that have one set of numbers for all channels."""
    return [module for module in network.modules() if isinstance(module, ChannelActivation) and module.channels == 1]


@torch.no_grad()
def fit_channels(network: nn.Module, x: Tensor) -> nn.Module:
    """Give the activations of a network numbers for each channel that reaches them, in place.

    They get new parameters: call it before an optimizer is made. Numbers of channels that are drawn come from the seed
    of torch's global random numbers, and leave these where they are.

    Args:
        network: any module; without such activations nothing is done
        x: an input that it takes, two images for example; its numbers do not matter

    Returns:
        The network.

    Raises:
        InputError: it does not take x, or calls one activation with several numbers of channels.

    >>> from arelu_meta import activations
    >>> network = nn.Sequential(nn.Conv2d(1, 8, 3), activations.build("acon_c"))
    >>> fit_channels(network, torch.zeros(2, 1, 5, 5))[1]
    ACONC(channels=8)
    """
    found = _channels_met(network, x) if unfitted(network) else {}
    random = Generator().manual_seed(torch.initial_seed())
    for module, shapes in found.items():
        if len(shapes) > 1:
            counts = " and ".join(str(count) for count, _ in sorted(shapes))
            raise InputError(f"one {type(module).__name__} is called with {counts} channels; give each call its own")
        for channels, channels_last in shapes:
            module.channels_last = channels_last
            if channels > 1:
                module.set_channels(channels, random)
    return network


def _channels_met(network: nn.Module, x: Tensor) -> dict[ChannelActivation, set[tuple[int, bool]]]:
    """Run the network once; give the numbers of channels that each activation met, and whether they were last."""
    activations = unfitted(network)
    met: dict[ChannelActivation, set[tuple[int, bool]]] = {module: set() for module in activations}
    last = [False]  # whether the layer that ran before has its channels last

    def after_layer(layer: nn.Module, *_: Any) -> None:
        last[0] = isinstance(layer, nn.Linear) or type(layer) is nn.LayerNorm  # timm's subclass has them first

    def before_activation(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        channels_last = last[0] and inputs[0].dim() > 2
        met[module].add((inputs[0].shape[-1 if channels_last else 1], channels_last))  # type: ignore[index]

    leaves = [module for module in network.modules() if not list(module.children()) and list(module.parameters())]
    layers = [module for module in leaves if not isinstance(module, ChannelActivation)]
    hooks = [layer.register_forward_hook(after_layer) for layer in layers]
    hooks += [module.register_forward_pre_hook(before_activation) for module in activations]
    training = {module: module.training for module in network.modules()}
    first = next(iter(network.parameters()), None)
    try:
        network.eval()(x if first is None else x.to(first.device, first.dtype))
    except Exception as error:  # code of anyone's may raise anything
        raise InputError(f"{type(network).__name__} does not take {tuple(x.shape)}: {first_line(error)}") from error
    finally:
        for hook in hooks:
            hook.remove()
        for module, before in training.items():
            module.training = before
    return met
