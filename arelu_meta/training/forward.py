"""Forward passes: their number format, their memory layout, and the output of a network for all images of a set."""

import copy
from typing import Literal

import torch
from torch import Tensor, nn

from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import DivergedError, RunError

Precision = Literal["fp32", "bf16", "fp16"]
LARGEST_BATCH = 1024  # images that are answered at once
TRAINED = 4  # times the batch size of the training: without gradients, feature maps are not kept


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """The number format of a forward pass."""
    dtype = torch.float16 if precision == "fp16" else torch.bfloat16
    return torch.autocast(device.type, dtype=dtype, enabled=precision != "fp32")


def evaluation_batch(device: torch.device, batch_size: int, *, most: int = LARGEST_BATCH) -> int:
    """Choose how many images are answered at once: on a GPU a few times as many as are trained on at once.

    >>> evaluation_batch(torch.device("cuda"), 32), evaluation_batch(torch.device("cpu"), 32)
    (128, 1024)
    """
    return most if device.type == "cpu" else min(most, TRAINED * batch_size)


@torch.no_grad()
def bears_channels_last(network: nn.Module, x: Tensor) -> bool:
    """Tell whether a network has convolutions and answers images with the channels of a pixel side by side in memory.

    >>> bears_channels_last(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten()), torch.zeros(2, 3, 8, 8))
    True
    """
    if not any(parameter.dim() == 4 for parameter in network.parameters()):
        return False
    try:
        laid_out = copy.deepcopy(network).eval().to(memory_format=torch.channels_last)
        laid_out(x.contiguous(memory_format=torch.channels_last))
    except (RuntimeError, TypeError):  # `view` of such maps fails, and not every network can be copied
        return False
    return True


@torch.inference_mode()
def predict(
    network: nn.Module, images: ImageSet, *, batch: int = LARGEST_BATCH, precision: Precision = "fp32"
) -> Tensor:
    """Give the output of the network for all images in order, on the CPU.

    Args:
        network: is set to evaluation mode.
        images: on the device of the network.
        batch: images at once; where they do not fit into memory, half as many from then on.
        precision: number format of the forward pass, as in training.

    Raises:
        DivergedError: an output is not finite.
        RunError: not even one image fits into memory.
    """
    network.eval()
    numbers, outputs, done = torch.arange(len(images), device=images.device), list[Tensor](), 0
    while done < len(images) or not outputs:
        try:
            with autocast(images.device, precision):
                answer = network(images.pixels(numbers[done : done + batch]))
            outputs.append(answer.float().cpu())
        except torch.OutOfMemoryError as error:
            answer = None  # what was reached is freed before the next attempt
            if batch == 1:
                raise RunError(f"not even one image fits into the memory of {images.device}") from error
        if answer is None:
            batch //= 2
            torch.cuda.empty_cache()
        else:
            done += batch
    output = torch.cat(outputs)
    if not output.isfinite().all():  # the last step of the training broke the network
        raise DivergedError("outputs of the network are not finite after training; lower `lr`, or set `clip_norm`")
    return output
