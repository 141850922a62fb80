"""The network of a meta-learning run, as a section of its spec. Nothing here imports torch."""

from functools import partial
from typing import Annotated

from pydantic import model_validator

from arelu_meta import activations, backbones
from arelu_meta.errors import InputError
from arelu_meta.kinds.finetune.spec import NO_WEIGHTS, OWN
from arelu_meta.kinds.sections import NetworkSection, outside_activation, registered
from arelu_meta.trust import is_target


class EpisodeNetworkSection(NetworkSection):
    """The network and its activation: one of ours, or one of others with its weights."""

    backbone: Annotated[
        str,
        registered(
            "backbone",
            partial(backbones.names, "classification"),
            outside=lambda name: is_target(name) or backbones.is_pretrained(name),
        ),
    ] = "mnist_conv"
    """network: a name, timm/NAME, torchvision/NAME, installed/NAME, arelu_meta/NAME, or package.module:Class"""
    activation: Annotated[
        str, registered("activation", lambda: [OWN, *activations.names()], outside=outside_activation)
    ] = "arelu"
    """activation; it replaces those of a network of others, which keeps its own unless one is named"""
    weights: str = NO_WEIGHTS
    """of a network of others: a .safetensors or .pth file, DEFAULT (published), an MLflow URI; none: untrained"""

    @property
    def is_pretrained(self) -> bool:
        """Whether the network is built as `finetune` and `adapt` build theirs."""
        return backbones.is_pretrained(self.backbone)

    @model_validator(mode="after")
    def _goes_together(self) -> "EpisodeNetworkSection":
        if not self.is_pretrained:
            if self.activation == OWN:
                raise InputError(f"activation 'own' is for networks of others; name one for {self.backbone!r}")
            if self.weights != NO_WEIGHTS:
                raise InputError(
                    f"`weights` {self.weights} are for networks of others; one of ours takes them as "
                    f"`backbone` arelu_meta/{self.backbone}"
                )
        elif self.norm is not None or self.init != "default":
            raise InputError(
                f"`norm` and `init` are for networks of ours; leave them out, as {self.backbone!r} has its own"
            )
        return self
