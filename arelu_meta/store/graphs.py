"""Networks as traced graphs: written without a trace of the code that built them, read without running any."""

import os
import tempfile
from pathlib import Path

import torch
from mlflow.exceptions import MlflowException
from mlflow.models import Model
from torch import Tensor, nn
from torch.export import ExportedProgram

from arelu_meta.errors import InputError, first_line
from arelu_meta.store.connection import quiet

GRAPH_FILE = "model.pt2"  # MLflow's name for it
_ALLOW_PICKLE = "MLFLOW_ALLOW_PICKLE_DESERIALIZATION"


def trace(network: nn.Module, example: Tensor) -> ExportedProgram:
    """Trace a network in evaluation mode on some images, two at least; the graph takes any number of them."""
    return torch.export.export(network, (example,), dynamic_shapes=({0: torch.export.Dim.AUTO},))


def read_graph(graph: Path, source: str) -> ExportedProgram:
    """Read a traced graph; an archive with code in it is refused."""
    read_module(graph, source)
    return torch.export.load(graph)


def read_module(graph: Path, source: str) -> nn.Module:
    """Read a traced graph as a function of images, after MLflow looked at every record of the file.

    `torch.export.load` by itself would unpickle what the file holds.

    Raises:
        InputError: the archive holds code, or cannot be read.
    """
    with quiet(), tempfile.TemporaryDirectory() as folder:
        import mlflow.pytorch

        wrapper = Model()
        wrapper.add_flavor("pytorch", model_data=str(graph.parent.resolve()), pytorch_version=str(torch.__version__))
        wrapper.save(f"{folder}/MLmodel")
        before = os.environ.get(_ALLOW_PICKLE)
        os.environ[_ALLOW_PICKLE] = "false"
        try:
            module: nn.Module = mlflow.pytorch.load_model(folder)
        except MlflowException as error:
            raise InputError(f"{source} is refused: {first_line(error)}") from error
        finally:
            if before is None:
                del os.environ[_ALLOW_PICKLE]
            else:
                os.environ[_ALLOW_PICKLE] = before
    return module
