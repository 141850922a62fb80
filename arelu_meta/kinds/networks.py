"""The network that a spec names, built for an image set: for a run, and to see beforehand that it can be built."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from arelu_meta import activations, backbones
from arelu_meta.backbones.initialisation import initialise
from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import InputError, first_line
from arelu_meta.kinds.adapt.spec import AdaptSpec
from arelu_meta.kinds.classify.spec import ClassifySpec
from arelu_meta.kinds.few_shot.network_section import EpisodeNetworkSection
from arelu_meta.kinds.few_shot.spec import FewShotSpec
from arelu_meta.kinds.finetune.spec import OWN, FineTuneSpec, PretrainedSection
from arelu_meta.kinds.sections import NetworkSection
from arelu_meta.kinds.segment.spec import SegmentNetworkSection, SegmentSpec
from arelu_meta.kinds.transfer.spec import TransferSpec
from arelu_meta.seeding import forked_generators, global_stream

EXAMPLES = 256  # images whose variance `init = "unit_variance"` goes by


def build_network(
    section: NetworkSection, channels: int, image_size: tuple[int, int], classes: int, *, seed: int
) -> nn.Module:
    """Build a network that classifies images of a shape, its initial weights torch's, the same for every activation."""
    backbones.check_options(section.backbone, section.backbone_options)
    norm = {} if section.norm is None else {"norm": section.norm}
    with global_stream(seed, "weights"):
        return backbones.build(
            section.backbone,
            activation=activations.factory(section.activation, **section.activation_options),
            channels=channels,
            image_size=image_size,
            classes=classes,
            **norm,
            **section.backbone_options,
        )


def check_vectors(backbone: str, images: ImageSet) -> None:
    """Refuse vectors to networks of ours that take images."""
    if images.is_vectors and backbone in backbones.names() and backbone != "mlp":
        raise InputError(
            f"{images.name} holds vectors of {images.channels} features, and {backbone!r} takes images; "
            f"set `backbone` to mlp"
        )


def build_classifier(section: NetworkSection, images: ImageSet, *, seed: int) -> nn.Module:
    """Build a network for an image set."""
    check_vectors(section.backbone, images)
    network = build_network(section, images.channels, images.image_size, len(images.class_names), seed=seed)
    return start(network, section, images, seed=seed)


def start(
    network: nn.Module, section: NetworkSection | SegmentNetworkSection, images: ImageSet, *, seed: int
) -> nn.Module:
    """Give a network the initial weights that the section asks for, by the images it is to be trained on."""
    device = next((parameter.device for parameter in network.parameters()), torch.device("cpu"))
    if section.init == "default" or device.type == "meta":
        return network
    with global_stream(seed, "initialisation"):
        chosen = torch.randperm(len(images))[:EXAMPLES].to(images.device)
        activation = activations.build(section.activation, **section.activation_options)
        return initialise(network, section.init, activation=activation, images=images.pixels(chosen).to(device))


def build_segmenter(section: SegmentNetworkSection, images: ImageSet, *, seed: int) -> nn.Module:
    """Build a network that marks pixels of an image set, its initial weights the same for every activation."""
    with global_stream(seed, "weights"):
        network = backbones.build(
            section.backbone,
            activation=activations.factory(section.activation, **section.activation_options),
            channels=images.channels,
            image_size=images.image_size,
            classes=1,
            filters=section.filters,
        )
    return start(network, section, images, seed=seed)


def check_few_shot(spec: FewShotSpec, images: ImageSet) -> None:
    """Build the network and its learner, and answer two images of a set."""
    from arelu_meta.kinds.few_shot.settings import build_learner

    ways, classes = max(spec.episode.ways, spec.episode.train_ways or 0), len(images.class_names)
    if ways > classes:
        raise InputError(f"{images.name} has {classes} classes, but ways = {ways}; lower `ways`")
    if spec.network.is_pretrained:  # what images it takes is known with its weights alone
        check_pretrained(spec.network.backbone, spec.network, spec.network.backbone_options, images)
        return
    check_vectors(spec.network.backbone, images)
    learner = build_learner(spec, images.channels, images.image_size)
    check_logits(learner.network, images, (spec.episode.ways,), spec.network.backbone)


def check_classifier(spec: ClassifySpec | TransferSpec, images: ImageSet) -> None:
    """Build the network and classify two images of a set."""
    section = spec.network.model_copy(update={"init": "default"})  # others may need images that are not blank
    network = build_classifier(section, images, seed=spec.seed)
    check_logits(network, images, (len(images.class_names),), spec.network.backbone)


def check_segmenter(spec: SegmentSpec, images: ImageSet) -> None:
    """Build the network and mark two images of a set."""
    section = spec.network.model_copy(update={"init": "default"})
    network = build_segmenter(section, images, seed=spec.seed)
    check_logits(network, images, (1, *images.image_size), spec.network.backbone)


def check_finetuned(spec: FineTuneSpec, images: ImageSet) -> None:
    """Build the network and its activation; what images it takes is known with its weights alone."""
    check_pretrained(spec.network.model, spec.network, spec.network.model_options, images)


def check_pretrained(
    model: str,
    section: PretrainedSection | EpisodeNetworkSection,
    options: Mapping[str, Any],
    images: ImageSet,
) -> None:
    """Build a network of others, and the activation that it is to be given."""
    from arelu_meta.pretrained.networks import build_network, find_model

    if section.activation != OWN:
        activations.build(section.activation, **section.activation_options)
    build_network(find_model(model), options, images=images, state={})


def check_adapted(spec: AdaptSpec, images: ImageSet) -> None:
    """Build the network; what images it takes is known with its weights alone."""
    from arelu_meta.pretrained.networks import build_network, find_model

    build_network(find_model(spec.network.model), spec.network.model_options, images=images, state={})


@torch.no_grad()
def check_logits(network: nn.Module, images: ImageSet, shape: tuple[int, ...], backbone: str) -> None:
    """Refuse a network that does not take images of a set, or gives other logits; its buffers stay as they are.

    Args:
        network: the network.
        images: the set; two blank images of its shape are answered.
        shape: the logits of one image.
        backbone: what messages call the network.
    """
    device = next((parameter.device for parameter in network.parameters()), torch.device("cpu"))
    if device.type == "meta":
        return  # networks of ours, whose answers are tested
    x = torch.zeros(2, images.channels, *images.image_size, device=device)
    before = [(buffer, buffer.clone()) for buffer in network.buffers()]
    try:
        with forked_generators():
            logits = network(x)
    except Exception as error:  # whatever a network of one's own raises
        size = "x".join(map(str, x.shape[1:]))
        raise InputError(f"backbone {backbone!r} cannot take images of {size}: {first_line(error)}") from error
    for buffer, value in before:
        buffer.copy_(value)
    found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if found != (2, *shape):
        raise InputError(f"backbone {backbone!r} gives {found} for 2 images; it must give logits {(2, *shape)}")


def check_forward(network: nn.Module, example: Tensor) -> None:
    """Refuse a network whose forward pass changes its buffers: one episode would leak into the next."""
    before = {name: value.clone() for name, value in network.named_buffers()}
    network.train()
    with torch.no_grad(), forked_generators():
        network(example)
    changed = [n for n, value in network.named_buffers() if n not in before or not torch.equal(value, before[n])]
    allowed = {
        f"{n}.{b}" for n, m in network.named_modules() if isinstance(m, nn.BatchNorm2d) for b, _ in m.named_buffers()
    }
    offending = [name for name in changed if name not in allowed]
    if offending:
        raise InputError(
            f"the network's forward pass changes its buffer {offending[0]!r}, so one episode would leak into the next; "
            f"make it a function of its input and parameters"
        )
    network.load_state_dict(before, strict=False)
