"""What an adapted classifier was fitted to, stored beside it: for rejecting images and for adding classes."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arelu_meta.data.files import read_arrays
from arelu_meta.errors import InputError
from arelu_meta.reading import check_inside, parsing
from arelu_meta.store.models import StoredModel

SUPPORT_FILE = "support.npz"
AT_ONCE = 1024  # rows of a matrix of similarities


@dataclass(frozen=True, eq=False)
class StoredSupport:
    """Features (n, d) and labels (n,) of the images that a head was fitted to, its method and strength."""

    features: Tensor
    labels: Tensor
    method: str
    strength: str

    def write(self, folder: Path) -> None:
        """Write it into the folder of a model; no pickle."""
        arrays = {"features": self.features.cpu().numpy(), "labels": self.labels.cpu().numpy()}
        np.savez(folder / SUPPORT_FILE, method=np.array(self.method), strength=np.array(self.strength), **arrays)

    @torch.no_grad()
    def typicality(self, features: Tensor) -> Tensor:
        """How usual images are, (N,): the share of support images that are no nearer to the rest of the support.

        Nearness is the cosine to the nearest support image. New image and support image i are compared without i among
        the support, so that the two are treated alike; for images like the support a share of at most `rate` then comes
        up no more often than in `rate` of cases (cross-conformal prediction, Vovk 2015). The new image counts, so that
        it is never 0.

        Args:
            features: of new images, (N, d).

        >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
        >>> support = StoredSupport(features, torch.tensor([0, 0, 1]), "knn", "1")
        >>> support.typicality(torch.tensor([[1.0, 0.05], [-1.0, -1.0]])).tolist()
        [1.0, 0.25]
        """
        own, new = F.normalize(self.features, dim=1), F.normalize(features, dim=1)
        nearness = []  # of each support image to the others
        for numbers in torch.arange(len(own)).split(AT_ONCE):
            cosines = own[numbers] @ own.T
            cosines[torch.arange(len(numbers)), numbers] = -2.0
            nearness.append(cosines.amax(1))
        inside = torch.cat(nearness)
        cosines, numbers = (new @ own.T).topk(2, dim=1)
        best, second = cosines.unbind(1)
        nearest = inside[numbers[:, 0]]  # that image is compared as if it were not there
        counts = (inside <= best.unsqueeze(1)).sum(1) - (nearest <= best).int() + (nearest <= second).int()
        return (1 + counts) / (len(own) + 1)

    def check_rate(self, rate: float, source: str) -> None:
        """Refuse a rate of false alarms that so few images cannot tell."""
        if not 0 < rate < 1:
            raise InputError(f"`unknown` {rate:g} is no rate; give one between 0 and 1, such as 0.05")
        needed, count = math.ceil(1 / rate - 1e-9) - 1, len(self.features)
        if count < max(needed, 2):
            raise InputError(
                f"`unknown` {rate:g} needs {max(needed, 2)} labelled images at least, and {source} was fitted to "
                f"{count}; raise it to {math.ceil(1000 / (count + 1)) / 1000:g}, or fit a model to more images"
            )


def read_support(stored: StoredModel) -> StoredSupport:
    """Read what a stored model was fitted to.

    Raises:
        InputError: it was stored without, or what was stored is damaged.
    """
    files = sorted(stored.folder.rglob(SUPPORT_FILE))
    if len(files) != 1:
        raise InputError(
            f"{stored.source} was stored without features of what it was fitted to: `unknown` and `add` are for models "
            "of adapt by method prototypes, knn or linear; fit one of these"
        )
    check_inside(files[0], stored.folder)
    with parsing(files[0], remedy="fetch or store the model anew"):
        arrays = read_arrays(files[0])
        features, labels = (torch.from_numpy(arrays[name]) for name in ("features", "labels"))
        whole = features.dim() == 2 and features.is_floating_point() and not labels.is_floating_point()
        if not whole or labels.shape != features.shape[:1] or not len(labels):
            raise ValueError(f"features {tuple(features.shape)} of {features.dtype} and labels {tuple(labels.shape)}")
        return StoredSupport(features, labels, str(arrays["method"]), str(arrays["strength"]))


def with_features(stored: StoredModel) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Load the network of a model of adapt as a function that gives logits (N, classes) and features (N, d)."""
    network, given = stored.network(), list[Tensor]()
    network.get_submodule("head").register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))

    def answer(pixels: Tensor) -> tuple[Tensor, Tensor]:
        given.clear()
        return network(pixels), given[0]

    return answer


class ExtendedNetwork(nn.Module):
    """The network of a stored model of adapt with another head, so that it can be traced and stored again."""

    def __init__(self, stored: StoredModel, head: nn.Module) -> None:
        super().__init__()
        graph = stored.network()
        graph.head = nn.Identity()  # what is left gives features
        for module in graph.modules():
            for node in getattr(module, "graph", torch.fx.Graph()).nodes:
                node.meta.clear()  # tensors of the trace before, which cannot be copied
        self.features, self.head, self._graph = graph.features, head, (graph,)

    def forward(self, x: Tensor) -> Tensor:
        """Give logits (N, classes)."""
        return self.head(self._graph[0](x))
