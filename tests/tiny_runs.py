"""Whole runs that take a second: the digits of scikit-learn, few episodes, few steps."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from mlflow import MlflowClient

from arelu_meta.console import progress
from arelu_meta.kinds.few_shot.spec import FewShotSpec

# MLflow's own queries use an option that SQLAlchemy is about to drop.
MLFLOW_WARNINGS = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")


def tiny_spec(**flags: object) -> FewShotSpec:
    """MAML for six iterations with a validation every other; `flags` replace settings, whatever their section."""
    sections = {
        "data": {"dataset": "digits"},
        "fit": {},
        "episode": {"ways": 2, "queries": 2, "test_queries": 3},
        "network": {"activation": "arelu"},
        "training": {"iterations": 6, "meta_batch": 3, "inner_steps": 1, "inner_lr": 0.05},
        "evaluation": {"test_episodes": 5, "validation_episodes": 4, "validate_every": 2, "task_pool": 7},
    }
    own = {}
    for name, value in flags.items():
        places = [key for key in sections if name in FewShotSpec.model_fields[key].annotation.model_fields]
        (sections[places[0]] if places else own)[name] = value
    return FewShotSpec(task="tiny", **own, **sections)


def interrupted_after(steps: int, error: type[BaseException] = KeyboardInterrupt) -> progress.Bar:
    """A bar that is interrupted when the training has advanced so often."""

    @contextmanager
    def bar(description: str, _total: int) -> Iterator[progress.Advance]:
        done = 0

        def advance(_note: str) -> None:
            nonlocal done
            done += 1
            if description == "meta-train" and done == steps:
                raise error

        yield advance

    return bar


def metric_history(uri: str, run_id: str) -> dict[str, list[tuple[int, float]]]:
    """Every value in the store: metric -> (step, value) in the order of steps."""
    client = MlflowClient(uri)
    keys = client.get_run(run_id).data.metrics
    histories = {key: client.get_metric_history(run_id, key) for key in keys}
    return {key: sorted((entry.step, entry.value) for entry in history) for key, history in histories.items()}
