"""What our scikit-learn classifiers have in common: images with a model, rows of numbers without one."""

from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor


class ImageClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier with a parameter `model`; what it fits and asks is its own."""

    model: Any
    classes_: NDArray[Any]

    @abstractmethod
    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """Give the probability of each class, (n, len(classes_)), in the order of `classes_`."""

    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """Give the most probable class of each row or image."""
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(1)]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = self.model is not None
        return tags

    def _encode(self, y: NDArray[Any]) -> Tensor:
        """Set `classes_` and give the labels as 0..classes-1."""
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        return torch.from_numpy(numbers.astype(np.int64))


def drawn_seed(random_state: int | np.random.RandomState | None) -> int:
    """Draw a seed; None draws from the system, because a fit leaves numpy's global generator alone."""
    source = np.random.RandomState() if random_state is None else check_random_state(random_state)
    return int(source.randint(2**31 - 1))
