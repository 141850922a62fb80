"""Use a stored segmentation network: image files in, the marked pixels of each out, at the size of the file."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image
from torch import Tensor

from arelu_meta.console import progress
from arelu_meta.data.inputs import Inputs
from arelu_meta.data.raw_images import prepare_images
from arelu_meta.data.squares import Resize, centre, scaled_size
from arelu_meta.errors import InputError
from arelu_meta.store.image_files import AT_ONCE, answer_files, check_any, find_images, printable
from arelu_meta.store.models import StoredModel
from arelu_meta.store.served import ServedNetwork

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, eq=False)
class Marked:
    """Marked pixels of image files.

    Attributes:
        files: the files that were answered, in order
        masks: what the network marked, at the size that it takes, (N, H, W) bool
        inputs: what images it takes
        broken: files that could not be read, and why
        seconds: time for reading and answering
    """

    files: list[Path]
    masks: Tensor
    inputs: Inputs
    broken: list[tuple[Path, str]] = field(default_factory=list)
    seconds: float = 0.0

    def table(self) -> "DataFrame":
        """A row per file: file, foreground (the share of marked pixels)."""
        from pandas import DataFrame

        shares = self.masks.flatten(1).double().mean(1).tolist()
        return DataFrame({"file": [printable(file) for file in self.files], "foreground": shares})

    def mask(self, number: int, size: tuple[int, int]) -> Image.Image:
        """Give the mask of a file as a picture of 0 and 255.

        Args:
            number: its place in `files`
            size: width and height of the file's image

        Returns:
            A grey picture of that size. Where the network was given the centre of the image, nothing is marked around.
        """
        mask = Image.fromarray(self.masks[number].numpy().astype("uint8") * 255)
        inputs, steps = self.inputs, []  # what was done with the image: a size, and how it was brought to a square
        if inputs.read_size and (mask.size != size or inputs.read_resize):
            steps.append((size, inputs.read_size, inputs.read_resize or "squash"))
            size = (inputs.read_size, inputs.read_size)
        if inputs.image_size:
            steps.append((size, inputs.image_size, inputs.resize))
        for before, side, resize in reversed(steps):
            mask = _unsquared(mask, before, side, resize)
        return mask if steps or mask.size == size else mask.resize(size, Image.Resampling.NEAREST)


def _unsquared(mask: Image.Image, size: tuple[int, int], side: int, resize: Resize) -> Image.Image:
    """Put the mask of a square to where it was in an image of that width and height, see `data.squares`."""
    height, width = scaled_size(size[1], size[0], side, resize)
    if (width, height) != mask.size:
        whole = Image.new("L", (width, height))
        whole.paste(mask, (centre(width, side, resize), centre(height, side, resize)))
        mask = whole
    return mask if mask.size == size else mask.resize(size, Image.Resampling.NEAREST)


class SegmentationModel:
    """A stored segmentation network that marks images; `load_model` gives one.

    Args:
        source: what it was loaded from, for messages
        served: its network behind its preprocessing
        note: what to know about the images that it was trained on
    """

    def __init__(self, source: str, served: ServedNetwork, *, note: str = "") -> None:
        self.source, self.served, self.note = source, served, note

    def predict(self, images: Any, *, skip_broken: bool = False) -> "DataFrame":
        """Mark images and say how much of each is marked.

        Args:
            images: a file, a folder (with what is below it) or several of them; or images in any form that
                `prepare_images` takes, such as an array (N, H, W, C)
            skip_broken: leave files out that cannot be read; else they are an error, and nothing is answered

        Returns:
            A row per image: foreground, the share of marked pixels; of files their path in `file`.
        """
        if isinstance(images, str | Path):
            images = [images]
        if isinstance(images, list | tuple) and images and all(isinstance(each, str | Path) for each in images):
            return self.mark_files(find_images(images), skip_broken=skip_broken).table()
        masks = self._marked(prepare_images(images, self.served.inputs))
        return Marked([Path()] * len(masks), masks, self.served.inputs).table().drop(columns="file")

    def mark_files(
        self, files: Sequence[Path], *, skip_broken: bool = False, bar: progress.Bar = progress.silent
    ) -> Marked:
        """Mark image files, some at a time; see `predict`. `bar` shows the progress."""
        start = time.monotonic()
        answered, masks, broken = answer_files(
            files, self.served.inputs, self._marked, skip_broken=skip_broken, bar=bar
        )
        return Marked(answered, masks, self.served.inputs, broken, time.monotonic() - start)

    @torch.no_grad()
    def _marked(self, pixels: Tensor) -> Tensor:
        """Pixels with a probability above one half, (N, H, W)."""
        check_any(pixels)
        logits = torch.cat([self.served.network(chunk) for chunk in pixels.split(AT_ONCE)])
        if logits.shape[1] != 1:
            raise InputError(f"{self.source} tells {logits.shape[1]} kinds of pixels apart; masks are of one kind")
        return logits[:, 0] > 0


@torch.no_grad()
def marks_pixels(served: ServedNetwork) -> bool:
    """Tell a segmentation network, which gives maps (N, 1, H, W), from a classifier."""
    height, width = (side or 64 for side in served.inputs.size)
    return served.network(torch.zeros(2, served.inputs.channels, height, width)).dim() == 4


def volume_note(stored: StoredModel) -> str:
    """Say what was done to the images of a run patient by patient, which single files do not get; else nothing."""
    try:
        volumes = stored.spec().get("volumes", {})
    except InputError:  # a copied folder of a run that is not in this store
        return ""
    done = [name for name in ("crop_volumes", "percentiles", "standardise_volumes") if volumes.get(name)]
    if not done:
        return ""
    return (
        f"{stored.source} was trained on slices prepared patient by patient ({', '.join(done)}); prepare these so too"
    )
