"""Specs and the sections that several kinds of run share: frozen, strict, hashed. Nothing here imports torch.

A task file's sections are the sections here; a command's flags are the fields here. The hash of a spec is the run's
identity.
"""

import hashlib
import json
import os
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from arelu_meta import activations, backbones, data
from arelu_meta.console.flags import CheckedModel
from arelu_meta.reading import plain_name
from arelu_meta.registry import unknown_part
from arelu_meta.trust import is_target

Protocol = Literal["sound", "paper"]
Count = Annotated[int, Field(ge=1, le=10**15)]  # torch counts to 9.2e18, and adds to what it is given
Rate = Annotated[float, Field(gt=0, le=1e37, allow_inf_nan=False)]  # float32 ends at 3.4e38
Share = Annotated[float, Field(gt=0, lt=1)]
NonNegative = Annotated[float, Field(ge=0, le=1e37, allow_inf_nan=False)]
Option = bool | int | float | str
NONE_WORD = BeforeValidator(lambda value: None if value == "none" else value)
OptionalCount = Annotated[Count | None, NONE_WORD]
OptionalRate = Annotated[Rate | None, NONE_WORD]
SplitSeed = Annotated[int, Field(ge=0)]


def registered(kind: str, names: Callable[[], list[str]], *, outside: Callable[[str], bool]) -> AfterValidator:
    """Accept a registered name, or one of a place outside the package; what is there is not imported yet."""

    def check(name: str) -> str:
        if name not in names() and not outside(name):
            raise unknown_part(kind, name, names())
        return name

    return AfterValidator(check)


def outside_activation(name: str) -> bool:
    """Whether a name that is not registered is a place in a package, or an activation over a base: `elsa(gelu)`."""
    return is_target(name) or activations.is_composed(name)


def _dataset_name(name: str) -> str:
    """Accept a registered name, a folder that is here, and what has the form of a path or of a place in a package."""
    if name not in data.names() and not set(name) & set(":/\\.") and not os.path.isdir(name):
        raise data.unknown_set(name)
    return name


ActivationName = Annotated[str, registered("activation", activations.names, outside=outside_activation)]
BackboneName = Annotated[str, registered("backbone", partial(backbones.names, "classification"), outside=is_target)]
SegmentationBackboneName = Annotated[
    str, registered("backbone", partial(backbones.names, "segmentation"), outside=is_target)
]
DatasetName = Annotated[str, AfterValidator(_dataset_name)]


class Section(CheckedModel, BaseModel):
    """A group of settings that refuses unknown keys and cannot be changed."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class DataSection(Section):
    """Which images, and how they are divided."""

    dataset: DatasetName
    """image set: a name, or a folder, an .npz or package.module:function of your own"""
    dataset_options: dict[str, Option] = {}
    """options of the set's reader, as key=value"""
    split: Literal["by_image", "by_class", "by_group", "published", "omniglot_standard", "auto"] = "by_image"
    """what is held out: images, whole classes, groups, or as the publisher divides; auto: published, else by_image"""
    validation: Share = 0.2
    """share of each class's images (or of the groups) that selects the model"""
    test: Share = 0.2
    """share of each class's images (or of the groups) that is tested on"""
    validation_classes: Count = 1
    """split by_class: classes that select the model; in few-shot runs 1 stands for as many as ways"""
    test_classes: Count = 1
    """split by_class: classes that are tested on; in few-shot runs 1 stands for as many as ways"""
    split_seed: SplitSeed = 0
    """draws what is held out, and the validation and test episodes; the same for every run seed and every arm"""
    limit_train: OptionalCount = None
    """training images kept, drawn class by class; none: all"""
    limit_test: Annotated[int | None, Field(ge=2), NONE_WORD] = None
    """images kept to validate and as many to test, drawn class by class; none: all"""


class NetworkSection(Section):
    """The network and its activation."""

    backbone: BackboneName = "mnist_conv"
    """network, by name or package.module:Class"""
    backbone_options: dict[str, Option] = {}
    """options of the network, as key=value"""
    norm: Literal["batch", "batch_support", "running", "group", "none"] | None = None
    """normalisation of a network that has a choice: batch (transductive), batch_support, running, group, none"""
    activation: ActivationName = "arelu"
    """activation, by name or package.module:Class"""
    activation_options: dict[str, Option] = {}
    """options of the activation, as key=value"""
    init: backbones.Init = "default"
    """initial weights: default (the network's own), he, gain (matched to the activation), unit_variance (by images)"""


class ImageShapeSection(Section):
    """The shape that images are brought to before a network sees them."""

    channels: Annotated[int, Field(ge=0)] = 0
    """colour channels the images are turned into; 0: as they are"""
    image_size: Annotated[int, Field(ge=0)] = 0
    """side in pixels the images are brought to; 0: as they are"""
    resize: Literal["crop", "scale", "squash"] = "scale"
    """how: scale the shorter side and cut the centre out, squash both sides, or crop the centre without scaling"""


class InputSection(ImageShapeSection):
    """How images are made to fit a network that is trained from scratch."""

    normalise: bool = True
    """subtract the mean of each channel and divide by its deviation"""


LATER_SETTINGS = (  # of several kinds, as `left_out_at_default`
    *("data.split_seed", "domains.split_seed", "network.init"),
    *("training.crop_scale", "training.randaugment", "training.color_jitter", "training.random_erasing"),
    *("training.mixup", "training.cutmix"),
)


class Spec(Section):
    """What every kind of run has: where it comes from, and its seed."""

    left_out_at_default: ClassVar[frozenset[str]] = frozenset()
    """settings of a kind, as section.key, that came later: at their default they are no part of the identity"""

    task: Annotated[str, AfterValidator(partial(plain_name, "task"))]
    kind: str
    version: Count = 1
    summary: str = ""
    seed: Annotated[int, Field(ge=0)] = 0
    """seed of every random stream"""

    @property
    def identity(self) -> str:
        """SHA-256 of all settings: the same identity is the same run.

        Images, weights and code of one's own are named here, not read: when their content changes, so must their name.
        """
        content = self.model_dump(mode="json", exclude={"summary"})
        for name in (*LATER_SETTINGS, *self.left_out_at_default):
            section, _, key = name.partition(".")
            if key not in content.get(section, {}):
                continue
            default = type(getattr(self, section)).model_fields[key].get_default()
            if content[section][key] == (list(default) if isinstance(default, tuple) else default):
                del content[section][key]
                if not content[section]:  # a section that came later as a whole
                    del content[section]
        if content.get("evaluation", {}).get("protocol") == "paper":
            content["evaluation"]["trained_on"] = "all"  # runs that held images back were others
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def flat(self) -> dict[str, Any]:
        """All settings in one level, under the names of their flags."""
        values: dict[str, Any] = {}
        for name, value in self:
            values.update(dict(value) if isinstance(value, Section) else {name: value})
        return values

    def datasets(self) -> dict[str, dict[str, Any]]:
        """Name the image sets of a run, with the options of their readers."""
        section: DataSection = getattr(self, "data")  # noqa: B009  # declared by the kinds, in their own order
        return {section.dataset: section.dataset_options}

    def metrics(self) -> set[str]:
        """Name the metrics of a run that can be judged, drawn or chosen by."""
        raise NotImplementedError
