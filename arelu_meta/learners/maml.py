"""MAML (Finn et al. 2017, arXiv 1703.03400), first-order MAML, and ANIL and BOIL, which are names for what moves."""

from typing import Any

import torch.nn.functional as F
from torch import nn

from arelu_meta.learners import LORA_RANK
from arelu_meta.learners.engines import Engine
from arelu_meta.learners.gradient_learner import GradientLearner
from arelu_meta.learners.inner_loop import InnerOptimizer, InnerRule, Loss
from arelu_meta.learners.low_rank import with_adapters
from arelu_meta.learners.moving import chosen_names


def maml(
    network: nn.Module,
    *,
    engine: Engine,
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
    first_order: bool = False,
) -> GradientLearner:
    """MAML: parameters move inside an episode, and the outer step differentiates through the inner gradients.

    Args:
        network: any module that maps images (N, C, H, W) to logits (N, ways).
        engine: what computes the inner loop, from `learners.engines.build`.
        inner_lr: learning rate of the adaptation.
        inner_steps: gradient steps on the support set of a training episode.
        test_steps: gradient steps in validation and test; None: `inner_steps`.
        clip_norm: bound on the joint Euclidean norm of the inner gradients; None: no bound.
        inner_optimizer: "sgd", or "adam" on the engine `higher`.
        chunk: episodes held in memory at once, which trades speed for memory; 0: the whole batch.
        loss: of logits (N, ways) and labels (N,), or of answers and real targets (N, d); of support and query alike.
        adapt: what moves inside an episode: "all", "head", "body" (all but that), "norm" (norms and biases),
            "activation", "lora" (low-rank adapters, which the network is given in place), or several
            ("head+activation"); or names of parameters, or patterns (`blocks.*`).
        head: path of the head; empty: the last linear layer on the way to the logits, found with the first episode.
        lora_rank: rank of the adapters.
        first_order: whether inner gradients are constants to the outer step, which saves half of the time.

    Returns:
        A learner for a training loop of one's own, or for `arelu_meta.training.meta.meta_train`.

    >>> from arelu_meta.learners import engines
    >>> maml(nn.Linear(4, 2), engine=engines.build("func"), inner_lr=0.1, inner_steps=5).test_steps
    5
    """
    moving = chosen_names(with_adapters(network, adapt, rank=lora_rank), adapt, head)
    rule = InnerRule(inner_lr, inner_steps, first_order, moving, clip_norm, inner_optimizer, loss)
    return GradientLearner(network, engine=engine, rule=rule, test_steps=test_steps, chunk=chunk)


def fomaml(
    network: nn.Module,
    *,
    adapt: str | frozenset[str] = "all",
    head: str = "",
    lora_rank: int = LORA_RANK,
    **options: Any,
) -> GradientLearner:
    """First-order MAML: the inner gradients are constants to the outer step.

    Args:
        network: any module that maps images (N, C, H, W) to logits (N, ways).
        adapt: what moves inside an episode, as in `maml`.
        head: path of the head, as in `maml`.
        lora_rank: rank of the adapters, as in `maml`.
        options: the other arguments of `maml`.

    Returns:
        A learner whose steps take about half the time of MAML's.
    """
    return maml(network, adapt=adapt, head=head, lora_rank=lora_rank, first_order=True, **options)


def anil(network: nn.Module, *, head: str = "", **options: Any) -> GradientLearner:
    """ANIL (Raghu et al. 2020, arXiv 1909.09157): only the head moves inside an episode, `adapt="head"`.

    Args:
        network: any module that maps images (N, C, H, W) to logits (N, ways).
        head: path of the head; empty: the last linear layer on the way to the logits, found with the first episode.
        options: the other arguments of `maml`.

    Returns:
        A learner that adapts the last layer.

    Raises:
        InputError: the network has no layer of that path.
    """
    return maml(network, adapt="head", head=head, **options)


def boil(network: nn.Module, *, head: str = "", **options: Any) -> GradientLearner:
    """BOIL (Oh et al. 2021, arXiv 2008.08882): everything but the head moves inside an episode, `adapt="body"`.

    Args:
        network: any module that maps images (N, C, H, W) to logits (N, ways).
        head: path of the head; empty: the last linear layer on the way to the logits, found with the first episode.
        options: the other arguments of `maml`.

    Returns:
        A learner that adapts all layers but the last.

    Raises:
        InputError: the network has no layer of that path, or is nothing but a head.
    """
    return maml(network, adapt="body", head=head, **options)
