"""Which activation function lets a network adapt fastest, and is the difference real?

The names below are what a notebook starts from; each is loaded when it is first used, so that importing the package
loads neither torch nor mlflow.

    import arelu_meta

    report = arelu_meta.swap(network, to="arelu")           # any network, another activation, in place
    result = arelu_meta.run(arelu_meta.ClassifySpec(...))   # train, test, track in MLflow
    answers = arelu_meta.load_model("RUN_ID").predict("photos/")  # a stored classifier, on image files
    table = arelu_meta.results("maml_digits")               # the finished runs of a comparison, as a DataFrame
    print(arelu_meta.judge("my experiment", arm="param:lr", metric="val/acc"))  # anyone's runs: is the difference real?
"""

import importlib
import os
import sys
from types import ModuleType
from typing import Any

__version__ = "0.2.0"

# MLflow reads these when it is first imported, wherever that is.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # a research tool sends nothing home
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")  # a model here is a few small files

_MODULES = {
    "AReLU": "activations.arelu",
    "AdaptSpec": "kinds.adapt.spec",
    "ClassifySpec": "kinds.classify.spec",
    "Episode": "data.episodes",
    "EpisodeSampler": "data.episodes",
    "Execution": "kinds.execution",
    "FewShotClassifier": "estimators",
    "FewShotSpec": "kinds.few_shot.spec",
    "FineTuneClassifier": "estimators",
    "FineTuneSpec": "kinds.finetune.spec",
    "ImageSet": "data.imageset",
    "InputError": "errors",
    "RunError": "errors",
    "SegmentSpec": "kinds.segment.spec",
    "TransferSpec": "kinds.transfer.spec",
    "curves": "comparison.collect",
    "judge": "comparison.judging",
    "load": "data",
    "load_model": "store.predicting",
    "restore": "surgery",
    "results": "comparison.collect",
    "run": "kinds",
    "swap": "surgery",
}
__all__ = list(_MODULES)


class _Package(ModuleType):
    """A package whose public names are not covered by modules of the same name: `judge` is a command and a function."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _MODULES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    if name not in _MODULES:
        raise AttributeError(f"module 'arelu_meta' has no attribute {name!r}")
    return getattr(importlib.import_module(f"arelu_meta.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    """List public names that are not loaded yet, for completion in notebooks."""
    return sorted([*globals(), *__all__])
