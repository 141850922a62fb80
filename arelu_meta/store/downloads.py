"""What is fetched from the MLflow store or a registry: kept for the time of this process, then removed."""

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

import mlflow

from arelu_meta.errors import InputError, first_line, without_password
from arelu_meta.store.connection import quiet
from arelu_meta.store.sources import check_store_exists, store_uri


def download_model(uri: str) -> Path:
    """Fetch a stored model, or one file of it, and give its path, which is there while this process is.

    Raises:
        InputError: it cannot be fetched, there is no store, or the address has a password.
    """
    if (address := without_password(uri)) != uri:  # it is a setting of the run, which many may read
        raise InputError(
            f"{address} has a password, which would be recorded with the run; leave it out, and set "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        )
    if uri.startswith("runs:/"):
        check_store_exists()
    try:
        with quiet():
            place = tempfile.mkdtemp(dir=_downloads())
            return Path(mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path=place, tracking_uri=store_uri()))
    except Exception as error:  # of MLflow, of its stores' libraries, or that they are missing
        reason = f"cannot fetch {uri}: {first_line(error)}"
        raise InputError(
            f"{reason}; name a file or folder on this machine, a run id, or models:/NAME/VERSION"
        ) from error


@functools.cache
def _downloads() -> str:
    """The folder that takes what this process downloads; MLflow's own choice would stay in the temporary folder."""
    folder = tempfile.mkdtemp(prefix="arelu_meta-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
