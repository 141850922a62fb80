"""A trained network as the store has it: a traced graph, its weights, and what images it takes."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from torch.export import ExportedProgram

from arelu_meta.data.inputs import METADATA_KEY
from arelu_meta.errors import InputError, first_line
from arelu_meta.store import tracking

NO_PICKLE = "MLFLOW_ALLOW_PICKLE_DESERIALIZATION"


@dataclass(frozen=True, eq=False)
class StoredNetwork:
    """The graph of a run's network, the file of its weights, and the inputs that file declares."""

    program: ExportedProgram
    weights: Path
    inputs: dict[str, object]
    source: str
    """Where it was fetched from."""


def load_stored(source: str) -> StoredNetwork:
    """Fetch the network of a run (by its id) or of an MLflow model URI; an archive with code in it is refused."""
    uri = source if ":/" in source else f"runs:/{source}/model"
    folder = tracking.download_model(uri)
    graph, weights = folder / "data" / "model.pt2", sorted(folder.rglob(tracking.WEIGHTS_FILE))
    if not graph.is_file() or len(weights) != 1:
        raise InputError(f"{uri} holds no network of classify, finetune or segment; name a run of one of these")
    _check_plain(folder, uri)
    with safe_open(weights[0], "pt") as file:
        inputs = json.loads((file.metadata() or {}).get(METADATA_KEY, "{}"))
    return StoredNetwork(torch.export.load(graph), weights[0], inputs, uri)


def _check_plain(folder: Path, uri: str) -> None:
    """Let MLflow look at every record of the archive: torch.export.load would unpickle what it holds."""
    with tracking.quiet():
        import mlflow.pytorch

        before = os.environ.get(NO_PICKLE)
        os.environ[NO_PICKLE] = "false"
        try:
            mlflow.pytorch.load_model(str(folder))
        except mlflow.exceptions.MlflowException as error:
            raise InputError(f"{uri} is refused: {first_line(error)}") from error
        finally:
            if before is None:
                del os.environ[NO_PICKLE]
            else:
                os.environ[NO_PICKLE] = before
