"""Networks that others wrote: one MAML step is that of plain autograd, nothing is lost, everything can be undone.

The reference is torch alone: the network in training mode, so that batch norms use the batch, `torch.autograd.grad`
twice, and attention by torch's own plain kernel.
"""

import copy
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from arelu_meta import learners
from arelu_meta.activations.arelu import AReLU
from arelu_meta.data.episodes import Episode
from arelu_meta.learners.gradient_learner import GradientLearner
from arelu_meta.surgery import swap
from tests.learners.families import (
    CLASSES,
    HUGGING_FACE,
    HUGGING_FACE_SIZES,
    TIMM,
    hugging_face_network,
    timm_network,
)
from tests.learners.small_problems import distance, gradients

RATE = 1e-3
QUICK = {"deit_tiny_patch16_224", "resnet10t", "ViT", "ResNet"}
KERNELS = {"relu", "hardtanh", "leaky_relu", "elu", "gelu", "silu", "mish", "hardswish", "sigmoid", "tanh", "softplus"}
EVERY = [
    pytest.param(source, name, swapped, marks=() if name in QUICK else pytest.mark.slow, id=f"{name}-{swapped}")
    for source, names in (("timm", TIMM), ("transformers", HUGGING_FACE))
    for name in names
    for swapped in ("own", "arelu")
]


def network_of(source: str, name: str, activations: str) -> tuple[nn.Module, int]:
    """A network and the side of its images; where the whole cannot be traced, parts are swapped."""
    made = timm_network(name) if source == "timm" else hugging_face_network(name)
    if activations == "arelu":
        swap(made, to="arelu", parts="auto")
    return made.double().train(), TIMM[name][0] if source == "timm" else HUGGING_FACE_SIZES.get(name, 64)


def noise(size: int) -> Episode:
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(CLASSES).expand(2, -1)
    images = torch.randn(2, 2, CLASSES, 3, size, size, dtype=torch.float64, generator=random)
    return Episode(images[0], labels, images[1], labels)


def plain_meta_gradient(network: nn.Module, batch: Episode) -> dict[str, Tensor]:
    network = copy.deepcopy(network)
    parameters = dict(network.named_parameters())
    total = torch.zeros((), dtype=torch.float64)
    with sdpa_kernel(SDPBackend.MATH), HardSigmoid():
        for episode in batch:
            loss = F.cross_entropy(network(episode.support_x), episode.support_y)
            inner = torch.autograd.grad(loss, list(parameters.values()), create_graph=True, materialize_grads=True)
            moved = {n: p - RATE * g for (n, p), g in zip(parameters.items(), inner, strict=True)}
            logits = torch.func.functional_call(network, moved, (episode.query_x,))
            total = total + F.cross_entropy(logits, episode.query_y) / len(batch)
        found = torch.autograd.grad(total, list(parameters.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(parameters, found, strict=True))


class HardSigmoid(TorchFunctionMode):
    """torch's has no second derivative, so the reference has it by its definition."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.hardsigmoid:
            return (args[0] / 6 + 0.5).clamp(0, 1)
        return func(*args, **(kwargs or {}))


class Kernels(TorchDispatchMode):
    """Count activation kernels below autograd."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, operation: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = operation.overloadpacket.__name__.removesuffix("_")  # in place or not
        if name in KERNELS:
            self.counts[name] += 1
        return operation(*args, **(kwargs or {}))


@contextmanager
def counted(network: nn.Module) -> Iterator[Counter[str]]:
    """Count activation kernels, and calls of AReLU modules by hooks of torch's."""
    counts: Counter[str] = Counter()
    handles = [
        module.register_forward_hook(lambda *_: counts.update(["AReLU"]))
        for module in network.modules()
        if isinstance(module, AReLU)
    ]
    with Kernels() as kernels:
        yield counts
    counts.update(kernels.counts)
    for handle in handles:
        handle.remove()


@pytest.mark.filterwarnings("ignore::arelu_meta.learners.engines.func_engine.OneByOne")
@pytest.mark.parametrize(("source", "name", "swapped"), EVERY)
def test_a_network_of_others(source: str, name: str, swapped: str):
    network, size = network_of(source, name, swapped)
    batch, saved = noise(size), copy.deepcopy(network.state_dict())
    expected = plain_meta_gradient(network, batch)
    learner = learners.build("maml", network, inner_lr=RATE, inner_steps=1)
    assert isinstance(learner, GradientLearner)

    learner.meta_step(batch, progress=0.0)
    assert distance(gradients(network), expected) < 1e-9
    assert network.state_dict().keys() == saved.keys()
    assert all(torch.equal(value, saved[key]) for key, value in network.state_dict().items())

    adapted = learner.adapt(batch.support_x[0], batch.support_y[0])
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        with counted(network) as before:
            network(batch.query_x[0])
        network.load_state_dict(saved)  # this pass moved running statistics, as any in training mode does
        with counted(network) as after:
            adapted.logits(batch.query_x[0])
    after["hardtanh"] -= sum(isinstance(m, nn.Hardsigmoid) for m in network.modules())  # ours is made of one
    assert +after == +before
    assert (before["AReLU"] > 0) == (swapped == "arelu")

    with torch.no_grad():
        shown = network.eval()(batch.query_x[0])
        for parameter in network.parameters():
            parameter.add_(0.01)
        network.load_state_dict(saved)
        assert torch.equal(network(batch.query_x[0]), shown)


def test_the_activations_of_a_subclass_of_batch_norm_are_called():
    """timm's `BatchNormAct2d` has them inside: 33 of this network's, which a replaced norm lost."""
    network, _ = network_of("timm", "tf_efficientnet_lite0", "arelu")
    learner = learners.build("maml", network, inner_lr=RATE, inner_steps=1)
    images, labels = torch.randn(2, 3, 32, 32, dtype=torch.float64), torch.tensor([0, 1])
    adapted = learner.adapt(images, labels)
    with counted(network) as counts:
        adapted.logits(images)
    assert counts["AReLU"] == sum(isinstance(module, AReLU) for module in network.modules()) == 33


def test_forty_families_of_timm_and_ten_of_transformers():
    assert len({name.partition("_")[0] for name in TIMM}) >= 40
    assert len(HUGGING_FACE) >= 10
