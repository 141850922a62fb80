"""Our image sets as learn2learn's (Arnold et al., arXiv 2008.12284), for its transforms and for comparisons with it.

It is an optional dependency: `pip install 'arelu-meta[learn2learn]'`, and only this file imports its data part.
"""

import contextlib
import io
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import InputError

if TYPE_CHECKING:
    from learn2learn.data import MetaDataset


class ImageSetDataset(Dataset[tuple[Tensor, int]]):
    """An image set as a plain torch Dataset of (pixels, label), one image at a time.

    Args:
        images: the set; image numbers stay the same.

    Example:
        >>> from arelu_meta import data
        >>> pixels, label = ImageSetDataset(data.load("digits"))[0]
        >>> pixels.shape, label
        (torch.Size([1, 28, 28]), 0)
    """

    def __init__(self, images: ImageSet) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images.pixels(torch.tensor(index)), int(self.images.labels[index])


def to_metadataset(images: ImageSet) -> "MetaDataset":
    """Convert an image set to learn2learn's MetaDataset.

    Args:
        images: the set. Its labels are handed over ready-made; left to itself, learn2learn would read every image once
            to learn its label.

    Returns:
        A `learn2learn.data.MetaDataset` of (pixels (C, H, W), label) for its Taskset and transforms.

    Raises:
        InputError: learn2learn is not installed.
    """
    labels = images.labels.tolist()
    by_label: dict[int, list[int]] = {}
    for number, label in enumerate(labels):
        by_label.setdefault(label, []).append(number)
    return _learn2learn_data().MetaDataset(
        ImageSetDataset(images), labels_to_indices=by_label, indices_to_labels=dict(enumerate(labels))
    )


def taskset(images: ImageSet, *, ways: int, images_per_class: int, num_tasks: int = -1) -> Any:
    """learn2learn's own stream of episodes over an image set.

    Args:
        images: the set to draw from.
        ways: classes per episode.
        images_per_class: shots + queries.
        num_tasks: episodes in a fixed pool, each described when it is first drawn; -1: ever new ones.

    Returns:
        A `learn2learn.data.Taskset` of (pixels (ways * images_per_class, C, H, W), labels), support and query in one.

    Raises:
        InputError: learn2learn is not installed.
    """
    learn2learn_data, dataset = _learn2learn_data(), to_metadataset(images)
    kinds = learn2learn_data.transforms
    steps = [
        kinds.NWays(dataset, ways),
        kinds.KShots(dataset, images_per_class),
        kinds.LoadData(dataset),
        kinds.RemapLabels(dataset),
        kinds.ConsecutiveLabels(dataset),
    ]
    return learn2learn_data.Taskset(dataset, task_transforms=steps, num_tasks=num_tasks)


def _learn2learn_data() -> Any:
    """Import learn2learn's data part without the banner of gym and the deprecations of what it stands on."""
    try:
        with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import learn2learn.data
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} is not installed; pip install 'arelu-meta[learn2learn]'") from error
    return learn2learn.data
