"""Outer steps that are recorded once it pays, and repeated from then on: the same results, sooner."""

import time
from collections import Counter
from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from arelu_meta.data.episodes import Episode
from arelu_meta.kernels.operation_tape import Recording, Tape
from arelu_meta.learners.engines.func_engine import FuncEngine
from arelu_meta.learners.gradient import GradientLearner
from arelu_meta.learners.learner import Learner
from arelu_meta.learners.outer_step import QueryLoss, add_gradient

PAYS_AFTER = 30  # steps: recording takes as long as six to fifteen, and a repetition saves about a quarter of one
KINDS = 8  # of steps kept; a run has one or two
KNOWN = frozenset({"arelu_meta", "builtins", "torch", "torchvision"})
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
PLAIN = (bool, float, int, str, tuple, type(None))


def repeat_steps(learner: Learner, *, after: int = PAYS_AFTER) -> None:
    """Let a learner repeat its outer steps after so many, where all of them are alike; others go on as they are."""
    if not isinstance(learner, GradientLearner) or not isinstance(learner.engine, FuncEngine):
        return
    alike = type(learner).query_loss is GradientLearner.query_loss  # another loss may change as training progresses
    if alike and learner.engine.vectorise:
        learner.add_gradient = RepeatedStep(learner, after)


def recording_seconds(learner: Learner) -> float:
    """Time spent on recording so far."""
    step = learner.add_gradient if isinstance(learner, GradientLearner) else None
    return step.seconds if isinstance(step, RepeatedStep) else 0.0


class RepeatedStep:
    """Add the gradient of the query loss: at first as it is written, later by repeating its operations.

    Steps of other shapes, or after a change of the network, are steps of another kind, counted anew.
    """

    def __init__(self, learner: GradientLearner, after: int) -> None:
        self._learner, self._after = learner, after
        self._seen: Counter[Hashable] = Counter()
        self._tapes: dict[Hashable, Tape] = {}
        self.obstacle = ""
        self.seconds = 0.0

    def __call__(self, query_loss: QueryLoss, part: Episode, weight: float) -> tuple[Tensor, Tensor]:
        """Add the gradient of the summed loss, times `weight`, and give losses and logits."""
        state = self._learner.state()
        if self.obstacle or not _is_pure(state) or not _is_plain(part):
            return add_gradient(query_loss, part, weight)
        kind = self._kind(state, part, weight)
        if kind not in self._tapes and self._seen[kind] < self._after:
            self._seen[kind] += 1
            return add_gradient(query_loss, part, weight)
        learned = [parameter for parameter in state.parameters() if parameter.requires_grad]
        if kind in self._tapes:
            step = self._tapes[kind](*part.tensors())
        else:
            start = time.monotonic()
            step, tape = self._recorded(state, learned, query_loss, part, weight)
            if tape is not None:
                self._keep(kind, tape)
            self.seconds += time.monotonic() - start
        loss, logits, *gradients = step
        for parameter, gradient in zip(learned, gradients, strict=True):
            if gradient is not None:
                _add_to(parameter, gradient)
        return loss, logits

    def _recorded(
        self, state: nn.Module, learned: list[nn.Parameter], query_loss: QueryLoss, part: Episode, weight: float
    ) -> tuple[tuple[Any, ...], Tape | None]:
        """Take the step, and give a recording with it unless something stands in the way."""
        with Recording(part.tensors(), (*state.parameters(), *state.buffers())) as recording:
            loss, logits = query_loss(part)
            gradients = torch.autograd.grad(loss.sum() * weight, learned, allow_unused=True)
            step = (loss.detach(), logits.detach(), *gradients)
        tape = recording.tape(step)
        self.obstacle = recording.obstacle
        return step, tape

    def _keep(self, kind: Hashable, tape: Tape) -> None:
        if len(self._tapes) == KINDS:
            self._tapes.clear()
        self._tapes[kind] = tape

    def _kind(self, state: nn.Module, part: Episode, weight: float) -> Hashable:
        """All that a recording takes for given; objects stand for themselves, and none can take another's place."""
        device = part.support_x.device.type
        autocast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
        tensors = (*part.tensors(), *state.parameters(), *state.buffers())
        return (
            weight,
            self._learner.rule,
            self._learner.engine,
            autocast and torch.get_autocast_dtype(device),
            *((tensor.shape, tensor.stride(), tensor.dtype, tensor.device) for tensor in tensors),
            *((parameter, parameter.requires_grad) for parameter in state.parameters()),
            *state.buffers(),
            *(entry for module in self._learner.network.modules() for entry in _settings(module)),
        )


def _settings(module: nn.Module) -> list[Hashable]:
    return [module, *((name, repr(value)) for name, value in vars(module).items() if isinstance(value, PLAIN))]


def _is_pure(state: nn.Module) -> bool:
    """Tell whether parameters and images alone count: no modules of others, whose code may do anything, no hooks."""
    return (
        not _has_any_global_hook()
        and all(_is_known(module) and not any(getattr(module, hooks) for hooks in HOOKS) for module in state.modules())
        and not any(
            parameter._backward_hooks or parameter._post_accumulate_grad_hooks for parameter in state.parameters()
        )
    )


def _is_known(module: nn.Module) -> bool:
    packages = {kind.__module__.partition(".")[0] for kind in type(module).__mro__}
    return packages <= KNOWN and "forward" not in vars(module)


def _is_plain(part: Episode) -> bool:
    return torch.is_grad_enabled() and not any(tensor.requires_grad for tensor in part.tensors())


def _add_to(parameter: nn.Parameter, gradient: Tensor) -> None:
    if parameter.grad is None:
        parameter.grad = torch.empty_like(parameter).copy_(gradient)  # the optimizer's own: not a view, not shared
    else:
        parameter.grad += gradient
