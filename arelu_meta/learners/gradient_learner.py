"""Learners that adapt by gradient: an engine computes the inner loop, the outer step differentiates through it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from arelu_meta.backbones.norm import BATCH_NORMS
from arelu_meta.data.episodes import Episode
from arelu_meta.errors import InputError, first_line
from arelu_meta.kernels.episode_operations import ExactOperations
from arelu_meta.kernels.recorded_step import RECORD_AFTER, RecordedStep
from arelu_meta.learners.engines import Engine
from arelu_meta.learners.episode_clip import clipped_sum
from arelu_meta.learners.functional_network import FunctionalNetwork, Parameters
from arelu_meta.learners.inner_loop import LOSSES, InnerRule, episode_losses, query_pass
from arelu_meta.learners.learner import Adapted, Learner, query_score
from arelu_meta.learners.moving import head_parameters, moving_names, names_of_parts

# In what torch raises where a function has no second derivative.
NO_SECOND_DERIVATIVE = ("derivative for", "once_differentiable", "don't support automatic differentiation")


class GradientLearner(Learner):
    """Learn initial parameters from which a few gradient steps on the support set solve the query set.

    The network's layers and buffers are left as they are; only the outer optimizer changes its parameters. While
    episodes are computed, batch norms take the statistics of the batch, because running ones leak between episodes.

    Args:
        network: any module that maps images (N, C, H, W) to logits (N, ways).
        engine: what computes the inner loop.
        rule: how an episode is adapted to; what the user froze (`requires_grad`) stays out of it, and names in `moving`
            may be patterns.
        test_steps: gradient steps in tests; None: those of the rule.
        chunk: episodes held in memory at once; 0: the whole batch.
    """

    def __init__(
        self, network: nn.Module, *, engine: Engine, rule: InnerRule, test_steps: int | None = None, chunk: int = 0
    ) -> None:
        super().__init__(network, chunk=chunk)
        if isinstance(network, (nn.DataParallel, nn.parallel.DistributedDataParallel, torch.jit.ScriptModule)):
            kind = type(network).__name__
            raise InputError(f"{kind} cannot be called with other parameters than its own; give the network inside it")
        self.engine, self.rule, self.test_steps = engine, rule, test_steps or rule.steps
        if not isinstance(rule.moving, str):
            self._move(rule.moving)

    @property
    def transductive(self) -> bool:
        """Whether queries see each other through the statistics of a norm."""
        return super().transductive or any(isinstance(module, BATCH_NORMS) for module in self.network.modules())

    @property
    def note(self) -> str:
        """Why episodes are computed one after another; empty where they are not."""
        return self.engine.note

    def prepare(self, episodes: Episode) -> None:
        """Find the head, where it decides what moves, by what the forward pass does; let the engine choose its way."""
        if episodes.support_y.is_floating_point() and episodes.support_y.dim() < 3:
            shape = tuple(episodes.support_y.shape)
            raise InputError(f"real targets are {shape}; give (episodes, N, d), one axis for the network's d outputs")
        if isinstance(self.rule.moving, str):
            head = head_parameters(self.network, episodes.support_x[0])
            self._move(names_of_parts(self.network, self.rule.moving, head))
        self.engine.prepare(self.network, self.rule, episodes)

    def _move(self, patterns: Iterable[str] | None) -> None:
        """Let the parameters adapt that names or patterns stand for, but for those that the user froze."""
        names = moving_names(self.network, patterns)
        if names is not None and not names:
            raise InputError("no parameter adapts: all that could are frozen (`requires_grad`), or `adapt` is empty")
        self.rule = replace(self.rule, moving=names)

    def query_loss(self, episodes: Episode, progress: float) -> tuple[Tensor, Tensor]:
        """Give each episode's query loss (episodes,) and logits (episodes, queries, ways) after the last step."""
        del progress  # the loss is the same throughout training
        self.prepare(episodes)
        logits = self.engine.logits(self.network, self.rule, episodes)[:, -1]
        return episode_losses(logits, episodes.query_y, self.rule.loss), logits

    def _add_gradient(self, episodes: Episode, progress: float, weight: float) -> tuple[Tensor, ...]:
        """Replay the step where it is recorded, and take it as written where not."""
        self.prepare(episodes)
        if self.recorded_step is not None and self.engine.recordable:
            settings = (weight, self.rule, self.engine, self.episode_clip)
            step = partial(self._gradients, episodes, progress, weight)
            outcome = self.recorded_step(step, episodes.tensors(), module=self.state(), settings=settings)
            if outcome is not None:
                return outcome
        try:
            return super()._add_gradient(episodes, progress, weight)
        except (RuntimeError, NotImplementedError) as error:
            if not any(words in str(error) for words in NO_SECOND_DERIVATIVE):
                raise
            raise InputError(
                f"torch cannot differentiate {type(self.network).__name__} twice ({first_line(error)}); "
                f"use `method='fomaml'` or 'reptile', which take first derivatives alone"
            ) from error

    def _gradients(
        self, episodes: Episode, progress: float, weight: float, learned: Sequence[Tensor]
    ) -> tuple[tuple[Tensor, ...], Sequence[Tensor | None]]:
        """Give losses and logits, and with `episode_clip` norms, and the gradients that belong to them."""
        if self.episode_clip is not None:
            return self._clipped_gradients(episodes, progress, weight, self.episode_clip, learned)
        losses, logits = self.query_loss(episodes, progress)
        return (losses, logits), torch.autograd.grad(losses.sum() * weight, learned, allow_unused=True)

    def _clipped_gradients(
        self, episodes: Episode, progress: float, weight: float, bound: float, learned: Sequence[Tensor]
    ) -> tuple[tuple[Tensor, ...], list[Tensor | None]]:
        """Give each episode parameters of its own where all are computed at once: one backward pass has all gradients.

        A loss of one's own may use the network's parameters in other ways, so there episodes are taken one by one.
        """
        ours = type(self).query_loss.__module__.startswith("arelu_meta.")
        if not (ours and self.engine.prepare(self.network, self.rule, episodes)):
            return super()._clipped_gradients(episodes, progress, weight, bound, learned)
        rule, count = self.rule, len(episodes)
        copies = {id(shared): shared.expand(count, *shared.shape) for shared in self.state().parameters()}
        start = {name: copies[id(parameter)] for name, parameter in self.network.named_parameters()}
        rates = {name: copies[id(rate)] for name, rate in rule.lr.items()} if isinstance(rule.lr, Mapping) else rule.lr
        self.rule = replace(rule, start=start, lr=rates)
        try:
            losses, logits = self.query_loss(episodes, progress)
        finally:
            self.rule = rule
        own = torch.autograd.grad(losses.sum(), [copies[id(shared)] for shared in learned], allow_unused=True)
        gradients, norms = clipped_sum(own, bound, weight)
        return (losses.detach(), logits.detach(), norms), gradients

    def record_steps(self, *, after: int = RECORD_AFTER) -> None:
        """Record the operations of the outer step after so many, and replay them: same results, faster.

        Ignored where steps may differ: on other engines than `func`, with a loss of one's own, and by methods whose
        loss changes during training.
        """
        alike = type(self).query_loss is GradientLearner.query_loss and self.rule.loss in LOSSES.values()
        if alike and self.engine.recordable:
            self.recorded_step = RecordedStep(after)

    @torch.no_grad()
    def adapt(
        self, support_x: Tensor, support_y: Tensor, *, steps: int | None = None, lr: float | None = None
    ) -> Adapted:
        """Take `test_steps` gradient steps on the support; `steps` and `lr` replace what was trained with."""
        if steps is not None and steps < 1:
            raise InputError(f"steps = {steps}; adapting takes at least 1")
        if lr is not None and isinstance(self.rule.lr, Mapping):
            raise InputError(f"lr = {lr}, but this model learned its inner rates; leave `lr` out")
        steps = self.test_steps if steps is None else steps
        support = support_x.unsqueeze(0), support_y.unsqueeze(0)  # a batch of one episode, without queries
        episode = Episode(*support, support[0][:, :0], support[1][:, :0])
        self.prepare(episode)
        rule = replace(self.rule, steps=steps, lr=self.rule.lr if lr is None else lr)
        adapted = self.engine.adapted_parameters(self.network, rule, episode)
        # Copies: parameters that do not move would otherwise follow later training of the network.
        parameters = {name: parameter[0].detach().clone() for name, parameter in adapted.items()}
        return AdaptedNetwork(FunctionalNetwork(self.network), parameters, support_x)

    def query_logits(self, episodes: Episode) -> Tensor:
        """Adapt `test_steps` times and answer the queries, (episodes, queries, ways)."""
        return self.test_logits(episodes, every_step=False)[:, -1]

    @torch.no_grad()
    def accuracy_by_step(self, episodes: Episode) -> Tensor:
        """Adapt `test_steps` times and give the accuracy at every point, (episodes, test_steps + 1)."""
        return query_score(self.test_logits(episodes, every_step=True), episodes.query_y.unsqueeze(1))

    def test_logits(self, episodes: Episode, *, every_step: bool) -> Tensor:
        """Adapt `test_steps` times and answer, at every point or at the last: (episodes, points, queries, ways)."""
        self.prepare(episodes)
        rule = replace(self.rule, steps=self.test_steps)
        chunks = episodes.chunks(self.chunk or len(episodes))
        return torch.cat([self.engine.logits(self.network, rule, chunk, every_step=every_step) for chunk in chunks])


@dataclass(frozen=True, eq=False)
class AdaptedNetwork:
    """The parameters after the last step; the support stays beside for norms that take their statistics from it."""

    function: FunctionalNetwork
    parameters: Parameters
    support_x: Tensor

    def logits(self, query_x: Tensor) -> Tensor:
        """Answer queries (queries, C, H, W) with logits (queries, ways)."""
        with ExactOperations():
            forward = partial(self.function, self.parameters)
            return query_pass(forward, self.function.network, self.support_x, query_x)
