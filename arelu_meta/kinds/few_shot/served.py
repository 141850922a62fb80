"""A few-shot model as MLflow serves it: a support with its classes and queries in, classes and probabilities out."""

import numbers
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from arelu_meta.errors import InputError
from arelu_meta.kinds.few_shot.model import FewShotModel
from arelu_meta.store.served import answer_table, input_errors_as_mlflows

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pandas import DataFrame

PARTS = ("support_x", "support_y", "query_x")


class ServedFewShotModel:
    """What MLflow calls."""

    def __init__(self, model: FewShotModel) -> None:
        self.model = model

    @input_errors_as_mlflows()
    def predict(self, inputs: Mapping[str, Any], params: Mapping[str, Any] | None = None) -> "DataFrame":
        """Adapt to a support and answer queries.

        Args:
            inputs: `support_x` and `query_x`, images in any form that `prepare_images` takes, and `support_y`, the
                class of each support image: names or numbers.
            params: not used.

        Returns:
            `answer_table`, a row per query; the classes are the names or numbers of `support_y`.
        """
        del params
        if self.model.settings.regression:
            raise InputError("this model is of a regression; use FewShotModel.load(...).adapt(x, y).values(queries)")
        given = list(inputs) if isinstance(inputs, Mapping) else type(inputs).__name__
        if not isinstance(inputs, Mapping) or set(PARTS) - set(inputs):
            raise InputError(f"the input is {given}; give a mapping of support_x, support_y and query_x")
        labels, classes = numbered(inputs["support_y"])
        probabilities = self.model.probabilities(inputs["support_x"], labels, inputs["query_x"])
        return answer_table(probabilities, classes)


def numbered(given: Any) -> "tuple[NDArray[Any], list[Any]]":
    """Number the classes that labels name, in sorted order; names and numbers together would become names.

    >>> numbered(["owl", "cat", "owl"])
    (array([1, 0, 1]), ['cat', 'owl'])
    """
    try:
        labels, each = np.asarray(given), np.asarray(given, dtype=object).ravel().tolist()
    except ValueError:  # lists of several lengths
        labels, each = np.asarray(None), [None]
    named = all(isinstance(label, str | bytes) for label in each)
    if not named and not all(isinstance(label, numbers.Real) and label == label for label in each):
        raise InputError(f"support_y is {given!r:.80}; give one name each, or one number each")
    classes, found = np.unique(labels, return_inverse=True)
    return found, classes.tolist()
