"""Outer steps that are recorded once it pays, and repeated from then on: the same results, sooner."""

import time
from collections import Counter
from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor, nn

from arelu_meta.data.episodes import Episode
from arelu_meta.learners.engines.func_engine import FuncEngine
from arelu_meta.learners.gradient import GradientLearner
from arelu_meta.learners.learner import Learner
from arelu_meta.learners.operation_tape import Recording, Tape
from arelu_meta.learners.outer_step import QueryLoss, add_gradient

PAYS_AFTER = 30  # steps: recording takes as long as six to fifteen, and a repetition saves a quarter of one or more
KNOWN = frozenset({"arelu_meta", "torch", "torchvision"})


def repeat_steps(learner: Learner, *, after: int = PAYS_AFTER) -> None:
    """Let a learner repeat its outer steps after so many, where all of them are alike; others go on as they are."""
    if isinstance(learner, GradientLearner) and learner.same_loss_throughout and isinstance(learner.engine, FuncEngine):
        learner.add_gradient = RepeatedStep(learner, after)


def recording_seconds(learner: Learner) -> float:
    """Time spent on recording so far."""
    step = learner.add_gradient if isinstance(learner, GradientLearner) else None
    return step.seconds if isinstance(step, RepeatedStep) else 0.0


class RepeatedStep:
    """Add the gradient of the query loss: at first as it is written, later by repeating its operations.

    Steps of other shapes, or after a change of the network's modes, are steps of another kind, counted anew. Modules of
    packages that are not known may depend on more than their input, such as the number of calls: they are not repeated.
    """

    def __init__(self, learner: GradientLearner, after: int) -> None:
        self._learner, self._after = learner, after
        self._state = learner.state()
        self._seen: Counter[Hashable] = Counter()
        self._tapes: dict[Hashable, Tape] = {}
        self.obstacle = ""
        self.seconds = 0.0

    def __call__(self, query_loss: QueryLoss, part: Episode, weight: float) -> tuple[Tensor, Tensor]:
        """Add the gradient of the summed loss, times `weight`, and give losses and logits."""
        if self.obstacle or not _depends_on_its_input_alone(self._learner.network):
            return add_gradient(query_loss, part, weight)
        kind = self._kind(part, weight)
        if kind not in self._tapes and self._seen[kind] < self._after:
            self._seen[kind] += 1
            return add_gradient(query_loss, part, weight)
        if kind in self._tapes:
            step = self._tapes[kind](*part.tensors())
        else:
            step = self._record(kind, query_loss, part, weight)
        loss, logits, *gradients = step
        for parameter, gradient in zip(self._learned(), gradients, strict=True):
            if gradient is not None:
                _add_to(parameter, gradient)
        return loss, logits

    def _record(self, kind: Hashable, query_loss: QueryLoss, part: Episode, weight: float) -> tuple[Any, ...]:
        """Take the step, and keep a recording of it unless something stands in the way."""
        start = time.monotonic()
        with Recording(part.tensors(), (*self._state.parameters(), *self._state.buffers())) as recording:
            loss, logits = query_loss(part)
            gradients = torch.autograd.grad(loss.sum() * weight, self._learned(), allow_unused=True)
            step = (loss.detach(), logits.detach(), *gradients)
        tape = recording.tape(step)
        self.obstacle = recording.obstacle
        if not self.obstacle:
            self._tapes[kind] = tape
        self.seconds += time.monotonic() - start
        return step

    def _learned(self) -> list[nn.Parameter]:
        return [parameter for parameter in self._state.parameters() if parameter.requires_grad]

    def _kind(self, part: Episode, weight: float) -> Hashable:
        """All that a recording takes for given."""
        device = part.support_x.device.type
        autocast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
        return (
            weight,
            self._learner.rule,
            autocast and torch.get_autocast_dtype(device),
            *((tensor.shape, tensor.stride(), tensor.dtype, tensor.device) for tensor in part.tensors()),
            *((id(module), module.training) for module in self._state.modules()),
            *((id(parameter), parameter.requires_grad) for parameter in self._state.parameters()),
        )


def _depends_on_its_input_alone(network: nn.Module) -> bool:
    return all(
        type(module).__module__.partition(".")[0] in KNOWN
        and not module._forward_hooks
        and not module._forward_pre_hooks
        and not module._backward_hooks
        for module in network.modules()
    )


def _add_to(parameter: nn.Parameter, gradient: Tensor) -> None:
    if parameter.grad is None:
        parameter.grad = torch.empty_like(parameter).copy_(gradient)  # the optimizer's own: not a view, not shared
    else:
        parameter.grad += gradient
