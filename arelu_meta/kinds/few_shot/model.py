"""A meta-trained model to use: it adapts to support images and answers queries, wherever it is loaded.

    model = FewShotModel.load("folder")              # a folder, an MLflow run's id, or an MLflow model URI
    probabilities = model.probabilities(support_x, support_y, query_x)
    adapted = model.adapt(support_x, support_y)      # once; then adapted.probabilities(query_x) as often as you like

The folder holds `few_shot.json` (how the network is built and adapts), `weights.safetensors` (with what images it takes
in the header), and for a network of one's own code its traced graph, `model.pt2`; no data, no pickle.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from arelu_meta import learners
from arelu_meta.data.inputs import Inputs, from_values
from arelu_meta.data.raw_images import prepare_images
from arelu_meta.errors import InputError
from arelu_meta.kinds.few_shot.settings import LearnerSettings
from arelu_meta.learners.gradient_learner import GradientLearner
from arelu_meta.learners.learner import Adapted, Learner
from arelu_meta.reading import parsing, read_json
from arelu_meta.trust import registered_only

if TYPE_CHECKING:
    from arelu_meta.kinds.few_shot.served import ServedFewShotModel
    from arelu_meta.store.models import StoredModel

QUERIES_AT_ONCE = 512


class FewShotModel:
    """A meta-trained learner behind its preprocessing.

    Images are raw: uint8 (0 to 255) or floats in [0, 1], (N, C, H, W) or (N, H, W, C), or image files' bytes, as
    `prepare_images` takes them; they are resized, converted and normalised as in training.

    Args:
        settings: what a prediction needs of the settings of its run.
        learner: the learner; its network may be on any device.
        inputs: what images the network takes.
        transductive: whether queries see each other; None: found out from the network.

    Example:
        >>> settings = LearnerSettings(3, inner_loop={"inner_lr": 0.1, "inner_steps": 2})
        >>> learner = settings.build_learner(settings.build_network(1, (28, 28)))
        >>> model = FewShotModel(settings, learner, Inputs(1, 28, mean=(0.3,), std=(0.4,)))
        >>> support_x, support_y = torch.rand(6, 1, 28, 28), torch.tensor([0, 0, 1, 1, 2, 2])
        >>> model.probabilities(support_x, support_y, torch.rand(4, 1, 28, 28)).shape
        torch.Size([4, 3])

    """

    def __init__(
        self, settings: LearnerSettings, learner: Learner, inputs: Inputs, *, transductive: bool | None = None
    ) -> None:
        self.settings, self.learner, self.inputs = settings, learner, inputs
        self.transductive = learner.transductive if transductive is None else transductive
        """whether the queries of one call see each other, so that an answer depends on what is asked with it"""
        self.graph = b""
        """the file of the traced network, where the model was loaded from one: a graph cannot be traced again"""

    def adapt(
        self, support_x: Any, support_y: Any, *, steps: int | None = None, lr: float | None = None
    ) -> "AdaptedModel":
        """Adapt to the support once, for any number of queries.

        Args:
            support_x: support images, in any form that `prepare_images` takes.
            support_y: their labels, 0 to ways - 1, (N,): a tensor, an array or a list; of a regression real numbers.
            steps: gradient steps instead of those of the training.
            lr: inner learning rate instead of that of the training.

        Returns:
            A model that answers queries without adapting again.

        Raises:
            InputError: images or labels do not fit, the support has more classes than the head, or the method does not
                adapt by gradient and `steps` or `lr` is given.

        """
        support = self.prepare(support_x, name="support images")
        try:
            labels = torch.as_tensor(support_y, dtype=torch.float32 if self.settings.regression else None)
        except (TypeError, ValueError, RuntimeError):
            raise InputError(f"support labels are {support_y!r:.80}; number the classes from 0") from None
        if labels.dim() != 1 or len(labels) != len(support) or not len(labels):
            shape = tuple(labels.shape)
            raise InputError(f"{len(support)} support images have labels {shape}; give one label each")
        if self.settings.regression:
            adapted = self.learner.adapt(support, labels.to(support.device).unsqueeze(1), steps=steps, lr=lr)
            return AdaptedModel(self, adapted, 1)
        present = labels.unique().tolist()
        ways = len(present)
        if present != list(range(ways)):
            raise InputError(f"support labels are {present}; number the classes 0 to {ways - 1}")
        if ways > self.settings.ways and isinstance(self.learner, GradientLearner):
            raise InputError(
                f"the support has {ways} classes, but the network's head was trained for {self.settings.ways}; "
                f"train with `ways` {ways}, or with `method` protonet, which takes any number"
            )
        self.learner.network.eval()
        adapted = self.learner.adapt(support, labels.long().to(support.device), steps=steps, lr=lr)
        return AdaptedModel(self, adapted, ways)

    def probabilities(self, support_x: Any, support_y: Any, query_x: Any) -> Tensor:
        """Adapt to the support and answer the queries.

        Args:
            support_x: support images, in any form that `prepare_images` takes.
            support_y: their labels, 0 to ways - 1, (N,): a tensor, an array or a list.
            query_x: query images, likewise.

        Returns:
            Probabilities on the CPU, (Q, ways).

        """
        return self.adapt(support_x, support_y).probabilities(query_x)

    def to(self, device: str | torch.device) -> "FewShotModel":
        """Move all that was learned to a device, such as `cuda`, where support and queries then go; gives itself."""
        self.learner.state().to(device)
        return self

    def prepare(self, images: Any, *, name: str = "images") -> Tensor:
        """Bring raw images to what the network takes, on its device; see `prepare_images`."""
        return prepare_images(images, self.inputs, name=name).to(next(self.learner.network.parameters()).device)

    def save(self, folder: str | Path) -> None:
        """Write the model into a folder that can go anywhere: no data, no pickle, and the graph of code of one's own.

        Args:
            folder: where it is written; made where it is missing. A method of one's own is not in it: it has to be
                importable wherever the model is loaded.
        """
        from arelu_meta.kinds.few_shot.traced import foreign_code, save_traced, settings_of_graph
        from arelu_meta.store import graphs, models  # brings MLflow: two seconds that using a model need not wait

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / graphs.GRAPH_FILE).unlink(missing_ok=True)  # of a model that was saved there before
        models.save_weights(self.learner.state().state_dict(), folder / models.WEIGHTS_FILE, self.inputs)
        settings, own = self.settings, foreign_code(self.settings, self.learner.network)
        values: dict[str, Any] = {"transductive": self.transductive}
        if own:
            reason, graph = "", folder / graphs.GRAPH_FILE
            if self.graph:
                graph.write_bytes(self.graph)
            else:
                reason = save_traced(self.learner, settings_of_graph(settings), self.inputs, graph)
            settings = settings if reason else settings_of_graph(settings)
            values |= {"own_code": own, "not_traced": reason}
        values["settings"] = settings.values()
        (folder / models.FEW_SHOT_FILE).write_text(json.dumps(values, indent=2) + "\n")

    @classmethod
    def load(cls, source: str | Path, *, trust: Iterable[str] = ()) -> "FewShotModel":
        """Read a model. It is data: nothing that it names is imported unless you say so.

        Args:
            source: a folder that `save` wrote, an MLflow run's id, or an MLflow model URI (`models:/...`, `runs:/...`).
            trust: packages or modules whose code it may name, as `package.module:Class`; the variable
                `ARELU_META_TRUST` names others, separated by commas.

        Returns:
            The model, its network on the CPU.

        Raises:
            InputError: there is nothing of that name, it is no few-shot model or a damaged one, its network is code of
                one's own that could not be traced and is not here or not trusted, or its method is.

        """
        from arelu_meta.store import models

        stored = models.open_model(source)
        with registered_only(stored.source, trust), parsing(stored.source, remedy="fetch or store the model anew"):
            return cls._of_stored(stored)

    @classmethod
    def _of_stored(cls, stored: "StoredModel") -> "FewShotModel":
        """Build the model of stored files."""
        from arelu_meta.store import graphs, models

        path, graph = stored.folder / models.FEW_SHOT_FILE, stored.folder / graphs.GRAPH_FILE
        if not path.is_file():
            return cls._load_earlier(stored)
        values = read_json(path)
        settings, inputs = LearnerSettings(**values["settings"]), stored.inputs or Inputs(0)
        try:
            learners.entry(settings.method)
        except InputError as error:
            raise InputError(
                f"{stored.source} needs method {settings.method!r}: methods of one's own are not stored with a model; "
                f"make it importable here: {error}"
            ) from error
        if graph.is_file():
            from arelu_meta.kinds.few_shot.traced import load_traced

            learner = load_traced(graph, settings, stored.state_dict(), stored.source)
        else:
            try:
                learner = settings.build_learner(settings.build_network(inputs.channels, inputs.size))
            except InputError as error:
                if not values.get("own_code"):
                    raise
                raise InputError(
                    f"{stored.source} needs {', '.join(values['own_code'])}, which could not be traced "
                    f"({values['not_traced']}); make it importable here: {error}"
                ) from error
            learner.load_state(stored.state_dict())
        model = cls(settings, learner, inputs, transductive=values["transductive"])
        model.graph = graph.read_bytes() if graph.is_file() else b""
        return model

    @classmethod
    def _load_earlier(cls, stored: "StoredModel") -> "FewShotModel":
        """Read a model of version 0.1: the whole spec, of which data and training do not matter, and `images.json`."""
        missing = [name for name in ("spec.json", "images.json") if not (stored.folder / name).is_file()]
        if missing:
            raise InputError(f"{stored.source} holds no few-shot model: {missing[0]} is missing; name another run")
        spec, images = (read_json(stored.folder / name) for name in ("spec.json", "images.json"))
        height, width = images["image_size"]
        square = height == width
        inputs = from_values(
            images | {"image_size": height if square else 0, "sides": [] if square else [height, width]}
        )
        settings = LearnerSettings.of_values(spec)
        learner = settings.build_learner(settings.build_network(inputs.channels, inputs.size))
        learner.load_state(stored.state_dict())
        return cls(settings, learner, inputs)


@dataclass(frozen=True, eq=False)
class AdaptedModel:
    """A model adapted to one support set; it answers without adapting again."""

    model: FewShotModel
    adapted: Adapted
    ways: int

    @torch.no_grad()
    def probabilities(self, query_x: Any) -> Tensor:
        """Answer query images, in any form that `prepare_images` takes, with probabilities on the CPU, (Q, ways)."""
        if self.model.settings.regression:
            raise InputError("this model answers with real numbers, not with classes; use `adapt(...).values(queries)`")
        return self._answers(query_x).softmax(-1)

    @torch.no_grad()
    def values(self, query_x: Any) -> Tensor:
        """Answer the queries of a regression with real numbers on the CPU, (Q,)."""
        if not self.model.settings.regression:
            raise InputError("this model answers with classes; use `adapt(...).probabilities(queries)`")
        return self._answers(query_x)[:, 0]

    def _answers(self, query_x: Any) -> Tensor:
        query = self.model.prepare(query_x, name="query images")
        # Queries that see each other must stay together; the others go in chunks, so that memory stays bounded.
        chunks = [query] if self.model.transductive else query.split(QUERIES_AT_ONCE)
        return torch.cat([self.logits(chunk) for chunk in chunks])

    @torch.no_grad()
    def logits(self, pixels: Tensor) -> Tensor:
        """Answer images that `FewShotModel.prepare` gave, (Q, C, H, W), with logits on the CPU, (Q, ways)."""
        self.model.learner.network.eval()
        device = next(self.model.learner.network.parameters()).device
        return self.adapted.logits(pixels.to(device))[:, : self.ways].cpu()


def _load_pyfunc(path: str) -> "ServedFewShotModel":
    """MLflow's entry: load the model from the folder it stored."""
    from arelu_meta.kinds.few_shot.served import ServedFewShotModel

    return ServedFewShotModel(FewShotModel.load(path))
