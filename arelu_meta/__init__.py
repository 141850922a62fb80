"""Which activation function lets a network adapt fastest, and is the difference real?

Importing the package loads neither torch nor mlflow; its parts do when they are used.
"""

import importlib
import os
from typing import Any

__version__ = "0.1.0"

# MLflow reads these when it is first imported, wherever that is.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # a research tool sends nothing home
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")  # a model here is a few small files


def __getattr__(name: str) -> Any:
    """`arelu_meta.results("maml_digits")`: the finished runs of a comparison as a table; `curves`: over their steps."""
    if name in ("results", "curves"):
        return getattr(importlib.import_module("arelu_meta.comparison.results"), name)
    raise AttributeError(f"module 'arelu_meta' has no attribute {name!r}")
