"""Meta-SGD: the inner learning rate of every single weight is learned with it (Li et al. 2017, arXiv 1707.09835)."""

from typing import Any

from torch import nn

from arelu_meta.learners.learned_rates import LearnedRateLearner


class MetaSgd(LearnedRateLearner):
    """MAML with a learned rate per weight, the same at every step, all started at `inner_lr`."""

    def __init__(self, network: nn.Module, **options: Any) -> None:
        super().__init__(network, shape=lambda weight: (1, *weight.shape), **options)
