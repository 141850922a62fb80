"""A meta-trained model to use: a folder of plain weights and a spec, that adapts to support images and answers queries.

    model = FewShotModel.load("folder")              # a folder, an MLflow run's id, or an MLflow model URI
    probabilities = model.probabilities(support_x, support_y, query_x)
    adapted = model.adapt(support_x, support_y)      # once; then adapted.probabilities(query_x) as often as you like

The folder holds `spec.json`, `images.json` (what the network was made for) and `weights.safetensors`; no pickle
anywhere.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from arelu_meta import activations, backbones, learners
from arelu_meta.console.flags import validated
from arelu_meta.data.inputs import Inputs
from arelu_meta.errors import InputError
from arelu_meta.kinds.few_shot.spec import FewShotSpec
from arelu_meta.learners.learner import Adapted, GradientLearner, Learner
from arelu_meta.seeding import global_stream

QUERIES_AT_ONCE = 512


class FewShotModel:
    """A meta-trained learner with the channel statistics it was trained on.

    Images are (N, C, H, W), channels first, of uint8 (0 to 255) or of floats in [0, 1]; they are normalised here.

    Args:
        spec: settings of the run that trained it.
        learner: the learner; its network may be on any device.
        channels: colour channels C of the images.
        image_size: height and width of the images.
        mean: mean of each channel of pixels in [0, 1]; empty: no normalisation.
        std: standard deviation of each channel.

    Example:
        >>> spec = FewShotSpec(task="tiny", data={"dataset": "digits"}, episode={"ways": 3})
        >>> learner = build_learner(spec, 1, (28, 28))
        >>> model = FewShotModel(spec, learner, channels=1, image_size=(28, 28), mean=(), std=())
        >>> support_x, support_y = torch.rand(6, 1, 28, 28), torch.tensor([0, 0, 1, 1, 2, 2])
        >>> model.probabilities(support_x, support_y, torch.rand(4, 1, 28, 28)).shape
        torch.Size([4, 3])

    """

    def __init__(
        self,
        spec: FewShotSpec,
        learner: Learner,
        *,
        channels: int,
        image_size: tuple[int, int],
        mean: tuple[float, ...],
        std: tuple[float, ...],
    ) -> None:
        self.spec, self.learner = spec, learner
        self.channels, self.image_size, self.mean, self.std = channels, image_size, mean, std

    @property
    def transductive(self) -> bool:
        """Whether the queries of one call see each other, so that an answer depends on what is asked with it."""
        return self.learner.transductive

    def adapt(
        self, support_x: Tensor, support_y: Tensor, *, steps: int | None = None, lr: float | None = None
    ) -> "AdaptedModel":
        """Adapt to the support once, for any number of queries.

        Args:
            support_x: support images, (N, C, H, W).
            support_y: their labels, 0 to ways - 1, (N,).
            steps: gradient steps instead of those of the training.
            lr: inner learning rate instead of that of the training.

        Returns:
            A model that answers queries without adapting again.

        Raises:
            InputError: images or labels do not fit, the support has more classes than the head, or the method does not
                adapt by gradient and `steps` or `lr` is given.

        """
        if support_y.dim() != 1 or len(support_y) != len(support_x) or not len(support_y):
            labels = tuple(support_y.shape)
            raise InputError(f"{len(support_x)} support images have labels {labels}; give one label each")
        present = [int(label) for label in support_y.unique()]
        ways = len(present)
        if present != list(range(ways)):
            raise InputError(f"support labels are {present}; number the classes 0 to {ways - 1}")
        if ways > self.spec.episode.ways and isinstance(self.learner, GradientLearner):
            raise InputError(
                f"the support has {ways} classes, but the network's head was trained for {self.spec.episode.ways}; "
                f"train with `ways` {ways}, or with `method` protonet, which takes any number"
            )
        support = self.prepare(support_x)
        self.learner.network.eval()
        adapted = self.learner.adapt(support, support_y.long().to(support.device), steps=steps, lr=lr)
        return AdaptedModel(self, adapted, ways)

    def probabilities(self, support_x: Tensor, support_y: Tensor, query_x: Tensor) -> Tensor:
        """Adapt to the support and answer the queries.

        Args:
            support_x: support images, (N, C, H, W).
            support_y: their labels, 0 to ways - 1, (N,).
            query_x: query images, (Q, C, H, W).

        Returns:
            Probabilities on the CPU, (Q, ways).

        """
        return self.adapt(support_x, support_y).probabilities(query_x)

    def prepare(self, images: Tensor) -> Tensor:
        """Check images, (N, C, H, W) of uint8 or of floats in [0, 1], and normalise them as in training."""
        expected = (self.channels, *self.image_size)
        if images.dim() != 4 or tuple(images.shape[1:]) != expected:
            wanted = ", ".join(str(size) for size in expected)
            raise InputError(f"images are {tuple(images.shape)}; the network takes (N, {wanted}), channels first")
        pixels = _unit_pixels(images).to(next(self.learner.network.parameters()).device)
        if not self.mean:
            return pixels
        mean, std = (pixels.new_tensor(values).view(self.channels, 1, 1) for values in (self.mean, self.std))
        return (pixels - mean) / std

    def save(self, folder: Path) -> None:
        """Write the model into a folder: `spec.json`, `images.json` and `weights.safetensors`, no pickle."""
        from arelu_meta.store import models  # brings MLflow: two seconds that using a model need not wait

        folder.mkdir(parents=True, exist_ok=True)
        (folder / "spec.json").write_text(json.dumps(self.spec.model_dump(mode="json"), indent=2) + "\n")
        images = {"channels": self.channels, "image_size": self.image_size, "mean": self.mean, "std": self.std}
        (folder / "images.json").write_text(json.dumps(images) + "\n")
        height, width = self.image_size
        inputs = Inputs(self.channels, height if height == width else 0, self.mean, self.std)
        models.save_weights(self.learner.state().state_dict(), folder / models.WEIGHTS_FILE, inputs)

    @classmethod
    def load(cls, source: str | Path) -> "FewShotModel":
        """Read a model.

        Args:
            source: a folder that `save` wrote, an MLflow run's id, or an MLflow model URI (`models:/...`, `runs:/...`).

        Returns:
            The model, its network on the CPU.

        Raises:
            InputError: there is nothing of that name, or it is no few-shot model.

        """
        from arelu_meta.store import models

        stored = models.open_model(source)
        folder = stored.folder
        missing = [name for name in models.FEW_SHOT_FILES if not (folder / name).is_file()]
        if missing:
            raise InputError(f"{stored.source} holds no few-shot model: {missing[0]} is missing; name another run")
        spec = validated(FewShotSpec, json.loads((folder / "spec.json").read_text()), str(folder / "spec.json"))
        images = json.loads((folder / "images.json").read_text())
        channels, image_size = images["channels"], tuple(images["image_size"])
        learner = build_learner(spec, channels, image_size)
        learner.state().load_state_dict(stored.state_dict())
        return cls(
            spec,
            learner,
            channels=channels,
            image_size=image_size,
            mean=tuple(images["mean"]),
            std=tuple(images["std"]),
        )


@dataclass(frozen=True, eq=False)
class AdaptedModel:
    """A model adapted to one support set; it answers without adapting again."""

    model: FewShotModel
    adapted: Adapted
    ways: int

    @torch.no_grad()
    def probabilities(self, query_x: Tensor) -> Tensor:
        """Answer query images, (Q, C, H, W), with probabilities on the CPU, (Q, ways)."""
        query = self.model.prepare(query_x)
        self.model.learner.network.eval()
        # Queries that see each other must stay together; the others go in chunks, so that memory stays bounded.
        chunks = [query] if self.model.transductive else query.split(QUERIES_AT_ONCE)
        logits = torch.cat([self.adapted.logits(chunk) for chunk in chunks])
        return logits[:, : self.ways].softmax(-1).cpu()


def _unit_pixels(images: Tensor) -> Tensor:
    """Give float32 pixels in [0, 1]; bytes are divided by 255, anything else must be in that range already."""
    if images.dtype == torch.uint8:
        return images.float() / 255
    if not images.is_floating_point():
        raise InputError(f"pixels are {images.dtype}; give uint8 (0 to 255) or floats in [0, 1]")
    if images.numel() and not bool(((images >= 0) & (images <= 1)).all()):  # false for NaN as well
        raise InputError(
            f"pixels run from {images.min():g} to {images.max():g}; give floats in [0, 1], or uint8: 0 to 255"
        )
    return images.float()


def build_learner(
    spec: FewShotSpec, channels: int, image_size: tuple[int, int], *, chunk: int = 0, device: torch.device | None = None
) -> Learner:
    """Build the spec's network, its initial weights the same for every activation, and the learner around it."""
    section, training = spec.network, spec.training
    activation = activations.factory(section.activation, **section.activation_options)
    backbones.check_options(section.backbone, section.backbone_options)
    norm = {} if section.norm is None else {"norm": section.norm}
    with global_stream(spec.seed, "weights"):
        network = backbones.build(
            section.backbone,
            activation=activation,
            channels=channels,
            image_size=image_size,
            classes=spec.episode.ways,
            **norm,
            **section.backbone_options,
        )
    return learners.build(
        training.method,
        network.to(device) if device else network,
        engine=training.engine,
        chunk=chunk,
        **{name: getattr(training, name) for name in learners.entry(training.method).settings},
    )


class _ServedModel:
    """What MLflow calls: a mapping of `support_x`, `support_y`, `query_x` in, probabilities out."""

    def __init__(self, model: FewShotModel) -> None:
        self.model = model

    def predict(self, inputs: Mapping[str, Any], params: Mapping[str, Any] | None = None) -> np.ndarray:
        """Adapt and answer."""
        del params
        support_x, query_x = (
            torch.as_tensor(np.asarray(inputs[name], np.float32)) for name in ("support_x", "query_x")
        )
        support_y = torch.as_tensor(np.asarray(inputs["support_y"], np.int64))
        return self.model.probabilities(support_x, support_y, query_x).numpy()


def _load_pyfunc(path: str) -> _ServedModel:
    """MLflow's entry: load the model from the folder it stored."""
    return _ServedModel(FewShotModel.load(path))
