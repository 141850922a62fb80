from typing import Any

import pytest
import torch
from torch import nn

from arelu_meta import activations, backbones
from arelu_meta.data.augment import shift
from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import DivergedError, InputError
from arelu_meta.training.losses import cross_entropy
from arelu_meta.training.stacked import ReplayedTrainer, StackedTrainer
from arelu_meta.training.supervised import SupervisedTrainer
from tests.training.doubled import DoubleBatches

SEEDS = (3, 5, 8)


def images(count: int = 22) -> ImageSet:
    draw = torch.Generator().manual_seed(2)
    pixels = torch.randint(256, (count, 1, 28, 28), generator=draw, dtype=torch.uint8)
    return ImageSet("noise", pixels, torch.randint(3, (count,), generator=draw), ("a", "b", "c"))


def trainer(seed: int, name: str = "mnist_conv", activation: str = "arelu", **settings: Any) -> SupervisedTrainer:
    torch.manual_seed(seed)
    network = backbones.build(
        name,
        activation=activations.factory(activation),
        channels=1,
        image_size=(28, 28),
        classes=3,
        **({"norm": "running", "filters": 4} if name == "conv4" else {}),
    ).double()
    batches = DoubleBatches(images(), 8, torch.Generator().manual_seed(seed), augment=shift)
    loss = cross_entropy(images(), label_smoothing=settings.pop("label_smoothing", 0.0))
    return SupervisedTrainer(network, batches, loss, **{"epochs": 2, "lr": 0.02, **settings})


SETTINGS = [
    {"momentum": 0.9},
    {"nesterov": True, "weight_decay": 0.01, "layer_decay": 0.5, "schedule": "cosine"},
    {"optimizer": "adam", "lr": 1e-3, "warmup_epochs": 1},
    {"optimizer": "adamw", "lr": 1e-3, "activation_lr_multiplier": 2.0, "label_smoothing": 0.1},
]


@pytest.mark.parametrize("name", ["mnist_conv", "conv4"])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_weights_are_those_of_separate_trainings(name: str, settings: dict[str, Any]):
    """In float64, after two epochs with augmentation: weights, and batch norm's running statistics, to 1e-10."""
    apart = [trainer(seed, name, **settings) for seed in SEEDS]
    figures = [list(one.train()) for one in apart]
    together = list(StackedTrainer([trainer(seed, name, **settings) for seed in SEEDS]).train())
    for place, one in enumerate(apart):
        epoch, weights = together[-1][place]
        wanted = one.network.state_dict()
        assert weights.keys() == wanted.keys()
        for key, value in wanted.items():
            # Adam divides a gradient of nothing but rounding (a bias before batch norm) by its own size.
            assert torch.allclose(weights[key], value, rtol=0, atol=1e-10 if "lr" not in settings else 1e-6), key
        assert epoch.loss == pytest.approx(figures[place][-1].loss, abs=1e-5)
        assert epoch.accuracy == pytest.approx(figures[place][-1].accuracy)
        assert epoch.step_losses == pytest.approx(figures[place][-1].step_losses, abs=1e-5)
        assert len(epoch.step_losses) == 3
    assert not torch.equal(together[-1][0][1]["head.weight"], together[-1][1][1]["head.weight"])


def test_replayed_epochs_have_the_weights_of_their_time():
    stacked = StackedTrainer([trainer(seed) for seed in SEEDS])
    passes = list(stacked.train())
    again = ReplayedTrainer(trainer(SEEDS[1]), [epochs[1] for epochs in passes])
    for number, epoch in enumerate(again.train()):
        wanted, weights = passes[number][1]
        assert epoch == wanted
        assert all(torch.equal(value, weights[key]) for key, value in again.network.state_dict().items())
    assert again.done == 2


@pytest.mark.parametrize(
    "settings",
    [
        {"accumulate": 2},
        {"clip_norm": 1.0},
        {"ema": 0.5},
        {"freeze_epochs": 1},
        {"precision": "bf16"},
    ],
    ids=str,
)
def test_what_cannot_be_stacked_is_refused(settings: dict[str, Any]):
    (name,) = settings
    with pytest.raises(InputError, match=f"`together` does not go with `{name}`"):
        StackedTrainer([trainer(seed, **settings) for seed in SEEDS])


def test_random_layers_are_refused():
    with pytest.raises(InputError, match="its own random numbers in RReLU"):
        StackedTrainer([trainer(seed, activation="rrelu") for seed in SEEDS])
    dropped = [trainer(seed) for seed in SEEDS]
    for one in dropped:
        one.network.block3.append(nn.Dropout())
    with pytest.raises(InputError, match="its own random numbers in Dropout"):
        StackedTrainer(dropped)


def test_a_loss_that_is_not_finite_names_the_network():
    broken = [trainer(seed) for seed in SEEDS]
    nn.init.constant_(broken[1].network.head.bias, torch.inf)
    with pytest.raises(DivergedError, match="in epoch 1, network 2; lower `lr`"):
        list(StackedTrainer(broken).train())


def test_a_checkpoint_of_a_replay_cannot_be_resumed():
    """Optimizer and order of batches are not those of that epoch; after the last one there is nothing to resume."""
    stacked = StackedTrainer([trainer(seed) for seed in SEEDS])
    again = ReplayedTrainer(trainer(SEEDS[1]), [epochs[1] for epochs in stacked.train()])
    first, *_, last = [(epoch.number, again.state_dict()) for epoch in again.train()]
    with pytest.raises(InputError, match="written with `together`, which cannot be resumed; drop `resume`"):
        trainer(SEEDS[1]).load_state_dict(first[1])
    trainer(SEEDS[1]).load_state_dict(last[1])
