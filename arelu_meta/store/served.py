"""Stored networks as MLflow serves them: raw images in, class names and probabilities out.

MLflow calls `_load_pyfunc` of the module that a model names, then `predict` of what it gives. The models declare no
input schema: MLflow would refuse a dtype or shape with a dump of the data before `predict` can say what to send.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import BAD_REQUEST
from torch import Tensor

from arelu_meta.data.inputs import Inputs
from arelu_meta.data.raw_images import prepare_images
from arelu_meta.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame

    from arelu_meta.store.models import StoredModel

AT_ONCE = 256  # images, so that memory stays bounded


class ServedInputError(InputError, MlflowException):
    """Wrong input, for us and for MLflow, whose scoring server shows its line; of others it shows a stack trace."""

    def __init__(self, line: str) -> None:
        self.line = line
        MlflowException.__init__(self, line, error_code=BAD_REQUEST)

    @property
    def message(self) -> str:
        """The line."""
        return self.line

    @message.setter
    def message(self, text: str) -> None:
        """Ignore the dump of all data that the scoring server puts before it."""


@contextmanager
def input_errors_as_mlflows() -> Iterator[None]:
    """Raise what is wrong input as MLflow's own kind of error."""
    try:
        yield
    except InputError as error:
        raise ServedInputError(str(error)) from error


class ServedNetwork:
    """A classifier or segmentation network behind its preprocessing."""

    def __init__(self, network: Callable[[Tensor], Tensor], inputs: Inputs, class_names: Sequence[str]) -> None:
        self.network, self.inputs, self.class_names = network, inputs, class_names

    @torch.no_grad()
    @input_errors_as_mlflows()
    def predict(self, images: Any, params: Mapping[str, Any] | None = None) -> "DataFrame | np.ndarray":
        """Answer raw images, in any form that `prepare_images` takes.

        Returns:
            Of a classifier `answer_table`; of a segmentation network the probability that a pixel is marked,
            (N, 1, H, W), at the size that the network takes.
        """
        del params
        pixels = prepare_images(images, self.inputs)
        outputs = torch.cat([self.network(chunk) for chunk in pixels.split(AT_ONCE)])
        if outputs.dim() == 4:
            return (outputs.sigmoid() if outputs.shape[1] == 1 else outputs.softmax(1)).numpy()
        return answer_table(outputs.softmax(1), self.class_names or range(outputs.shape[1]))


def answer_table(probabilities: Tensor, classes: Sequence[Any]) -> "DataFrame":
    """Give the answers to N images as a table.

    Args:
        probabilities: of each class, (N, classes).
        classes: their names, in the order of the columns.

    Returns:
        N rows: `class`, the most probable one; `probability`, how probable it is; `probability_NAME` for each class.

    Example:
        >>> answer_table(torch.tensor([[0.25, 0.75]]), ["cat", "dog"]).to_dict("records")
        [{'class': 'dog', 'probability': 0.75, 'probability_cat': 0.25, 'probability_dog': 0.75}]
    """
    from pandas import DataFrame

    best = probabilities.argmax(1).tolist()
    columns = {"class": [classes[number] for number in best], "probability": probabilities.amax(1).numpy()}
    shares = {f"probability_{name}": probabilities[:, number].numpy() for number, name in enumerate(classes)}
    return DataFrame(columns | shares)


def load_served(stored: "StoredModel") -> ServedNetwork:
    """Load the network of a stored model behind its preprocessing."""
    from arelu_meta.store.graphs import read_module

    if stored.inputs is None:
        raise InputError(f"{stored.source} does not say what images its network takes; store it again")
    return ServedNetwork(read_module(stored.graph(), stored.source), stored.inputs, stored.class_names)


def _load_pyfunc(path: str) -> ServedNetwork:
    """MLflow's entry: load the network from the folder it stored."""
    from arelu_meta.store.models import open_model

    return load_served(open_model(path))
