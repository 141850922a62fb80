"""What the tests of classification, transfer, fine-tuning and segmentation runs share."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from mlflow import MlflowClient
from torch import nn

from arelu_meta.console import progress
from arelu_meta.kinds.classify.spec import ClassifySpec
from arelu_meta.kinds.finetune.spec import FineTuneSpec
from arelu_meta.kinds.segment.spec import SegmentSpec
from arelu_meta.kinds.transfer.spec import TransferSpec
from arelu_meta.store.tracker import Tracker
from tests.tiny_images import DIGITS, DISCS, NEGATIVE
from tests.tiny_networks import TINY

CLASSIFY: dict[str, Any] = {
    "task": "tiny",
    "data": {"dataset": DIGITS},
    "training": {"lr": 0.02, "batch_size": 32, "epochs": 3},
}
TRANSFER: dict[str, Any] = {
    "task": "tiny",
    "domains": {"source": DIGITS, "target": NEGATIVE},
    "pretraining": {"pretrain_epochs": 2, "pretrain_lr": 0.02},
    "training": {"lr": 0.01, "batch_size": 32, "epochs": 2},
    "report_epochs": [1, 2],
}
FINETUNE: dict[str, Any] = {
    "task": "tiny",
    "data": {"dataset": NEGATIVE, "split": "auto"},
    "network": {"model": TINY, "activation": "arelu"},
    "training": {"lr": 0.02, "batch_size": 32, "epochs": 3},
}
ADAPT: dict[str, Any] = {
    "task": "tiny",
    "data": {"dataset": NEGATIVE},
    "network": {"model": TINY, "weights": "none"},
}
SEGMENT: dict[str, Any] = {
    "task": "tiny",
    "data": {"dataset": DISCS, "split": "by_group"},
    "network": {"filters": 2},
    "training": {"optimizer": "adam", "lr": 0.01, "batch_size": 4, "epochs": 3, "augment": "affine"},
}


def classify_spec(**sections: Any) -> ClassifySpec:
    return ClassifySpec.model_validate(merged(CLASSIFY, sections))


def transfer_spec(**sections: Any) -> TransferSpec:
    return TransferSpec.model_validate(merged(TRANSFER, sections))


def finetune_spec(**sections: Any) -> FineTuneSpec:
    return FineTuneSpec.model_validate(merged(FINETUNE, sections))


def segment_spec(**sections: Any) -> SegmentSpec:
    return SegmentSpec.model_validate(merged(SEGMENT, sections))


def merged(values: dict[str, Any], sections: dict[str, Any]) -> dict[str, Any]:
    both = {name: {**values.get(name, {}), **given} for name, given in sections.items() if isinstance(given, dict)}
    return {**values, **sections, **both}


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the network out of the store: tracing it takes longer than all the rest of a tiny run."""
    monkeypatch.setattr(Tracker, "log_network", lambda *_: None)


def interrupted_after(advances: int) -> progress.Bar:
    """A bar that is interrupted when training has advanced so often, over all its stages."""
    done = 0

    @contextmanager
    def bar(_description: str, _total: int) -> Iterator[progress.Advance]:
        def advance(_note: str) -> None:
            nonlocal done
            done += 1
            if done == advances:
                raise KeyboardInterrupt

        yield advance

    return bar


def artifacts(uri: str, run_id: str) -> set[str]:
    client = MlflowClient(uri)
    found: set[str] = set()
    for entry in client.list_artifacts(run_id):
        inside = client.list_artifacts(run_id, entry.path) if entry.is_dir else [entry]
        found |= {file.path for file in inside}
    return found


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)
