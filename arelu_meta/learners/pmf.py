"""P>M>F (Hu et al. 2022, arXiv 2204.07305): pretrained, meta-trained as prototypes, fine-tuned in every episode."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from arelu_meta.data.episodes import Episode
from arelu_meta.errors import InputError
from arelu_meta.learners.frozen_features import KeptTensor
from arelu_meta.learners.functional_network import Parameters
from arelu_meta.learners.inner_loop import InnerRule, adapt, episode_losses, graph_gradients
from arelu_meta.learners.learner import Adapted
from arelu_meta.learners.prototypes import ProtoNet
from arelu_meta.metrics import accuracy

STEPS = 10
RATES = (0.0, 0.0001, 0.001, 0.01)  # tried in validation; 0 leaves prototypes as they are
WEIGHT, BIAS = "prototypes.weight", "prototypes.bias"


class Pmf(ProtoNet):
    """Train as prototypical networks; in tests a linear head starts as the prototypes, and all is fine-tuned.

    The logits 2 <f, p> - |p|^2 of a query with features f answer as its distances to the prototypes p do, so that they
    are a linear layer to start from. A few steps of SGD on the support then move it and the network, in evaluation mode
    (running statistics stay). `choose` picks the rate by validation episodes; before, it is 0. The paper fine-tunes on
    augmented copies of the support; here it is the support itself.

    Args:
        network: any classifier, of which the features are taken, as in `ProtoNet`.
        test_steps: gradient steps in tests; None: 10.
        chunk: episodes held in memory at once while training; 0: the whole batch.

    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    >>> model = Pmf(network).adapt(torch.rand(4, 1, 2, 2), torch.tensor([0, 0, 1, 1]), steps=3, lr=0.1)
    >>> model.logits(torch.rand(5, 1, 2, 2)).shape
    torch.Size([5, 2])
    """

    needs_validation = True

    def __init__(self, network: nn.Module, *, test_steps: int | None = None, chunk: int = 0) -> None:
        super().__init__(network, chunk=chunk)
        self.test_steps = STEPS if test_steps is None else test_steps
        self.kept_rate = KeptTensor(torch.zeros(()))

    @property
    def rate(self) -> float:
        """The learning rate of the fine-tuning."""
        return 0.0 if self.kept_rate.value is None else float(self.kept_rate.value)

    def state(self) -> nn.Module:
        """Network and rate."""
        return nn.ModuleDict({"network": self.network, "rate": self.kept_rate})

    def query_loss(self, episodes: Episode, progress: float) -> tuple[Tensor, Tensor]:
        """Give each episode's query loss (episodes,) and logits (episodes, queries, ways) of prototypes."""
        del progress  # the loss is the same throughout training
        logits = super().query_logits(episodes)
        return episode_losses(logits, episodes.query_y), logits

    def query_logits(self, episodes: Episode) -> Tensor:
        """Fine-tune on each support and answer its queries, (episodes, queries, ways)."""
        return self._logits_by_step(episodes, self.rate)[:, -1]

    @torch.no_grad()
    def accuracy_by_step(self, episodes: Episode) -> Tensor:
        """Accuracy of prototypes and after each step, (episodes, test_steps + 1)."""
        return accuracy(self._logits_by_step(episodes, self.rate), episodes.query_y.unsqueeze(1))

    @torch.no_grad()
    def choose(self, episodes: Iterable[Episode]) -> str:
        """Pick the rate after which queries of validation episodes are answered best; the smaller of equal ones."""
        found = [
            torch.stack([accuracy(self._logits_by_step(batch, rate)[:, -1], batch.query_y) for rate in RATES])
            for batch in episodes
        ]
        means = torch.cat(found, dim=1).mean(1).tolist()  # one for each rate
        best = max(range(len(RATES)), key=means.__getitem__)
        self.kept_rate.value = torch.tensor(RATES[best])
        tried = ", ".join(f"{rate:g}: {100 * mean:.1f}" for rate, mean in zip(RATES, means, strict=True))
        return f"rate {RATES[best]:g} of {self.test_steps} steps of fine-tuning, by validation accuracy ({tried} %)"

    def adapt(
        self, support_x: Tensor, support_y: Tensor, *, steps: int | None = None, lr: float | None = None
    ) -> Adapted:
        """Fine-tune on the support; `steps` and `lr` replace what was chosen."""
        if steps is not None and steps < 1:
            raise InputError(f"steps = {steps}; adapting takes at least 1")
        steps, lr = self.test_steps if steps is None else steps, self.rate if lr is None else lr
        return FineTuned(self, self._fine_tuned(support_x, support_y, steps, lr)[-1], support_x)

    @torch.no_grad()
    def _fine_tuned(self, support_x: Tensor, support_y: Tensor, steps: int, lr: float) -> list[Parameters]:
        """Give the parameters of network and head before the first and after each step."""
        free = {name: parameter for name, parameter in self.network.named_parameters() if parameter.requires_grad}
        with evaluating(self.network):
            features = self.embed(support_x)  # (N, d)
            member = F.one_hot(support_y).to(features.dtype)  # (N, ways)
            means = member.T @ features / member.sum(0).unsqueeze(1)
            start = {name: parameter.detach() for name, parameter in free.items()}
            start |= {WEIGHT: 2 * means, BIAS: -means.square().sum(1)}
            if lr == 0:
                return [start] * (steps + 1)
            rule = InnerRule(lr=lr, steps=steps, first_order=True)
            return adapt(
                lambda point: rule.loss(self.answer(point, support_x), support_y),
                start,
                rule,
                gradients_of=partial(graph_gradients, first_order=True),
            )

    def answer(self, point: Parameters, images: Tensor) -> Tensor:
        """Logits (N, ways) of images with other parameters than the network's own."""
        own = {f"network.{name}": value for name, value in point.items() if name not in (WEIGHT, BIAS)}
        features = functional_call(self.features_of(images), own, (images,))
        return F.linear(features, point[WEIGHT], point[BIAS])

    def answer_queries(self, point: Parameters, support_x: Tensor, query_x: Tensor) -> Tensor:
        """Logits (queries, ways); where features depend on the batch, the support goes along."""
        with evaluating(self.network):
            if not self.transductive:
                return self.answer(point, query_x)
            return self.answer(point, torch.cat([support_x, query_x]))[len(support_x) :]

    @torch.no_grad()
    def _logits_by_step(self, episodes: Episode, lr: float) -> Tensor:
        """Answer queries at every step, (episodes, steps + 1, queries, ways)."""
        if lr == 0:
            with evaluating(self.network):
                return super().query_logits(episodes).unsqueeze(1).expand(-1, self.test_steps + 1, -1, -1)
        answers = []
        for episode in episodes:
            path = self._fine_tuned(episode.support_x, episode.support_y, self.test_steps, lr)
            queries = (episode.support_x, episode.query_x)
            answers.append(torch.stack([self.answer_queries(point, *queries) for point in path]))
        return torch.stack(answers)


class FineTuned:
    """A network and head that were fine-tuned on one support set."""

    def __init__(self, learner: Pmf, point: Parameters, support_x: Tensor) -> None:
        # Copies: what does not move would otherwise follow later training of the network.
        self.learner, self.point, self.support_x = learner, {n: v.clone() for n, v in point.items()}, support_x

    @torch.no_grad()
    def logits(self, query_x: Tensor) -> Tensor:
        """Answer queries (queries, C, H, W) with logits (queries, ways)."""
        return self.learner.answer_queries(self.point, self.support_x, query_x)


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Put a network into evaluation mode for a while."""
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
