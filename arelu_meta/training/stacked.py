"""Several seeds of one setting trained together: their parameters stacked, one vectorised step for all.

Every seed has its own initial weights, its own order of batches and its own buffers; optimizers work number by number,
so the results are those of separate trainings but for rounding. What would tie the seeds together is refused.
"""

import copy
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from arelu_meta.errors import DivergedError, InputError
from arelu_meta.runtime import processes
from arelu_meta.training.supervised import Epoch, SupervisedTrainer, make_optimizer, right_answers, set_rate

Snapshot = dict[str, Tensor]


class StackedTrainer:
    """Trainers of one setting and several seeds, trained as one; `epochs` gives every seed's pass and weights."""

    def __init__(self, trainers: Sequence[SupervisedTrainer]) -> None:
        check_together(trainers)
        self.trainers, self.settings = trainers, trainers[0].settings
        networks = [trainer.network.train() for trainer in trainers]
        parameters, self.buffers = stack_module_state(networks)
        self.shape = copy.deepcopy(networks[0]).to("meta")  # what to compute; the numbers are in the stacks
        holder = copy.deepcopy(networks[0])  # the optimizer groups parameters by their names in a network
        for name, _ in list(holder.named_parameters()):
            module, _, own = name.rpartition(".")
            setattr(holder.get_submodule(module), own, nn.Parameter(parameters[name].detach()))
        self.parameters: dict[str, Tensor] = dict(holder.named_parameters())
        self.optimizer = make_optimizer(holder, self.settings, fused=trainers[0].speedups.fused)

    def epochs(self) -> Iterator[list[tuple[Epoch, Snapshot]]]:
        """Train pass after pass; after each, give every seed's figures and a copy of its weights and buffers."""
        for number in range(1, self.settings.epochs + 1):
            yield self._epoch(number)

    def _epoch(self, number: int) -> list[tuple[Epoch, Snapshot]]:
        start, batches = time.perf_counter(), [trainer.batches for trainer in self.trainers]
        seeds, count = len(batches), len(batches[0].images)
        device = batches[0].images.device
        total_loss, correct = torch.zeros(seeds, device=device), torch.zeros(seeds, device=device)
        steps = len(batches[0])
        for step, numbers in enumerate(zip(*(each.orders() for each in batches), strict=True)):
            set_rate(self.optimizer, self.settings, number - 1 + step / steps)
            drawn = [each.gather(some) for each, some in zip(batches, numbers, strict=True)]
            x, y = (torch.stack(parts) for parts in zip(*drawn, strict=True))  # (seeds, N, ...)
            loss, right = self._step(x, y)
            total_loss += loss * len(numbers[0])
            correct += right
        means = (total_loss / count).tolist()
        for place, mean in enumerate(means):
            if not math.isfinite(mean):
                raise DivergedError(f"the training loss is {mean} in epoch {number}, network {place + 1}; lower --lr")
        speed = count * seeds / (time.perf_counter() - start)
        shares = (correct / count).tolist()
        return [
            (Epoch(number, mean, share, speed), self._snapshot(place))
            for place, (mean, share) in enumerate(zip(means, shares, strict=True))
        ]

    def _step(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """One update of all seeds: the sum of their losses has each seed's own gradient in each seed's own rows."""
        self.optimizer.zero_grad()
        loss, right = vmap(self._one)(self.parameters, self.buffers, x, y)
        loss.sum().backward()
        self.optimizer.step()
        return loss.detach(), right.detach()

    def _one(self, parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor, y: Tensor) -> Any:
        output = functional_call(self.shape, (parameters, buffers), (x,))
        return self.trainers[0].loss(output, y), right_answers(output.detach(), y)

    def _snapshot(self, place: int) -> Snapshot:
        stacks = {**self.parameters, **self.buffers}
        return {name: stack[place].detach().clone() for name, stack in stacks.items()}


class Replayed(SupervisedTrainer):
    """A training that has taken place: gives its epochs again, each with the weights of that time."""

    def __init__(self, trainer: SupervisedTrainer, past: Sequence[tuple[Epoch, Snapshot]]) -> None:
        super().__init__(trainer.network, trainer.batches, trainer.settings, trainer.loss, speedups=trainer.speedups)
        self.past = past

    def _epoch(self, number: int) -> Epoch:
        epoch, weights = self.past[number - 1]
        self.network.load_state_dict(weights, strict=False)  # buffers that are not saved are not in it
        self.done = number
        return epoch

    def state_dict(self) -> dict[str, Any]:
        """Weights of that time; optimizer and batches were the stacked training's, so it cannot be gone on with."""
        return {**super().state_dict(), "replayed": True}


def check_together(trainers: Sequence[SupervisedTrainer]) -> None:
    """Refuse what stacked networks cannot do, or would do otherwise than one by one."""
    settings = trainers[0].settings
    unsupported = {
        "--accumulate": settings.accumulate > 1,
        "--clip-norm": settings.clip_norm is not None,
        "--ema": settings.ema > 0,
        "--freeze-epochs": settings.freeze_epochs > 0,
        "--precision": settings.precision != "fp32",
        "torchrun": processes.world_size() > 1,
    }
    for name, used in unsupported.items():
        if used:
            raise InputError(f"--together does not go with {name}; drop one of them")
    random = [module for module in trainers[0].network.modules() if _draws(module)]
    if random:
        raise InputError(
            f"--together cannot give each seed its own random numbers in {type(random[0]).__name__}; drop --together"
        )


def _draws(module: nn.Module) -> bool:
    return isinstance(module, nn.modules.dropout._DropoutNd) or "RReLU" in type(module).__name__
