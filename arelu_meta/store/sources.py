"""Which MLflow store is in use, and what may name a trained network in it; neither torch nor MLflow is loaded for that.

So a misspelt run is told at once, and not after the seconds that loading takes.
"""

import os
import re
from pathlib import Path

from arelu_meta.errors import InputError, without_password

DEFAULT_URI = "sqlite:///mlflow.db"


def store_uri() -> str:
    """The address of the store in use."""
    return os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_URI


def store_exists() -> bool:
    """Whether there is a store: a SQLite file would be made by opening it."""
    uri = store_uri()
    return not uri.startswith("sqlite:///") or Path(uri.removeprefix("sqlite:///")).exists()


def check_store_exists() -> None:
    """Refuse to look for a run where there is no store yet: MLflow would make one, and leave it behind.

    Raises:
        InputError: there is no such SQLite file.
    """
    if not store_exists():
        uri = without_password(store_uri())
        raise InputError(
            f"there is no MLflow store {uri} here; go to the folder of the run, or set MLFLOW_TRACKING_URI"
        )


def is_run_id(name: str) -> bool:
    """Tell whether a name has the form of MLflow's run ids.

    >>> is_run_id("0123456789abcdef0123456789abcdef"), is_run_id("deadbeef")
    (True, False)
    """
    return re.fullmatch("[0-9a-f]{32}", name) is not None


def check_source(name: str) -> None:
    """Refuse what can name no trained network.

    Raises:
        InputError: it is no folder that is there, no MLflow URI and no id of a run.
    """
    if not name or not (is_run_id(name) or ":/" in name or Path(name).is_dir()):
        raise InputError(
            f"no folder, MLflow run or model URI: {name!r}; check the spelling (run ids have 32 characters)"
        )


def check_given(name: str) -> None:
    """Refuse what a command was given as a trained network, before it loads torch and MLflow to look for it.

    Raises:
        InputError: it can name none, or it names one of a store that is not there.
    """
    check_source(name)
    registered = name.startswith("models:/") and not os.environ.get("MLFLOW_REGISTRY_URI")
    if (is_run_id(name) and not Path(name).is_dir()) or name.startswith("runs:/") or registered:
        check_store_exists()
