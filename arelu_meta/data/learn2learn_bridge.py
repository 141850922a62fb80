"""To and from learn2learn (Arnold et al., arXiv 2008.12284): our image sets as its, its tasks as our episodes.

It is an optional dependency: `pip install 'arelu-meta[learn2learn]'`, and only this file imports its data part.
"""

import contextlib
import io
import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from arelu_meta.data.episodes import Episode
from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import InputError

if TYPE_CHECKING:
    from learn2learn.data import MetaDataset


class ImageSetDataset(Dataset[tuple[Tensor, int]]):
    """An image set as a plain torch Dataset of (pixels, label), one image at a time."""

    def __init__(self, images: ImageSet) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images.pixels(torch.tensor(index)), int(self.images.labels[index])


def to_metadataset(images: ImageSet) -> "MetaDataset":
    """Give an image set as learn2learn's MetaDataset, for its TaskDataset and transforms.

    Its books of labels are handed over ready-made; left to itself it would read every image once to learn its label.
    """
    labels = images.labels.tolist()
    by_label: dict[int, list[int]] = {}
    for number, label in enumerate(labels):
        by_label.setdefault(label, []).append(number)
    return _learn2learn_data().MetaDataset(
        ImageSetDataset(images), labels_to_indices=by_label, indices_to_labels=dict(enumerate(labels))
    )


def taskset(images: ImageSet, *, ways: int, images_per_class: int) -> Any:
    """Give learn2learn's own endless stream of tasks over an image set: (data, labels), support and query in one."""
    learn2learn_data, dataset = _learn2learn_data(), to_metadataset(images)
    kinds = learn2learn_data.transforms
    steps = [
        kinds.NWays(dataset, ways),
        kinds.KShots(dataset, images_per_class),
        kinds.LoadData(dataset),
        kinds.RemapLabels(dataset),
        kinds.ConsecutiveLabels(dataset),
    ]
    return learn2learn_data.Taskset(dataset, task_transforms=steps, num_tasks=-1)


def episodes_from_taskset(taskset: Iterable[tuple[Tensor, Tensor]], shots: int, queries: int) -> Iterator[Episode]:
    """Turn the tasks of a learn2learn Taskset, (data, labels) each, into episodes with named halves.

    Of each class the first `shots` images are the support and the next `queries` the query, whatever order they came
    in; labels are numbered 0..ways-1. A taskset without a number of tasks never ends, and neither do these episodes.
    """
    for data, labels in taskset:
        yield _episode(data, labels, shots, queries)


def _episode(data: Tensor, labels: Tensor, shots: int, queries: int) -> Episode:
    names, labels, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    wanted = shots + queries
    if (counts != wanted).any():
        wrong = int((counts != wanted).nonzero()[0])
        raise InputError(
            f"class {int(names[wrong])} of a task has {int(counts[wrong])} images, but shots + queries = {wanted}; "
            f"use KShots(dataset, k={wanted})"
        )
    order = torch.argsort(labels, stable=True).view(len(names), wanted)  # image numbers, one class per row
    support, query = order[:, :shots].flatten(), order[:, shots:].flatten()
    return Episode(support_x=data[support], support_y=labels[support], query_x=data[query], query_y=labels[query])


def _learn2learn_data() -> Any:
    """Import learn2learn's data part without the banner of gym and the deprecations of what it stands on."""
    try:
        with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import learn2learn.data
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} is not installed; pip install 'arelu-meta[learn2learn]'") from error
    return learn2learn.data
