"""The work that the MAML benchmarks have in common: networks, episodes, and one step on each engine."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from arelu_meta import activations, backbones, learners
from arelu_meta.data.episodes import Episode
from arelu_meta.errors import InputError, RunError


@dataclass(frozen=True)
class Setting:
    """One outer step: a network and the episodes it adapts to."""

    backbone: str = "mnist_conv"
    activation: str = "arelu"
    meta_batch: int = 32
    ways: int = 5
    shots: int = 1
    queries: int = 1
    inner_lr: float = 0.005
    inner_steps: int = 5
    image: int = 28
    filters: int | None = None
    dtype: torch.dtype = torch.float32

    def network(self) -> nn.Module:
        """Make the network, the same each time."""
        torch.manual_seed(0)
        options = {} if self.filters is None else {"filters": self.filters}
        return backbones.build(
            self.backbone,
            activation=activations.factory(self.activation),
            channels=1,
            image_size=(self.image, self.image),
            classes=self.ways,
            **options,
        ).to(self.dtype)

    def episodes(self) -> Episode:
        """Draw a meta-batch of episodes of noise: the work does not depend on what the images show."""
        random = torch.Generator().manual_seed(1)

        def half(images_per_class: int) -> tuple[Tensor, Tensor]:
            shape = (self.meta_batch, self.ways * images_per_class, 1, self.image, self.image)
            labels = torch.arange(self.ways).repeat_interleave(images_per_class)  # (images,)
            return torch.randn(shape, generator=random).to(self.dtype), labels.expand(self.meta_batch, -1).contiguous()

        return Episode(*half(self.shots), *half(self.queries))

    def step(self, engine: str = "func", *, chunk: int = 0, record: bool = False) -> "Step":
        """Make one outer step of MAML on an engine; with `record`, later calls repeat the first, recorded."""
        network = self.network()
        options = {"inner_lr": self.inner_lr, "inner_steps": self.inner_steps, "chunk": chunk}
        learner = learners.build("maml", network, engine=engine, **options)
        if record:
            learner.record_steps(after=0)
        return Step(network, partial(learner.meta_step, self.episodes(), progress=0.0))


@dataclass(frozen=True, eq=False)
class Step:
    """A step that can be repeated, and the network whose gradients it fills."""

    network: nn.Module
    run: Callable[[], object]

    def __call__(self) -> None:
        """Take the step from cleared gradients."""
        self.network.zero_grad()
        self.run()

    def gradients(self) -> list[Tensor]:
        """The outer gradient of the last step."""
        return [parameter.grad.clone() for parameter in self.network.parameters() if parameter.grad is not None]


def installed_engines() -> list[str]:
    """Engines whose libraries are installed, ours first."""
    installed = []
    for name in learners.engines.names():
        try:
            learners.engines.build(name)
        except InputError:
            continue
        installed.append(name)
    return installed


def check_same_gradient(steps: dict[str, Step]) -> None:
    """Make sure that all steps find the same outer gradient, to the rounding of float32.

    Steps that are timed in float32 are checked in float64: rounding can decide which number of a pooling window is the
    largest, and the outer gradient of an episode then jumps.
    """
    first: list[Tensor] = []
    for name, step in steps.items():
        step()
        gradients = step.gradients()
        first = first or gradients
        scale = max(float(one.abs().max()) for one in first)  # a bias before a batch norm has none but rounding
        for one, other in zip(first, gradients, strict=True):
            if not torch.allclose(one, other, rtol=1e-2, atol=1e-3 * scale):
                raise RunError(f"{name} finds another outer gradient than {next(iter(steps))}")
