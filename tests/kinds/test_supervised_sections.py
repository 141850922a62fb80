from typing import Any

import pytest
from pydantic import ValidationError

from arelu_meta import kinds
from arelu_meta.console.flags import validated
from arelu_meta.errors import InputError
from arelu_meta.kinds.classify.spec import ClassifySpec
from arelu_meta.kinds.segment.spec import SegmentSpec
from arelu_meta.kinds.supervised_sections import OptimizationSection
from arelu_meta.kinds.transfer.spec import TransferSpec
from tests.supervised_runs import classify_spec, segment_spec, transfer_spec


def test_kinds():
    assert {name: kinds.entry(name).spec_class for name in ("classify", "transfer", "segment")} == {
        "classify": ClassifySpec,
        "transfer": TransferSpec,
        "segment": SegmentSpec,
    }


BAD: list[dict[str, Any]] = [
    {"lr": 0},
    {"lr": float("inf")},
    {"momentum": 1.0},
    {"weight_decay": -0.1},
    {"activation_lr_multiplier": -1},
    {"layer_decay": 0},
    {"layer_decay": 1.5},
    {"batch_size": 0},
    {"accumulate": 0},
    {"epochs": 0},
    {"warmup_epochs": -1},
    {"freeze_epochs": -1},
    {"label_smoothing": 1.0},
    {"clip_norm": 0},
    {"ema": 1.0},
    {"patience": 0},
    {"schedule": "linear"},
    {"augment": "flip"},
    {"precision": "fp8"},
    {"optimizer": "lion"},
    {"learning_rate": 0.1},
]


@pytest.mark.parametrize("settings", BAD, ids=str)
def test_values_out_of_range_are_refused(settings: dict[str, Any]):
    with pytest.raises(ValidationError):
        OptimizationSection(**settings)


@pytest.mark.parametrize("settings", [{"momentum": 0}, {"ema": 0}, {"layer_decay": 1}, {"weight_decay": 0}], ids=str)
def test_ends_of_the_ranges_are_accepted(settings: dict[str, Any]):
    ((name, value),) = settings.items()
    assert getattr(OptimizationSection(**settings), name) == value


def test_words_for_nothing():
    section = OptimizationSection(clip_norm="none", patience="none")
    assert section.clip_norm is None
    assert section.patience is None


def test_step_needs_milestones():
    with pytest.raises(ValidationError, match="schedule 'step' needs milestones; give --milestones, such as 50 75"):
        OptimizationSection(schedule="step")
    assert OptimizationSection(schedule="step", milestones=[5, 7]).milestones == (5, 7)


@pytest.mark.parametrize("settings", [{"optimizer": "adam"}, {"momentum": 0}])
def test_nesterov_needs_momentum_of_sgd(settings: dict[str, Any]):
    with pytest.raises(ValidationError, match="Nesterov momentum is for optimizer 'sgd' with momentum above 0"):
        OptimizationSection(nesterov=True, **settings)
    assert OptimizationSection(nesterov=True).nesterov


@pytest.mark.parametrize("epochs", [[], [0, 1], [1, 3]])
def test_reported_epochs_must_be_reached(epochs: list[int]):
    with pytest.raises(ValidationError, match="must lie between 1 and epochs = 2"):
        transfer_spec(report_epochs=epochs)


def test_one_line_for_wrong_files():
    values = {"task": "mine", "data": {"dataset": "digits"}, "training": {"epoch": 3}}
    with pytest.raises(InputError, match=r"mine.toml \[training\]: unknown key 'epoch', did you mean 'epochs'\?"):
        validated(ClassifySpec, values, "mine.toml")
    with pytest.raises(InputError, match=r"mine.toml \[domains\]: target is missing"):
        validated(TransferSpec, {"task": "mine", "domains": {"source": "digits"}}, "mine.toml")


@pytest.mark.parametrize("make", [classify_spec, transfer_spec, segment_spec])
def test_every_change_is_another_identity(make):
    same = make()
    assert same.identity == make(summary="words").identity
    assert len({same.identity, make(seed=1).identity, make(training={"lr": 0.5}).identity}) == 3
    assert same.flat()["lr"] == same.training.lr


def test_a_segmenter_is_no_backbone_of_a_classifier():
    with pytest.raises(ValidationError, match="unknown backbone 'unet'"):
        classify_spec(network={"backbone": "unet"})
