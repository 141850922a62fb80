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

from arelu_meta.activations.parameters import draws_random_numbers
from arelu_meta.errors import DivergedError, InputError
from arelu_meta.runtime import processes
from arelu_meta.training.losses import count_correct
from arelu_meta.training.supervised import Epoch, SupervisedTrainer

Snapshot = dict[str, Tensor]
DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


class StackedTrainer:
    """Trainers of one setting and several seeds, trained as one.

    Args:
        trainers: one per seed, alike but for weights and order of batches.

    Raises:
        InputError: a setting or a layer cannot be stacked.
    """

    def __init__(self, trainers: Sequence[SupervisedTrainer]) -> None:
        check_stackable(trainers[0])
        self.trainers = trainers
        networks = [trainer.network.train() for trainer in trainers]
        parameters, self.buffers = stack_module_state(networks)
        self.skeleton = copy.deepcopy(networks[0]).to("meta")  # what to compute; the numbers are in the stacks
        holder = copy.deepcopy(networks[0])  # the optimizer groups parameters by their names in a network
        for name, _ in list(holder.named_parameters()):
            module, _, attribute = name.rpartition(".")
            setattr(holder.get_submodule(module), attribute, nn.Parameter(parameters[name].detach()))
        self.parameters: dict[str, Tensor] = dict(holder.named_parameters())
        self.optimizer = trainers[0].build_optimizer(holder)

    def train(self) -> Iterator[list[tuple[Epoch, Snapshot]]]:
        """Train pass after pass; after each, give every seed's figures and a copy of its weights and buffers.

        Raises:
            DivergedError: the training loss of a seed is not finite.
        """
        for number in range(1, self.trainers[0].epochs + 1):
            yield self._epoch(number)

    def _epoch(self, number: int) -> list[tuple[Epoch, Snapshot]]:
        start, batches = time.perf_counter(), [trainer.batches for trainer in self.trainers]
        seeds, count = len(batches), len(batches[0].images)
        device = batches[0].images.device
        total_loss, correct = torch.zeros(seeds, device=device), torch.zeros(seeds, device=device)
        steps, step_losses = len(batches[0]), list[Tensor]()
        for step, numbers in enumerate(zip(*(each.orders() for each in batches), strict=True)):
            self.trainers[0].set_lr(self.optimizer, number - 1 + step / steps)
            drawn = [each.gather(some) for each, some in zip(batches, numbers, strict=True)]
            x, y = (torch.stack(tensors) for tensors in zip(*drawn, strict=True))  # (seeds, N, ...)
            # The sum of all losses has each seed's own gradient in each seed's own rows.
            self.optimizer.zero_grad()
            loss, right = vmap(self._loss_of_one)(self.parameters, self.buffers, x, y)
            loss.sum().backward()
            self.optimizer.step()
            step_losses.append(loss.detach())
            total_loss += step_losses[-1] * len(numbers[0])
            correct += right.detach()
        means, shares = (total_loss / count).tolist(), (correct / count).tolist()
        for index, mean in enumerate(means):
            if not math.isfinite(mean):
                raise DivergedError(f"the training loss is {mean} in epoch {number}, network {index + 1}; lower `lr`")
        by_step = torch.stack(step_losses, 1).tolist()  # (seeds, steps)
        speed = count * seeds / (time.perf_counter() - start)
        stacks = {**self.parameters, **self.buffers}
        return [
            (
                Epoch(number, means[index], shares[index], speed, tuple(by_step[index])),
                {name: stack[index].detach().clone() for name, stack in stacks.items()},
            )
            for index in range(seeds)
        ]

    def _loss_of_one(self, parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor, y: Tensor) -> Any:
        output = functional_call(self.skeleton, (parameters, buffers), (x,))
        return self.trainers[0].loss(output, y), count_correct(output.detach(), y)


class ReplayedTrainer(SupervisedTrainer):
    """A training that has taken place: gives its epochs again, each with the weights of that time."""

    def __init__(self, trainer: SupervisedTrainer, past: Sequence[tuple[Epoch, Snapshot]]) -> None:
        super().__init__(trainer.network, trainer.batches, trainer.loss, epochs=trainer.epochs)
        self.past = past

    def _epoch(self, number: int) -> Epoch:
        epoch, weights = self.past[number - 1]
        self.network.load_state_dict(weights, strict=False)  # buffers that are not saved are not in it
        self.done = number
        return epoch

    def state_dict(self) -> dict[str, Any]:
        """Weights of that time; optimizer and batches were the stacked training's, so it cannot be resumed."""
        return {**super().state_dict(), "replayed": True}


def check_stackable(trainer: SupervisedTrainer) -> None:
    """Refuse what stacked networks cannot do, or would do otherwise than one by one."""
    unsupported = {
        "`accumulate`": trainer.accumulate > 1,
        "`clip_norm`": trainer.clip_norm is not None,
        "`ema`": trainer.ema > 0,
        "`freeze_epochs`": trainer.freeze_epochs > 0,
        "`precision`": trainer.precision != "fp32",
        "torchrun": processes.world_size() > 1,
    }
    for name, used in unsupported.items():
        if used:
            raise InputError(f"`together` does not go with {name}; drop one of them")
    for module in trainer.network.modules():
        if isinstance(module, DROPOUTS) or draws_random_numbers(module):
            raise InputError(
                f"`together` cannot give each seed its own random numbers in {type(module).__name__}; drop `together`"
            )
