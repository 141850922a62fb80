"""Small networks and random episodes, and derivatives by central differences: what the tests of the learners share."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from arelu_meta import activations, backbones, learners
from arelu_meta.backbones.conv_block import input_multiple
from arelu_meta.data.episodes import Episode
from arelu_meta.learners.learner import Learner

WAYS, SHOTS, QUERIES = 3, 2, 2


class OwnNet(nn.Module):
    """A network of a user's own for 1x4x4 images; its head goes by a name that only its place tells."""

    def __init__(self, activation: str = "tanh") -> None:
        super().__init__()
        act = activations.build(activation)
        self.first = nn.Linear(16, 6 * input_multiple(act))
        self.act = act
        self.last = nn.Linear(6, WAYS)

    def features(self, x: Tensor) -> Tensor:
        return self.act(self.first(x.flatten(1)))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.features(x))


def own_net(activation: str = "tanh", dtype: torch.dtype = torch.float64) -> OwnNet:
    torch.manual_seed(0)
    return OwnNet(activation).to(dtype)


def mnist_conv(activation: str = "arelu", dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(0)
    factory = activations.factory(activation)
    return backbones.build("mnist_conv", activation=factory, channels=1, image_size=(28, 28), classes=WAYS).to(dtype)


def conv4(activation: str = "arelu", dtype: torch.dtype = torch.float64, norm: str = "batch") -> nn.Module:
    torch.manual_seed(0)
    return backbones.build(
        "conv4",
        activation=activations.factory(activation),
        channels=1,
        image_size=(16, 16),
        classes=WAYS,
        filters=8,
        norm=norm,
    ).to(dtype)


def build(method: str, network: nn.Module, **options: object) -> Learner:
    """Any method; those with an inner loop take two steps of 0.1 unless told otherwise."""
    settings = learners.entry(method).settings
    inner = {name: value for name, value in {"inner_lr": 0.1, "inner_steps": 2}.items() if name in settings}
    return learners.build(method, network, **{**inner, **options})


def episodes(count: int = 2, *, size: int = 4, dtype: torch.dtype = torch.float64, seed: int = 0) -> Episode:
    """Episodes whose classes differ in brightness, so that there is something to learn."""
    random = torch.Generator().manual_seed(seed)

    def half(per_class: int) -> tuple[Tensor, Tensor]:
        labels = torch.arange(WAYS).repeat_interleave(per_class).expand(count, -1)
        noise = torch.randn(count, WAYS * per_class, 1, size, size, dtype=dtype, generator=random)
        return noise + labels.to(dtype).view(*labels.shape, 1, 1, 1) - 1, labels

    return Episode(*half(SHOTS), *half(QUERIES))


def real_targets(batch: Episode) -> Episode:
    """The same images with three real targets each: the mean brightness, and what a sine and a square make of it."""

    def targets(x: Tensor) -> Tensor:
        mean = x.flatten(2).mean(2)
        return torch.stack([mean, 2 * torch.sin(3 * mean), mean.square() - 1], -1)  # (episodes, N, 3)

    return Episode(batch.support_x, targets(batch.support_x), batch.query_x, targets(batch.query_x))


def gradients(module: nn.Module) -> dict[str, Tensor]:
    """Gradients by name, zeros where there is none; the module's own are cleared."""
    found = {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
        for name, parameter in module.named_parameters()
    }
    module.zero_grad()
    return found


def distance(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """Euclidean distance of two sets of tensors, relative to the size of the second."""
    assert one.keys() == other.keys()
    apart = torch.stack([(one[name] - other[name]).square().sum() for name in one]).sum().sqrt()
    return float(apart / torch.stack([value.square().sum() for value in other.values()]).sum().sqrt())


@torch.no_grad()
def central_differences(value: Callable[[], float], parameter: Tensor, *, step: float = 1e-5, most: int = 6) -> Tensor:
    """Slopes of `value` in the first numbers of a parameter, which is put back afterwards."""
    flat, slopes = parameter.view(-1), []
    for place in range(min(most, flat.numel())):
        kept = flat[place].item()
        ends = []
        for sign in (1, -1):
            flat[place] = kept + sign * step
            with torch.enable_grad():
                ends.append(value())
        flat[place] = kept
        slopes.append((ends[0] - ends[1]) / (2 * step))
    return torch.tensor(slopes, dtype=parameter.dtype)
