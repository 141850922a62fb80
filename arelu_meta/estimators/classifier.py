"""What our scikit-learn classifiers share: the interface, and the small network for rows of numbers without a model."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor, nn

from arelu_meta import activations
from arelu_meta.activations import Activation
from arelu_meta.activations.channels import fit_channels
from arelu_meta.backbones.conv_block import input_multiple
from arelu_meta.errors import DivergedError
from arelu_meta.seeding import global_stream


class ImageClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier of images with the parameter `model`, of rows of numbers where that is None."""

    model: Any
    random_state: int | np.random.RandomState | None
    classes_: NDArray[Any]

    @abstractmethod
    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """Give the probability of each class.

        Args:
            X: images, or rows where there is no model; as for `fit`

        Returns:
            Probabilities, (n, classes), in the order of `classes_`.
        """

    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """Give the most probable class of each row or image.

        Args:
            X: images, or rows where there is no model; as for `fit`

        Returns:
            Labels, (n,), of the kind that `fit` was given.
        """
        chosen = self.predict_proba(X).argmax(1)  # refuses before `fit`, when there is no `classes_`
        return self.classes_[chosen]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = self.model is not None
        return tags

    def _draw_seed(self) -> int:
        """Draw a seed; None draws from the system, because a fit leaves numpy's global generator alone."""
        given = self.random_state
        source = np.random.RandomState() if given is None else check_random_state(given)
        return int(source.randint(2**31 - 1))

    def _encode(self, y: NDArray[Any]) -> Tensor:
        """Set `classes_` and give the labels as 0..classes-1."""
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        return torch.from_numpy(numbers.astype(np.int64))


@dataclass(frozen=True, eq=False)
class AdaptedTabular:
    """A network adapted to one support set of rows, with the support's mean and scale of each column."""

    network: nn.Module
    mean: Tensor
    scale: Tensor

    @torch.no_grad()
    def probabilities(self, query_x: Tensor) -> Tensor:
        """Answer queries, (queries, columns), with probabilities, (queries, ways)."""
        return self.network((query_x - self.mean) / self.scale).softmax(-1)


def adapt_tabular(
    support_x: Tensor,
    support_y: Tensor,
    *,
    ways: int,
    activation: Activation = "arelu",
    hidden: int = 64,
    steps: int = 200,
    lr: float = 0.01,
    seed: int = 0,
) -> AdaptedTabular:
    """Standardise the columns, start from the seed, take full-batch steps of Adam on the cross-entropy of the support.

    Args:
        support_x: rows, (N, columns), float64; a constant column is centred and not scaled
        support_y: labels 0..ways-1, (N,)
        ways: number of classes
        activation: activation of the hidden layer
        hidden: its width
        steps: gradient steps
        lr: learning rate
        seed: the seed alone decides the start
    """
    deviation, mean = torch.std_mean(support_x, dim=0, correction=0)
    scale = torch.where(deviation > 0, deviation, torch.ones_like(deviation))
    rows = (support_x - mean) / scale
    with global_stream(seed, "weights"):
        act = activations.build(activation)
        first = nn.Linear(support_x.shape[1], hidden * input_multiple(act))
        network = fit_channels(nn.Sequential(first, act, nn.Linear(hidden, ways)), rows[:2])
    network.double().eval()  # random slopes (RReLU) at their mean, as in tests
    optimizer = torch.optim.Adam(network.parameters(), lr=lr)
    with torch.enable_grad():
        for step in range(steps):
            optimizer.zero_grad()
            loss = F.cross_entropy(network(rows), support_y)
            if not torch.isfinite(loss):
                raise DivergedError(f"the support loss is {loss.item()} at step {step}; lower lr ({lr:g})")
            loss.backward()
            optimizer.step()
    return AdaptedTabular(network.requires_grad_(False), mean, scale)
