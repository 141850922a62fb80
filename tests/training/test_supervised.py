import copy
import math
import shutil
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arelu_meta import activations, backbones
from arelu_meta.data.augment import shift
from arelu_meta.data.batches import Batches
from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import DivergedError, InputError
from arelu_meta.training.forward import predict
from arelu_meta.training.supervised import Epoch, SupervisedTrainer
from tests.tiny_images import digits
from tests.training.doubled import DoubleBatches


def images(count: int = 22) -> ImageSet:
    draw = torch.Generator().manual_seed(2)
    pixels = torch.randint(256, (count, 1, 4, 4), generator=draw, dtype=torch.uint8)
    labels = torch.randint(3, (count,), generator=draw)
    return ImageSet("noise", pixels, labels, ("a", "b", "c"))


class Net(nn.Module):
    def __init__(self, *, norm: bool = False) -> None:
        super().__init__()
        self.body = nn.Linear(16, 6)
        self.norm = nn.BatchNorm1d(6) if norm else nn.Identity()
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.body(x.flatten(1))).tanh())


def network(*, norm: bool = False) -> Net:
    torch.manual_seed(0)
    return Net(norm=norm)


def trainer(net: nn.Module | None = None, *, count: int = 22, seed: int = 5, **settings: Any) -> SupervisedTrainer:
    batches = Batches(images(count), settings.pop("batch_size", 8), torch.Generator().manual_seed(seed))
    return SupervisedTrainer(net or network(), batches, F.cross_entropy, **{"epochs": 3, "lr": 0.1, **settings})


def equal(one: nn.Module, other: nn.Module, atol: float = 0.0) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.allclose(a, b, rtol=0, atol=atol) for a, b in pairs)


def plain_loop(net: nn.Module, optimizer: torch.optim.Optimizer, *, epochs: int = 3, batch: int = 8) -> list[float]:
    """The loop of any tutorial, with the batches drawn here; gives the mean loss over the images of each epoch."""
    data, random, means = images(), torch.Generator().manual_seed(5), []
    for _ in range(epochs):
        total = 0.0
        for numbers in torch.randperm(22, generator=random).split(batch):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(data.images[numbers].float() / 255), data.labels[numbers])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(numbers)
        means.append(total / 22)
    return means


OPTIMIZERS: list[tuple[dict[str, Any], Callable[..., torch.optim.Optimizer]]] = [
    ({"momentum": 0.0}, lambda p: torch.optim.SGD(p, lr=0.1)),
    (
        {"momentum": 0.8, "nesterov": True, "weight_decay": 0.01},
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.8, nesterov=True, weight_decay=0.01),
    ),
    ({"optimizer": "adam", "weight_decay": 0.01}, lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.01)),
    ({"optimizer": "adamw", "weight_decay": 0.01}, lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.01)),
]


@pytest.mark.parametrize(("settings", "make"), OPTIMIZERS, ids=[str(settings) for settings, _ in OPTIMIZERS])
def test_equals_a_plain_loop(settings: dict[str, Any], make: Callable):
    ours, plain = trainer(**settings), network()
    losses = [epoch.loss for epoch in ours.train()]
    assert losses == pytest.approx(plain_loop(plain, make(plain.parameters())), abs=1e-6)
    assert equal(ours.network, plain, atol=1e-6)
    assert not equal(ours.network, network(), atol=1e-2)


def test_epochs_are_numbered_and_count_right_answers():
    """At a learning rate of next to nothing the share of right answers is that of the first weights."""
    ours = trainer(lr=1e-12)
    epochs = list(ours.train())
    assert [epoch.number for epoch in epochs] == [1, 2, 3]
    data = images()
    share = (network()(data.images.float() / 255).argmax(1) == data.labels).float().mean().item()
    assert all(epoch.accuracy == pytest.approx(share) for epoch in epochs)
    assert all(epoch.images_per_second > 0 for epoch in epochs)
    assert ours.done == 3
    assert list(ours.train()) == []


def test_accumulated_halves_are_the_whole_batch():
    """16 images: two halves of 8, whose mean losses have the same weight, are the full batch."""
    halves, whole = trainer(count=16, accumulate=2), trainer(count=16, batch_size=16)
    for _ in zip(halves.train(), whole.train(), strict=True):
        assert equal(halves.network, whole.network, atol=1e-6)
    assert not equal(whole.network, network(), atol=1e-3)


def test_a_group_of_batches_cut_short_has_its_full_weight():
    """24 images are three batches of 8: after two together, the third steps alone, like a batch of its own."""
    short, plain = trainer(count=24, accumulate=2, epochs=1, momentum=0.0), network()
    list(short.train())
    data, optimizer = images(24), torch.optim.SGD(plain.parameters(), lr=0.1)
    order = torch.randperm(24, generator=torch.Generator().manual_seed(5))
    for numbers in (order[:16], order[16:]):
        optimizer.zero_grad()
        F.cross_entropy(plain(data.images[numbers].float() / 255), data.labels[numbers]).backward()
        optimizer.step()
    assert equal(short.network, plain, atol=1e-6)


def test_a_smaller_last_batch_counts_by_its_images():
    """22 images are batches of 8, 8, 6: the three together are the whole set at once, 6 with the weight of 6."""
    parts, whole = trainer(accumulate=3), trainer(batch_size=22)
    for _ in zip(parts.train(), whole.train(), strict=True):
        assert equal(parts.network, whole.network, atol=1e-6)
    assert not equal(whole.network, network(), atol=1e-3)


def test_clipped_gradients():
    """One step of plain SGD moves the weights by lr times the norm of the gradient: 0.1 x 0.05 when clipped to 0.05."""
    clipped, free = (trainer(batch_size=22, epochs=1, momentum=0.0, clip_norm=norm) for norm in (0.05, None))
    moves = []
    for one in (clipped, free):
        list(one.train())
        moves.append(nn.utils.parameters_to_vector(one.network.parameters()) - start())
    assert moves[0].norm().item() == pytest.approx(0.005, rel=1e-3)
    assert moves[1].norm() > 0.01
    assert F.cosine_similarity(moves[0], moves[1], dim=0) > 0.9999


def start() -> Tensor:
    return nn.utils.parameters_to_vector(network().parameters())


def test_running_mean_by_hand():
    """The mean starts with the weights after the first step; then 0.7 times itself and 0.3 times the new weights."""
    ours = trainer(network(norm=True), batch_size=22, epochs=4, ema=0.7)
    mean: list[Tensor] = []
    for _ in ours.train():
        now = [parameter.detach().clone() for parameter in ours.network.parameters()]
        mean = [0.7 * old + 0.3 * new for old, new in zip(mean, now, strict=True)] if mean else now
        for expected, parameter in zip(mean, ours.tested.parameters(), strict=True):
            assert torch.allclose(expected, parameter, atol=1e-6)
    assert not equal(ours.network, ours.tested, atol=1e-3)
    assert torch.equal(ours.tested.norm.running_mean, ours.network.norm.running_mean)
    assert trainer().tested.head.weight is not None
    plain = trainer()
    assert plain.tested is plain.network


def test_frozen_epochs_train_the_head_alone():
    ours, first = trainer(freeze_epochs=2, weight_decay=0.1, epochs=4), network()
    bodies, heads = [first.body.weight.detach().clone()], [first.head.weight.detach().clone()]
    for _ in ours.train():
        bodies.append(ours.network.body.weight.detach().clone())
        heads.append(ours.network.head.weight.detach().clone())
    assert [torch.equal(a, b) for a, b in pairwise(bodies)] == [True, True, False, False]
    assert not any(torch.equal(a, b) for a, b in pairwise(heads))
    assert all(parameter.requires_grad for parameter in ours.network.parameters())


def test_frozen_norms_keep_their_statistics_and_use_them():
    """Frozen, the body is the network in evaluation; from the third epoch on its statistics move."""
    net = network(norm=True)
    ours, means, modes = trainer(net, freeze_epochs=2, epochs=3), [net.norm.running_mean.clone()], []
    net.norm.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    for _ in ours.train():
        means.append(net.norm.running_mean.clone())
    assert [torch.equal(a, b) for a, b in pairwise(means)] == [True, True, False]
    assert modes == [False] * 6 + [True] * 3


def test_statistics_may_be_kept_all_along():
    net = network(norm=True)
    list(trainer(net, epochs=2, keep_statistics=True).train())
    first = network(norm=True)
    assert torch.equal(net.norm.running_mean, first.norm.running_mean)
    assert not torch.equal(net.norm.weight, first.norm.weight)


def test_the_head_may_be_named():
    """`norm` as the head: it alone learns in frozen epochs, and its statistics move."""
    net = network(norm=True)
    list(trainer(net, epochs=1, freeze_epochs=1, head="norm").train())
    first = network(norm=True)
    assert torch.equal(net.head.weight, first.head.weight)
    assert not torch.equal(net.norm.weight, first.norm.weight)
    assert not torch.equal(net.norm.running_mean, first.norm.running_mean)


def test_rates_follow_the_schedule():
    """Two epochs of two steps with one epoch of warmup: factors 0, 1/2, 1, 1 of 0.1; the activation rate alike."""
    ours, seen = trainer(count=16, epochs=2, warmup_epochs=1, layer_decay=0.5), []
    ours.torch_optimizer.register_step_pre_hook(
        lambda optimizer, *_: seen.append([group["lr"] for group in optimizer.param_groups])
    )
    list(ours.train())
    head, body = [rates[-1] for rates in seen], [rates[0] for rates in seen]
    assert head == pytest.approx([0, 0.05, 0.1, 0.1])
    assert body == pytest.approx([0, 0.025, 0.05, 0.05])


def test_bfloat16_is_near_float32_but_not_it():
    """bfloat16 keeps 8 bits: relative steps of 1/256 in the forward pass; the weights stay float32."""
    short, full = trainer(precision="bf16", epochs=1), trainer(epochs=1)
    losses = [next(iter(one.train())).loss for one in (short, full)]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
    assert losses[0] != losses[1]
    assert all(parameter.dtype == torch.float32 for parameter in short.network.parameters())


@pytest.mark.parametrize(
    "settings",
    [
        {"momentum": 0.9},
        {"optimizer": "adam", "schedule": "cosine"},
        {"ema": 0.5},
        {"freeze_epochs": 1},
        {"freeze_epochs": 3},
    ],
    ids=str,
)
def test_a_resumed_training_is_the_uninterrupted_one_bit_by_bit(settings: dict[str, Any]):
    """The checkpoint goes into a trainer whose own weights and random numbers are others."""
    whole = trainer(network(norm=True), epochs=4, **settings)
    whole.batches.augment = shift
    losses, state = [], {}
    for epoch in whole.train():
        losses.append(epoch.loss)
        if epoch.number == 2:
            state = copy.deepcopy(whole.state_dict())
    torch.manual_seed(9)
    resumed = trainer(Net(norm=True), seed=8, epochs=4, **settings)
    resumed.batches.augment = shift
    resumed.load_state_dict(state)
    assert [epoch.loss for epoch in resumed.train()] == losses[2:]
    assert equal(resumed.network, whole.network)
    assert equal(resumed.tested, whole.tested)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_ends_the_run(value: float):
    """Three batches an epoch, so the fifth is in epoch 2: epoch 1 stands, and no third begins."""
    ours, calls = trainer(), []

    def loss(output: Tensor, labels: Tensor) -> Tensor:
        calls.append(1)
        return F.cross_entropy(output, labels) * (value if len(calls) == 5 else 1)

    ours.loss = loss
    with pytest.raises(
        DivergedError, match=rf"the training loss is (nan|{value}) in epoch 2; lower `lr`, or set `clip_norm`"
    ):
        list(ours.train())
    assert ours.done == 1
    assert len(calls) == 6


@pytest.mark.parametrize("batch", [1024, 5])
def test_predict_is_the_network_in_evaluation(batch: int):
    """Batch norm with statistics of its own would see the size of the batches."""
    net, data = network(norm=True), images()
    list(trainer(net, epochs=1).train())
    answers = predict(net, data, batch=batch)
    net.eval()
    with torch.no_grad():
        assert torch.allclose(answers, net(data.images.float() / 255), atol=1e-6)
    net.train()
    with torch.no_grad():
        assert not torch.allclose(answers, net(data.images.float() / 255), atol=1e-3)
    assert not answers.requires_grad


def test_training_goes_on_in_training_mode_after_a_prediction():
    ours, modes = trainer(network(norm=True), epochs=2), []
    ours.network.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    for _ in ours.train():
        predict(ours.network, images())
    assert modes == [True, True, True, False, True, True, True, False]


def test_loss_of_an_epoch_counts_every_image_once():
    """22 images in batches of 8, 8, 6 at next to no learning rate: the mean over images, not over batches."""
    epoch: Epoch = next(iter(trainer(lr=1e-12).train()))
    data = images()
    with torch.no_grad():
        wanted = F.cross_entropy(network()(data.images.float() / 255), data.labels).item()
    assert math.isclose(epoch.loss, wanted, rel_tol=1e-5)


@pytest.mark.parametrize("accumulate", [1, 2, 3])
def test_losses_of_the_steps(accumulate: int):
    """Batches of 8, 8, 6 at next to no learning rate: each by itself, 16 and 6 together, or all 22."""
    epoch = next(iter(trainer(lr=1e-12, accumulate=accumulate).train()))
    data, order = images(), torch.randperm(22, generator=torch.Generator().manual_seed(5))
    steps = {1: (8, 8, 6), 2: (16, 6), 3: (22,)}[accumulate]
    with torch.no_grad():
        logits = network()(data.images.float() / 255)
    wanted = [F.cross_entropy(logits[part], data.labels[part]).item() for part in order.split(steps)]
    assert epoch.step_losses == pytest.approx(wanted, rel=1e-5)


def trained_on_digits(**settings: Any) -> SupervisedTrainer:
    """One epoch of seven steps on real digits, in float64."""
    torch.manual_seed(0)
    net = backbones.build(
        "conv4",
        activation=activations.factory("arelu"),
        channels=1,
        image_size=(28, 28),
        classes=10,
        filters=4,
        norm="running",
    ).double()
    batches = DoubleBatches(digits(), 32, torch.Generator().manual_seed(1))
    one = SupervisedTrainer(net, batches, F.cross_entropy, **{"epochs": 1, "lr": 1e-3, **settings})
    list(one.train())
    return one


def largest_difference(one: SupervisedTrainer, other: SupervisedTrainer) -> float:
    pairs = zip(one.network.state_dict().values(), other.network.state_dict().values(), strict=True)
    return max((a.double() - b.double()).abs().max().item() for a, b in pairs)


def test_channels_last_is_another_layout_and_the_same_result():
    plain, laid = trained_on_digits(channels_last=False), trained_on_digits(channels_last=True)
    weight = laid.network.blocks[1][0].weight
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert not plain.network.blocks[1][0].weight.is_contiguous(memory_format=torch.channels_last)
    assert 0 < largest_difference(plain, laid) < 1e-10
    assert largest_difference(trained_on_digits(), laid) == 0  # what a CPU does unless it is told


class Viewed(nn.Module):
    """A network that takes the layout of its maps for granted."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 2, 3), nn.Linear(2 * 26 * 26, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.conv(x).view(len(x), -1))


def test_a_network_that_takes_another_layout_for_granted_keeps_it():
    batches = Batches(digits(), 32, torch.Generator().manual_seed(1))
    one = SupervisedTrainer(Viewed(), batches, F.cross_entropy, epochs=1)
    assert one.channels_last is False
    assert len(list(one.train())) == 1


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_fused_updates_are_the_same_result(optimizer: str):
    plain, fused = (trained_on_digits(fused=fused, optimizer=optimizer) for fused in (False, True))
    assert fused.torch_optimizer.defaults["fused"] is True
    assert not plain.torch_optimizer.defaults["fused"]
    assert largest_difference(plain, fused) < 1e-6  # Adam divides a gradient of nothing but rounding by its own size


def test_fused_where_torch_has_no_kernel():
    with pytest.raises(InputError, match="torch has no fused optimizers for meta"):
        trainer(nn.Linear(2, 2, device="meta"), fused=True)


def test_compilation_needs_a_compiler(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(InputError, match=r"needs a C\+\+ compiler"):
        trainer(compile=True)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.filterwarnings("ignore")  # torch's compiler warns of itself
def test_compiled_is_the_same_result():
    plain, compiled = trained_on_digits(), trained_on_digits(compile=True)
    assert largest_difference(plain, compiled) < 1e-10
    assert compiled.state_dict()["network"].keys() == plain.state_dict()["network"].keys()


def test_half_precision_on_a_cpu_scales_the_loss():
    """A gradient of 2^-26 is below half precision's smallest number, 2^-24: unscaled it is lost, and nothing moves."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 3, bias=False))
    nn.init.zeros_(net[1].weight)
    tiny = trainer(net, precision="fp16", batch_size=22, epochs=1, lr=1.0, momentum=0.0)
    tiny.loss = lambda output, labels: output.sum() * 2.0**-26 + 0 * labels.sum()
    assert tiny.scaler.is_enabled()
    list(tiny.train())
    wanted = -(images().images.float() / 255).flatten(1).sum(0) * 2.0**-26
    assert torch.allclose(net[1].weight, wanted.expand(3, -1), rtol=1e-2, atol=0)
