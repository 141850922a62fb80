"""Learners whose inner learning rates are learned along with the weights: Meta-SGD and MAML++."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arelu_meta.data.episodes import Episode
from arelu_meta.learners import LORA_RANK
from arelu_meta.learners.engines import Engine
from arelu_meta.learners.gradient_learner import GradientLearner
from arelu_meta.learners.inner_loop import InnerOptimizer, InnerRule, Loss, episode_losses
from arelu_meta.learners.low_rank import with_adapters
from arelu_meta.learners.moving import chosen_names

FIRST_ORDER_UNTIL = 0.25  # share of training before second derivatives are switched on
MULTI_STEP_UNTIL = 0.5  # share of training over which the loss moves from all steps to the last


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
    """MAML with learned rates; `shape` says what shape of rates a weight gets, rows for steps first.

    The other arguments are those of `maml`; `inner_lr` is where all rates start.
    """

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
        loss: Loss = F.cross_entropy,
        adapt: str | frozenset[str] = "all",
        head: str = "",
        lora_rank: int = LORA_RANK,
    ) -> None:
        network = with_adapters(network, adapt, rank=lora_rank)
        self.rates = LearnedRates(
            {
                name: torch.full(shape(weight), inner_lr, dtype=weight.dtype, device=weight.device)
                for name, weight in network.named_parameters()
            }
        )
        rule = InnerRule(
            lr=self.rates.by_name(),
            steps=inner_steps,
            moving=chosen_names(network, adapt, head),
            clip_norm=clip_norm,
            optimizer=inner_optimizer,
            loss=loss,
        )
        super().__init__(network, engine=engine, rule=rule, test_steps=test_steps, chunk=chunk)

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """The network's groups and the rates."""
        return [*super().parameter_groups(lr), {"params": list(self.rates.parameters()), "lr": lr, "weight_decay": 0.0}]

    def state(self) -> nn.Module:
        """Network and rates."""
        return nn.ModuleDict({"network": self.network, "rates": self.rates})


class MetaSgd(LearnedRateLearner):
    """Meta-SGD (Li et al. 2017, arXiv 1707.09835): MAML with a learned rate for every single weight.

    Args:
        network: any module that maps images (N, C, H, W) to logits (N, ways).
        adapt: what moves inside an episode, as in `maml`; the rates of the rest stay as they are.
        head: path of the head, as in `maml`.
        lora_rank: rank of the adapters, as in `maml`.
        options: `engine`, `inner_lr` (where all rates start), `inner_steps`, `test_steps`, `clip_norm`, `chunk` and
            `loss`, as in `maml`. A rate is the same at every step, so tests may take more steps.

    >>> from arelu_meta.learners import engines
    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    >>> learner = MetaSgd(network, engine=engines.build("func"), inner_lr=0.1, inner_steps=2)
    >>> {name: tuple(rates.shape) for name, rates in learner.rates.by_name().items()}
    {'1.weight': (1, 2, 4), '1.bias': (1, 2)}
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        adapt: str | frozenset[str] = "all",
        head: str = "",
        lora_rank: int = LORA_RANK,
        **options: Any,
    ) -> None:
        parts: dict[str, Any] = {"adapt": adapt, "head": head, "lora_rank": lora_rank}
        super().__init__(network, shape=lambda weight: (1, *weight.shape), **parts, **options)


class MamlPlusPlus(LearnedRateLearner):
    """MAML++ (Antoniou et al. 2019, arXiv 1810.09502): rates per layer and step, a multi-step loss, first order first.

    The multi-step loss fades to that of the last step in the first half of training, and second derivatives are
    switched on after a quarter. Of the paper's six changes the batch-norm ones are the backbone's `norm`, and the
    cosine schedule is left to the outer optimizer; these three are the learner's.

    Args:
        network: any module that maps images (N, C, H, W) to logits (N, ways).
        inner_steps: gradient steps of a training episode; further ones in tests use the rates of the last.
        adapt: what moves inside an episode, as in `maml`; the rates of the rest stay as they are.
        head: path of the head, as in `maml`.
        lora_rank: rank of the adapters, as in `maml`.
        options: `engine`, `inner_lr` (where all rates start), `test_steps`, `clip_norm`, `chunk` and `loss`, as in
            `maml`.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        inner_steps: int,
        adapt: str | frozenset[str] = "all",
        head: str = "",
        lora_rank: int = LORA_RANK,
        **options: Any,
    ) -> None:
        shape = (inner_steps,)
        parts: dict[str, Any] = {"adapt": adapt, "head": head, "lora_rank": lora_rank}
        super().__init__(network, shape=lambda _weight: shape, inner_steps=inner_steps, **parts, **options)

    def query_loss(self, episodes: Episode, progress: float) -> tuple[Tensor, Tensor]:
        """Weigh the query losses after each step; early in training all count, later the last alone."""
        rule = replace(self.rule, first_order=progress < FIRST_ORDER_UNTIL)
        weights = step_weights(rule.steps, progress)
        if weights[:-1].any():
            logits = self.engine.logits(self.network, rule, episodes, every_step=True)[:, 1:]  # (episodes, steps, ...)
        else:
            logits = self.engine.logits(self.network, rule, episodes)
            weights = weights[-1:]
        by_step = [episode_losses(logits[:, step], episodes.query_y, rule.loss) for step in range(logits.shape[1])]
        losses = torch.stack(by_step, 1)  # (episodes, steps)
        return losses @ weights.to(losses), logits[:, -1]


def step_weights(steps: int, progress: float) -> Tensor:
    """Weights of the loss after each step: equal at the start, all on the last from MULTI_STEP_UNTIL on.

    >>> step_weights(4, 0.0).tolist(), step_weights(4, 0.25).tolist(), step_weights(4, 1.0).tolist()
    ([0.25, 0.25, 0.25, 0.25], [0.125, 0.125, 0.125, 0.625], [0.0, 0.0, 0.0, 1.0])
    """
    early = max(0.0, 1 - progress / MULTI_STEP_UNTIL) / steps
    weights = torch.full((steps,), early)
    weights[-1] = 1 - early * (steps - 1)
    return weights
