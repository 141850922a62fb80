"""What images a network takes: channels, size and normalisation, as its weights' file says."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from arelu_meta.data.imageset import ImageSet

METADATA_KEY = "arelu_meta_inputs"  # in the header of our safetensors files


@dataclass(frozen=True)
class Inputs:
    """Channels, side in pixels (0: any), and channel statistics of pixels in [0, 1] (empty: unknown or none)."""

    channels: int
    image_size: int = 0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def metadata(self, class_names: tuple[str, ...] = ()) -> dict[str, str]:
        """Give what a safetensors header holds of it, with the classes in the order of the logits."""
        return {METADATA_KEY: json.dumps({**asdict(self), "class_names": class_names})}

    def __str__(self) -> str:
        side = f"{self.channels}x{self.image_size}x{self.image_size}"
        if not self.mean:
            return f"{side}, pixels in [0, 1]"
        return f"{side}, mean {_numbers(self.mean)}, deviation {_numbers(self.std)}"


def from_metadata(metadata: Mapping[str, str] | None) -> Inputs | None:
    """Read what a safetensors header says; None where it says nothing."""
    if not metadata or METADATA_KEY not in metadata:
        return None
    values = json.loads(metadata[METADATA_KEY])
    return Inputs(values["channels"], values["image_size"], tuple(values["mean"]), tuple(values["std"]))


def inputs_of(images: ImageSet) -> Inputs:
    """What a network that was trained on these images takes."""
    height, width = images.image_size
    return Inputs(images.channels, height if height == width else 0, images.mean, images.std)


def _numbers(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:.3g}" for value in values)
