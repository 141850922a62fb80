import shutil
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from arelu_meta import activations, backbones
from arelu_meta.errors import InputError
from arelu_meta.kinds.supervised_sections import OptimizationSection
from arelu_meta.training.speedups import PLAIN, Speedups
from arelu_meta.training.supervised import SupervisedTrainer
from tests.tiny_images import digits
from tests.training.doubled import DoubleBatches


def trained(speedups: Speedups, **settings: Any) -> SupervisedTrainer:
    """One epoch of seven steps on real digits, in float64."""
    torch.manual_seed(0)
    network = backbones.build(
        "conv4",
        activation=activations.factory("arelu"),
        channels=1,
        image_size=(28, 28),
        classes=10,
        filters=4,
        norm="running",
    ).double()
    section = OptimizationSection(**{"batch_size": 32, "epochs": 1, "lr": 1e-3, **settings})
    batches = DoubleBatches(digits(), 32, torch.Generator().manual_seed(1))
    trainer = SupervisedTrainer(network, batches, section, F.cross_entropy, speedups=speedups)
    list(trainer.epochs())
    return trainer


def largest_difference(one: SupervisedTrainer, other: SupervisedTrainer) -> float:
    pairs = zip(one.network.state_dict().values(), other.network.state_dict().values(), strict=True)
    return max((a.double() - b.double()).abs().max().item() for a, b in pairs)


def test_channels_last_is_another_layout_and_the_same_result():
    plain, laid = trained(PLAIN), trained(Speedups(channels_last=True))
    weight = laid.network.blocks[1][0].weight
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert not plain.network.blocks[1][0].weight.is_contiguous(memory_format=torch.channels_last)
    assert 0 < largest_difference(plain, laid) < 1e-10


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_fused_updates_are_the_same_result(optimizer: str):
    plain, fused = (trained(Speedups(fused=fused), optimizer=optimizer) for fused in (False, True))
    assert fused.optimizer.defaults["fused"] is True
    assert not plain.optimizer.defaults["fused"]
    assert largest_difference(plain, fused) < 1e-6  # Adam divides a gradient of nothing but rounding by its own size


def test_fused_where_torch_has_no_kernel():
    with pytest.raises(InputError, match="torch has no fused optimizers for meta"):
        Speedups(fused=True).prepare(torch.nn.Linear(2, 2, device="meta"))


def test_compilation_needs_a_compiler(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(InputError, match=r"needs a C\+\+ compiler"):
        Speedups(compile=True).prepare(torch.nn.Linear(2, 2))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.filterwarnings("ignore")  # torch's compiler warns of itself
def test_compiled_is_the_same_result():
    plain, compiled = trained(PLAIN), trained(Speedups(compile=True))
    assert largest_difference(plain, compiled) < 1e-10
    assert compiled.state_dict()["network"].keys() == plain.state_dict()["network"].keys()
