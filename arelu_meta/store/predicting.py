"""Use a stored network: image files, folders of them or arrays in, classes and probabilities or masks out.

model = arelu_meta.load_model("RUN_ID")     # or a model URI, or a folder
model.predict(["a.jpg", "new_photos/"])     # a table: class, probability, runner_up, ...
"""

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from arelu_meta.console import progress
from arelu_meta.data.raw_images import prepare_images
from arelu_meta.errors import InputError
from arelu_meta.store.image_files import AT_ONCE, answer_files, check_any, find_images, printable
from arelu_meta.store.marking import SegmentationModel, marks_pixels, volume_note
from arelu_meta.store.models import FEW_SHOT_FILE, StoredModel, open_model
from arelu_meta.store.served import ServedNetwork, load_served
from arelu_meta.store.support import read_support, with_features

if TYPE_CHECKING:
    from pandas import DataFrame

UNKNOWN = "unknown"  # the answer to images unlike all that a model was fitted to


@dataclass(frozen=True, eq=False)
class Predictions:
    """Answers to image files.

    Attributes:
        files: the files that were answered, in order
        probabilities: of each class, (N, classes)
        class_names: their names
        broken: files that could not be read, and why
        seconds: time for reading and answering
        typicality: how usual each image is beside those that the model was fitted to, (N,), where that was asked for
        rate: at most this typicality, an answer is `unknown`
    """

    files: list[Path]
    probabilities: Tensor
    class_names: Sequence[str]
    broken: list[tuple[Path, str]] = field(default_factory=list)
    seconds: float = 0.0
    typicality: Tensor | None = None
    rate: float = 0.0

    def table(self) -> "DataFrame":
        """A row per file: file, class, probability, runner_up, runner_up_probability, and typicality if it is known.

        Where the class is unknown it has no probability, and the runner-up is the most probable one.
        """
        from pandas import DataFrame

        shares, numbers = self.probabilities.topk(2, dim=1)
        names = [[self.class_names[number] for number in row] for row in numbers.tolist()]
        table = DataFrame(
            {
                "file": [printable(file) for file in self.files],
                "class": [row[0] for row in names],
                "probability": shares[:, 0].numpy(),
                "runner_up": [row[1] for row in names],
                "runner_up_probability": shares[:, 1].numpy(),
            }
        )
        if self.typicality is not None:
            table["typicality"] = self.typicality.numpy()
            unknown = table["typicality"] <= self.rate
            table.loc[unknown, "runner_up"] = table.loc[unknown, "class"]
            table.loc[unknown, "runner_up_probability"] = table.loc[unknown, "probability"]
            table.loc[unknown, "class"], table.loc[unknown, "probability"] = UNKNOWN, math.nan
        return table

    def known_classes(self) -> list[str]:
        """The class of each file, where all of them lie in folders that are named after classes; else none."""
        names = [Path(os.path.abspath(file)).parent.name for file in self.files]
        return names if names and set(names) <= set(self.class_names) else []


class LoadedModel:
    """A stored classifier that answers images; `load_model` gives one.

    Args:
        source: what it was loaded from, for messages
        served: its network behind its preprocessing
        together: whether images of one call see each other (transductive), so that all are answered at once
        stored: its files, which `unknown` needs
    """

    def __init__(
        self, source: str, served: ServedNetwork, *, together: bool = False, stored: StoredModel | None = None
    ) -> None:
        self.source, self.served, self.together, self.stored = source, served, together, stored
        self.class_names = served.class_names
        """the classes, in the order of the probabilities"""

    def predict(self, images: Any, *, skip_broken: bool = False, unknown: float = 0.0) -> "DataFrame":
        """Answer images.

        Args:
            images: a file, a folder (with what is below it) or several of them; or images in any form that
                `prepare_images` takes, such as an array (N, H, W, C)
            skip_broken: leave files out that cannot be read; else they are an error, and nothing is answered
            unknown: answer `unknown` where an image is less like those that the model was fitted to than all but this
                share of them is; as often images of known classes are rejected by mistake. 0: never. For models of
                adapt by method prototypes, knn or linear.

        Returns:
            A row per image: class, probability, runner_up, runner_up_probability; of files their path in `file`; with
            `unknown` also typicality.
        """
        if isinstance(images, str | Path):
            images = [images]
        if isinstance(images, list | tuple) and images and all(isinstance(each, str | Path) for each in images):
            return self.predict_files(find_images(images), skip_broken=skip_broken, unknown=unknown).table()
        answers = (self._with_typicality(unknown) if unknown else self._probabilities)(
            prepare_images(images, self.served.inputs)
        )
        numbered = [Path(str(i)) for i in range(len(answers))]
        return self._predictions(numbered, answers, unknown).table().drop(columns="file")

    def predict_files(
        self,
        files: Sequence[Path],
        *,
        skip_broken: bool = False,
        unknown: float = 0.0,
        bar: progress.Bar = progress.silent,
    ) -> Predictions:
        """Answer image files, some at a time; see `predict`. `bar` shows the progress."""
        start = time.monotonic()
        answer = self._with_typicality(unknown) if unknown else self._probabilities
        answered, answers, broken = answer_files(
            files, self.served.inputs, answer, skip_broken=skip_broken, together=self.together, bar=bar
        )
        found = self._predictions(answered, answers, unknown)
        return replace(found, broken=broken, seconds=time.monotonic() - start)

    def _predictions(self, files: list[Path], answers: Tensor, unknown: float) -> Predictions:
        """Put answers together; with `unknown` the last column is the typicality."""
        if not unknown:
            return Predictions(files, answers, self.class_names)
        return Predictions(files, answers[:, :-1], self.class_names, typicality=answers[:, -1], rate=unknown)

    def _with_typicality(self, rate: float) -> Callable[[Tensor], Tensor]:
        """A function that gives probabilities and, as a last column, how usual images are; (N, classes + 1)."""
        if self.stored is None:
            raise InputError(f"{self.source} is no model of adapt, which `unknown` is for; leave it out")
        support = read_support(self.stored)
        support.check_rate(rate, self.source)
        if UNKNOWN in self.class_names:
            raise InputError(f"{self.source} has a class {UNKNOWN!r}, which `unknown` would answer too; leave it out")
        network = with_features(self.stored)

        @torch.no_grad()
        def answer(pixels: Tensor) -> Tensor:
            parts = []
            for chunk in pixels.split(AT_ONCE):
                logits, features = network(chunk)
                parts.append(torch.cat([logits.softmax(1), support.typicality(features).unsqueeze(1)], 1))
            return torch.cat(parts)

        return answer

    @torch.no_grad()
    def _probabilities(self, pixels: Tensor) -> Tensor:
        """Probabilities of the classes, (N, classes)."""
        check_any(pixels)
        chunks = (pixels,) if self.together else pixels.split(AT_ONCE)
        return torch.cat([self.served.network(chunk) for chunk in chunks]).softmax(1)


def load_model(source: str | Path) -> LoadedModel | SegmentationModel:
    """Load a stored network, of an adapt, finetune, transfer, classify or segment run.

    Args:
        source: id of an MLflow run, MLflow URI (`runs:/ID/model`, `models:/NAME/1`), or a folder: of a stored model, or
            a run's own (`runs/TASK-...`)

    Returns:
        A model with `predict`; of a segment run a `SegmentationModel`.

    Raises:
        InputError: nothing of that name is there, or it needs labelled images to answer (a few-shot model).

    Example:
        >>> import arelu_meta
        >>> arelu_meta.load_model("RUN_ID").predict("photos/")  # doctest: +SKIP
    """
    stored = open_model(source)
    if (stored.folder / FEW_SHOT_FILE).is_file():
        raise InputError(
            f"{source} is a few-shot model, which adapts to labelled images before it answers; give them by `support`, "
            "a folder with a folder for each class (in Python: arelu_meta.FewShotClassifier)"
        )
    served = load_served(stored)
    if marks_pixels(served):
        return SegmentationModel(str(source), served, note=volume_note(stored))
    if len(served.class_names) < 2:
        raise InputError(f"{source} names {len(served.class_names)} classes, it does not classify; name another run")
    return LoadedModel(str(source), served, stored=stored)
