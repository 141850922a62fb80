"""Use a stored classifier: image files, folders of them or arrays in, classes and probabilities out.

model = arelu_meta.load_model("RUN_ID")     # or a model URI, or a folder
model.predict(["a.jpg", "new_photos/"])     # a table: class, probability, runner_up, ...
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from arelu_meta.data.files.image_folders import SUFFIXES
from arelu_meta.data.raw_images import prepare_images
from arelu_meta.errors import InputError
from arelu_meta.store.models import FEW_SHOT_FILE, open_model
from arelu_meta.store.served import ServedNetwork, load_served

if TYPE_CHECKING:
    from pandas import DataFrame

AT_ONCE = 64  # images


@dataclass(frozen=True, eq=False)
class Predictions:
    """Answers to image files.

    Attributes:
        files: the files that were answered, in order
        probabilities: of each class, (N, classes)
        class_names: their names
        broken: files that could not be read, and why
        seconds: time for reading and answering
    """

    files: list[Path]
    probabilities: Tensor
    class_names: Sequence[str]
    broken: list[tuple[Path, str]] = field(default_factory=list)
    seconds: float = 0.0

    def table(self) -> "DataFrame":
        """A row per file: file, class, probability, runner_up, runner_up_probability."""
        from pandas import DataFrame

        shares, numbers = self.probabilities.topk(2, dim=1)
        names = [[self.class_names[number] for number in row] for row in numbers.tolist()]
        return DataFrame(
            {
                "file": [str(file) for file in self.files],
                "class": [row[0] for row in names],
                "probability": shares[:, 0].numpy(),
                "runner_up": [row[1] for row in names],
                "runner_up_probability": shares[:, 1].numpy(),
            }
        )

    def known_classes(self) -> list[str]:
        """The class of each file, where all of them lie in folders that are named after classes; else none."""
        names = [file.resolve().parent.name for file in self.files]
        return names if names and set(names) <= set(self.class_names) else []


class LoadedModel:
    """A stored classifier that answers images; `load_model` gives one.

    Args:
        source: what it was loaded from, for messages
        served: its network behind its preprocessing
    """

    def __init__(self, source: str, served: ServedNetwork) -> None:
        self.source, self.served = source, served
        self.class_names = served.class_names
        """the classes, in the order of the probabilities"""

    def predict(self, images: Any, *, skip_broken: bool = False) -> "DataFrame":
        """Answer images.

        Args:
            images: a file, a folder (with what is below it) or several of them; or images in any form that
                `prepare_images` takes, such as an array (N, H, W, C)
            skip_broken: leave files out that cannot be read; else they are an error, and nothing is answered

        Returns:
            A row per image: class, probability, runner_up, runner_up_probability; of files their path in `file`.
        """
        if isinstance(images, str | Path):
            images = [images]
        if isinstance(images, list | tuple) and images and all(isinstance(each, str | Path) for each in images):
            return self.predict_files(find_images(images), skip_broken=skip_broken).table()
        probabilities = self._probabilities(prepare_images(images, self.served.inputs))
        numbered = Predictions([Path(str(i)) for i in range(len(probabilities))], probabilities, self.class_names)
        return numbered.table().drop(columns="file")

    def predict_files(self, files: Sequence[Path], *, skip_broken: bool = False) -> Predictions:
        """Answer image files, some at a time; see `predict`."""
        start, answered, broken = time.monotonic(), list[Path](), list[tuple[Path, str]]()
        parts: list[Tensor] = []
        for first in range(0, len(files), AT_ONCE):
            pixels = []
            for file in files[first : first + AT_ONCE]:
                try:
                    pixels.append(prepare_images([file], self.served.inputs))
                    answered.append(file)
                except InputError as error:
                    if not skip_broken:
                        raise InputError(f"{error}; or leave such files out by `skip_broken`") from error
                    broken.append((file, str(error)))
            if pixels:
                parts.append(self._probabilities(torch.cat(pixels)))
        if not parts:
            raise InputError(f"none of {len(files)} files is a readable image; {broken[0][1]}")
        return Predictions(answered, torch.cat(parts), self.class_names, broken, time.monotonic() - start)

    @torch.no_grad()
    def _probabilities(self, pixels: Tensor) -> Tensor:
        """Probabilities of the classes, (N, classes)."""
        outputs = torch.cat([self.served.network(chunk) for chunk in pixels.split(AT_ONCE)])
        if outputs.dim() != 2:
            raise InputError(f"{self.source} marks pixels (a segment run), it does not classify; name another run")
        return outputs.softmax(1)


def load_model(source: str | Path) -> LoadedModel:
    """Load a stored classifier, of an adapt, finetune, transfer or classify run.

    Args:
        source: id of an MLflow run, MLflow URI (`runs:/ID/model`, `models:/NAME/1`), or a folder: of a stored model, or
            a run's own (`runs/TASK-...`)

    Returns:
        A model with `predict`.

    Raises:
        InputError: nothing of that name is there, or it is no classifier.

    Example:
        >>> import arelu_meta
        >>> arelu_meta.load_model("RUN_ID").predict("photos/")  # doctest: +SKIP
    """
    stored = open_model(source)
    if (stored.folder / FEW_SHOT_FILE).is_file():
        raise InputError(
            f"{source} is a few-shot model, which needs labelled images beside those to answer: "
            "arelu_meta.FewShotClassifier takes both, or fit a classifier by python -m arelu_meta.adapt"
        )
    served = load_served(stored)
    if len(served.class_names) < 2:
        raise InputError(f"{source} names {len(served.class_names)} classes, it does not classify; name another run")
    return LoadedModel(str(source), served)


def find_images(places: Iterable[str | Path]) -> list[Path]:
    """List image files: those named, and those in folders and what is below them, in the order of their names.

    Raises:
        InputError: a place that is not there, or a folder without images.
    """
    files: list[Path] = []
    for place in (Path(each).expanduser() for each in places):
        if place.is_dir():
            inside = sorted(file for file in place.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
            if not inside:
                raise InputError(f"{place} holds no images ({', '.join(sorted(SUFFIXES))}); name another folder")
            files += inside
        elif place.is_file():
            files.append(place)
        else:
            raise InputError(f"no file or folder {str(place)!r}; check the path")
    return files
