"""The supervised loop: epochs over tensor-resident batches, and evaluation in large ones."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from arelu_meta.data.batches import Batches
from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import DivergedError, InputError
from arelu_meta.kinds.supervised_sections import OptimizationSection
from arelu_meta.learners.inner_loop import head_parameters
from arelu_meta.runtime import processes
from arelu_meta.training.layer_rates import layer_groups
from arelu_meta.training.schedule import rate_factor
from arelu_meta.training.speedups import PLAIN, Speedups

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Epoch:
    """One pass: its number from 1, mean training loss, share of correct answers while training, and speed."""

    number: int
    loss: float
    accuracy: float
    images_per_second: float


class SupervisedTrainer:
    """A network, its optimizer and what else training changes; `state_dict` holds all of it for a checkpoint."""

    def __init__(
        self,
        network: nn.Module,
        batches: Batches,
        settings: OptimizationSection,
        loss: Loss,
        *,
        head: str | None = None,
        keep_statistics: bool = False,
        speedups: Speedups = PLAIN,
    ) -> None:
        self.network, self.batches, self.settings, self.loss = network, batches, settings, loss
        self.head, self.keep_statistics = head, keep_statistics
        self.speedups, self._trained = speedups, speedups.prepare(network)
        self.optimizer = make_optimizer(network, settings, fused=speedups.fused)
        self.scaler = torch.amp.GradScaler(enabled=settings.precision == "fp16")
        self.averaged = (
            AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(settings.ema)) if settings.ema else None
        )
        self.done = 0

    @property
    def tested(self) -> nn.Module:
        """The network to evaluate: the running mean where there is one."""
        return self.network if self.averaged is None else self.averaged.module

    def epochs(self) -> Iterator[Epoch]:
        """Train pass after pass from where it stands, and yield after each; the caller validates, saves, stops."""
        while self.done < self.settings.epochs:
            yield self._epoch(self.done + 1)

    def state_dict(self) -> dict[str, Any]:
        """Give everything that a resumed training needs."""
        return {
            "network": self.network.state_dict(),
            "averaged": None if self.averaged is None else self.averaged.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "random": self.batches.random.get_state(),
            "done": self.done,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to where a checkpoint was taken."""
        if state.get("replayed") and state["done"] < self.settings.epochs:
            raise InputError("this checkpoint was written by --together, which cannot be gone on with; drop --resume")
        self.network.load_state_dict(state["network"])
        if self.averaged is not None:
            self.averaged.load_state_dict(state["averaged"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.batches.random.set_state(state["random"])
        self.done = state["done"]

    def _epoch(self, number: int) -> Epoch:
        start = time.perf_counter()
        self.network.train()
        self._freeze(number)
        if self.keep_statistics or number <= self.settings.freeze_epochs:
            self._hold_statistics()
        total_loss = torch.zeros((), device=self.batches.images.device)
        correct = torch.zeros((), device=self.batches.images.device)
        orders, accumulate = list(self.batches.orders()), self.settings.accumulate
        for step, numbers in enumerate(orders):
            set_rate(self.optimizer, self.settings, number - 1 + step / len(orders))
            first = step // accumulate * accumulate
            together = orders[first : first + accumulate]  # fewer at the end of a pass
            weight = len(numbers) / sum(map(len, together))
            loss, right = self._step(numbers, weight, last=step + 1 == first + len(together))
            total_loss += loss * len(numbers)
            correct += right
        for module in (self.network, self.averaged):
            if module is not None:
                processes.share_buffers(module)
        count = len(self.batches.images)
        mean = total_loss.item() / count
        if not math.isfinite(mean):
            raise DivergedError(f"the training loss is {mean} in epoch {number}; lower --lr, or set --clip-norm")
        self.done = number
        return Epoch(number, mean, correct.item() / count, count / (time.perf_counter() - start))

    def _step(self, numbers: Tensor, weight: float, *, last: bool) -> tuple[Tensor, Tensor]:
        """Add the gradient of one of the batches that make a step together, with its weight; on the last, update."""
        x, y = self.batches.gather(numbers, slice(processes.rank(), None, processes.world_size()))
        share = len(y) / len(numbers)
        figures = self._backward(x, y, share, weight) if len(y) else torch.zeros(2, device=x.device)
        if last:
            processes.add_gradients(self.network.parameters())
            self.scaler.unscale_(self.optimizer)
            if self.settings.clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.settings.clip_norm)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()
            if self.averaged is not None:
                self.averaged.update_parameters(self.network)
        return tuple(processes.add(figures))

    def _backward(self, x: Tensor, y: Tensor, share: float, weight: float) -> Tensor:
        """Add the gradient of this process's share of a batch; give its part of the loss, and the right answers."""
        with autocast(x.device, self.settings.precision):
            output = self._trained(self.speedups.lay_out(x))
            loss = self.loss(output, y)
        self.scaler.scale(loss * (share * weight)).backward()
        return torch.stack([loss.detach().float() * share, right_answers(output.detach(), y)])

    def _freeze(self, number: int) -> None:
        """Let only the head learn in the first epochs."""
        frozen = self.settings.freeze_epochs
        if frozen and number <= frozen + 1:
            head = self._head_parameters()
            for name, parameter in self.network.named_parameters():
                parameter.requires_grad_(number > frozen or name in head)

    def _hold_statistics(self) -> None:
        """Let norms outside the head keep the statistics they have, and use them."""
        inside = {name.rpartition(".")[0] for name in self._head_parameters()}
        for name, module in self.network.named_modules():
            if getattr(module, "running_mean", None) is not None and name not in inside:
                module.eval()

    def _head_parameters(self) -> frozenset[str]:
        if self.head is None:
            return head_parameters(self.network)
        inside = self.network.get_submodule(self.head).named_parameters()
        return frozenset(f"{self.head}.{name}" for name, _ in inside)


def make_optimizer(network: nn.Module, settings: OptimizationSection, *, fused: bool = False) -> Optimizer:
    """Make the optimizer of the settings, activation parameters and layers in groups of their own."""
    groups = layer_groups(
        network,
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        activation_lr_multiplier=settings.activation_lr_multiplier,
        activation_weight_decay=settings.activation_weight_decay,
        layer_decay=settings.layer_decay,
    )
    options: dict[str, Any] = {"lr": settings.lr, "fused": fused or None}  # None: torch's own choice
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, momentum=settings.momentum, nesterov=settings.nesterov, **options)
    return (torch.optim.Adam if settings.optimizer == "adam" else torch.optim.AdamW)(groups, **options)


def set_rate(optimizer: Optimizer, settings: OptimizationSection, epoch: float) -> None:
    """Bring the learning rates to where the schedule has them after so many passes."""
    factor = rate_factor(
        epoch,
        schedule=settings.schedule,
        epochs=settings.epochs,
        milestones=settings.milestones,
        warmup_epochs=settings.warmup_epochs,
    )
    for group in optimizer.param_groups:
        group["lr"] = group["base_lr"] * factor


def right_answers(output: Tensor, labels: Tensor) -> Tensor:
    """Number of correct answers of a classifier; of a segmenter, whose output has as many axes as its labels, zero."""
    if output.dim() == labels.dim():
        return output.new_zeros((), dtype=torch.float32)
    return (output.argmax(1) == labels).sum().float()


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """The number format of a forward pass."""
    kind = torch.float16 if precision == "fp16" else torch.bfloat16
    return torch.autocast(device.type, dtype=kind, enabled=precision != "fp32")


@torch.inference_mode()
def predict(network: nn.Module, images: ImageSet, *, batch: int = 1024) -> Tensor:
    """Output of the network for all images in order, on the CPU, in large batches."""
    network.eval()
    numbers = torch.arange(len(images), device=images.device)
    return torch.cat([network(images.pixels(part)).float().cpu() for part in numbers.split(batch)])
