"""Networks of others for episodes: built, given weights and a head for `ways` classes as `finetune` does it."""

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from arelu_meta.console import progress
from arelu_meta.data.files.image_cache import keep_decoded
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.splits import SUBSETS, Split
from arelu_meta.kinds.few_shot.network_section import EpisodeNetworkSection
from arelu_meta.kinds.few_shot.spec import EpisodeInputSection, FewShotSpec
from arelu_meta.kinds.finetune.spec import NO_WEIGHTS
from arelu_meta.kinds.images import load_split
from arelu_meta.kinds.sections import DataSection
from arelu_meta.pretrained.assembly import Assembled, assemble, fit_to_inputs
from arelu_meta.pretrained.networks import find_model, published_size
from arelu_meta.pretrained.weights import check_named_file

PIXELS: dict[str, dict[str, Any]] = {  # `normalise` of episodes in the words of `assemble`
    "standardise": {"normalise": "target"},
    "weights": {"normalise": "weights"},
    "unit": {"normalise": "none"},
    "none": {"mean": (0.0,), "std": (1 / 255,)},
}


def load_pretrained(
    spec: FewShotSpec,
    section: DataSection,
    *,
    root: str | None,
    train_on_validation: bool,
    bar: progress.Bar = progress.silent,
) -> tuple[Split, Assembled]:
    """Read and divide the images, put the network together, and bring the images to what it takes."""
    side = spec.fit.image_size or published_size(find_model(spec.network.backbone), spec.network.weights) or 224
    check_named_file(spec.network.weights)
    split = load_split(section, root=root, train_on_validation=train_on_validation, side=side, resize=spec.fit.resize)
    made = _assemble(spec.network, spec.episode.ways, split.train, spec.fit, seed=spec.seed)
    parts = {part: fit_to_inputs(getattr(split, part), made.inputs, resize=spec.fit.resize) for part in SUBSETS}
    parts = keep_decoded(parts, bar)
    if made.target_statistics:
        parts = {part: images.normalised_like(parts["train"]) for part, images in parts.items()}
    return replace(split, train=parts["train"], validation=parts["validation"], test=parts["test"]), made


def build_again(section: EpisodeNetworkSection, ways: int, channels: int, image_size: tuple[int, int]) -> nn.Module:
    """Build the network of a stored model, which brings its own weights: nothing is downloaded."""
    blank = torch.zeros(1, channels, *image_size, dtype=torch.uint8)
    images = ImageSet("blank", blank, torch.zeros(1, dtype=torch.int64), tuple(map(str, range(ways))))
    fit = EpisodeInputSection(channels=channels, image_size=image_size[0])
    return _assemble(section, ways, images, fit, weights=NO_WEIGHTS).network


def _assemble(
    section: EpisodeNetworkSection,
    ways: int,
    images: ImageSet,
    fit: EpisodeInputSection,
    *,
    weights: str | None = None,
    seed: int = 0,
) -> Assembled:
    return assemble(
        section.backbone,
        images=images,
        weights=section.weights if weights is None else weights,
        model_options=section.backbone_options,
        activation=section.activation,
        activation_options=section.activation_options,
        preserve=section.weights != NO_WEIGHTS,  # also where it is built again
        channels=fit.channels,
        image_size=fit.image_size,
        resize=fit.resize,
        classes=ways,
        seed=seed,
        **PIXELS[fit.normalise],
    )
