"""What of a few-shot run's settings a prediction needs: the network, and how it adapts; nothing of data or training."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import nn

from arelu_meta import learners
from arelu_meta.console.flags import validated
from arelu_meta.data.imageset import ImageSet
from arelu_meta.kinds.few_shot.network_section import EpisodeNetworkSection
from arelu_meta.kinds.few_shot.spec import FewShotSpec
from arelu_meta.kinds.networks import build_network, start
from arelu_meta.learners.learner import Learner
from arelu_meta.seeding import global_stream


@dataclass(frozen=True)
class LearnerSettings:
    """A network and how it adapts to an episode.

    Args:
        ways: outputs of the network: classes of an episode, or the one target of a regression.
        network: settings of backbone and activation, as in a spec.
        method: method of meta-learning.
        engine: what computes its inner loop.
        inner_loop: settings of the inner loop that the method takes.

    Example:
        >>> spec = FewShotSpec(task="mine", data={"dataset": "digits"}, training={"method": "protonet"})
        >>> LearnerSettings.of(spec).inner_loop, LearnerSettings.of(spec).network["backbone"]
        ({}, 'mnist_conv')
    """

    ways: int
    network: Mapping[str, Any] = field(default_factory=dict)
    method: str = "maml"
    engine: str = "func"
    inner_loop: Mapping[str, Any] = field(default_factory=dict)

    @property
    def regression(self) -> bool:
        """Whether answers are real numbers, not classes."""
        return self.inner_loop.get("loss") == "mse"

    @classmethod
    def of(cls, spec: FewShotSpec) -> "LearnerSettings":
        """Take them from a spec."""
        return cls.of_values(spec.model_dump(mode="json"))

    @classmethod
    def of_values(cls, values: Mapping[str, Any]) -> "LearnerSettings":
        """Take them from the plain values of a spec, unchecked: its data need not exist here."""
        training = values["training"]
        names = learners.entry(training["method"]).settings
        inner_loop = {name: training[name] for name in names if name in training}  # a setting may be newer than values
        if training.get("loss", "cross_entropy") != "cross_entropy":  # which a method of one's own need not take
            inner_loop["loss"] = training["loss"]
        return cls(values["episode"]["ways"], values["network"], training["method"], training["engine"], inner_loop)

    def values(self) -> dict[str, Any]:
        """Give them as plain values, which make the same settings again."""
        return asdict(self)

    def build_network(self, channels: int, image_size: tuple[int, int], *, seed: int = 0) -> nn.Module:
        """Build the network, its initial weights the same for every activation; one of others without its weights."""
        section = validated(EpisodeNetworkSection, self.network, "network")
        if section.is_pretrained:
            from arelu_meta.kinds.few_shot.pretrained_network import build_again

            return build_again(section, self.ways, channels, image_size)
        return build_network(section, channels, image_size, self.ways, seed=seed)

    def build_learner(
        self, network: nn.Module, *, chunk: int = 0, episode_clip: float | None = None, seed: int = 0
    ) -> Learner:
        """Build the learner around a network; all but the network matter to training alone.

        What it adds to the network (`adapt` lora) starts the same for every activation.
        """
        bound = episode_clip if learners.entry(self.method).by_gradient else None
        with global_stream(seed, "adapters"):
            return learners.build(
                self.method, network, engine=self.engine, chunk=chunk, episode_clip=bound, **self.inner_loop
            )


def build_learner(
    spec: FewShotSpec,
    channels: int,
    image_size: tuple[int, int],
    *,
    network: nn.Module | None = None,
    images: ImageSet | None = None,
    chunk: int = 0,
    device: torch.device | None = None,
) -> Learner:
    """Build the learner around the spec's network, or around one that was put together before.

    The network's `init` goes by the images that it is to be trained on.
    """
    settings = LearnerSettings.of(spec)
    if network is None:
        network = settings.build_network(channels, image_size, seed=spec.seed)
    if images is not None:
        network = start(network, spec.network, images, seed=spec.seed)
    network = network.to(device) if device else network
    return settings.build_learner(network, chunk=chunk, episode_clip=spec.training.episode_clip, seed=spec.seed)
