"""Learners whose inner learning rates are learned along with the weights."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from arelu_meta.learners.engines import Engine
from arelu_meta.learners.gradient import GradientLearner
from arelu_meta.learners.inner_loop import InnerOptimizer, InnerRule


class LearnedRates(nn.Module):
    """One tensor of rates per weight, (steps, ...); names of parameters may not hold dots: `/` stands for them."""

    def __init__(self, rates: Mapping[str, Tensor]) -> None:
        super().__init__()
        for name, values in rates.items():
            self.register_parameter(name.replace(".", "/"), nn.Parameter(values))

    def by_name(self) -> dict[str, Tensor]:
        """The rates under the weights' own names."""
        return {name.replace("/", "."): values for name, values in self.named_parameters()}


class LearnedRateLearner(GradientLearner):
    """MAML with learned rates; `shape` says what shape of rates a weight gets, rows for steps first."""

    def __init__(
        self,
        network: nn.Module,
        *,
        engine: Engine,
        shape: Callable[[Tensor], tuple[int, ...]],
        inner_lr: float,
        inner_steps: int,
        test_steps: int | None = None,
        clip_norm: float | None = None,
        inner_optimizer: InnerOptimizer = "sgd",
        chunk: int = 0,
    ) -> None:
        self.rates = LearnedRates(
            {
                name: torch.full(shape(weight), inner_lr, dtype=weight.dtype, device=weight.device)
                for name, weight in network.named_parameters()
            }
        )
        rule = InnerRule(lr=self.rates.by_name(), steps=inner_steps, clip_norm=clip_norm, optimizer=inner_optimizer)
        super().__init__(network, engine=engine, rule=rule, test_steps=test_steps, chunk=chunk)

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """The network's groups and the rates."""
        return [*super().parameter_groups(lr), {"params": list(self.rates.parameters()), "lr": lr, "weight_decay": 0.0}]

    def state(self) -> nn.Module:
        """Network and rates."""
        return nn.ModuleDict({"network": self.network, "rates": self.rates})
