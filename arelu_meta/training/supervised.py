"""The supervised loop: epochs over tensor-resident batches."""

import math
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from arelu_meta.data.batches import Batches
from arelu_meta.errors import DivergedError, InputError
from arelu_meta.learners.moving import head_parameters, parameters_of
from arelu_meta.runtime import processes
from arelu_meta.training.forward import Precision, autocast, bears_channels_last
from arelu_meta.training.learning_rates import Schedule, layer_groups, lr_factor
from arelu_meta.training.losses import Loss, count_correct

OptimizerName = Literal["sgd", "adam", "adamw"]
COMPILERS = ("g++", "clang++", "c++")
FUSED_DEVICES = ("cpu", "cuda", "mps", "xpu")  # where torch has the kernels of SGD, Adam and AdamW


@dataclass(frozen=True)
class Epoch:
    """One pass: its number from 1, mean training loss, share of correct answers while training, speed, loss by step.

    The accuracy is NaN where the network gives masks.
    """

    number: int
    loss: float
    accuracy: float
    images_per_second: float
    step_losses: tuple[float, ...] = ()


@dataclass(eq=False, repr=False)
class SupervisedTrainer:
    """A network, its optimizer and what else training changes; `state_dict` holds all of it for a checkpoint.

    Memory layout, compilation and fused updates change results by rounding alone.

    Args:
        network: what is trained, in place; its output is (N, classes), or (N, 1, H, W) for masks.
        batches: pixels (N, C, H, W) and labels (N,) or masks (N, 1, H, W), one pass per iteration.
        loss: a function of output and labels that gives a scalar.
        epochs: passes over the images.
        optimizer: sgd, adam or adamw.
        lr: learning rate.
        momentum: momentum of sgd.
        nesterov: Nesterov momentum of sgd.
        weight_decay: weight decay of all but activation parameters.
        activation_lr_multiplier: learning rate of activation parameters, as a multiple.
        activation_weight_decay: weight decay of activation parameters.
        layer_decay: each layer's learning rate as a multiple of the next one's.
        schedule: constant, step (times 0.1 after each of `milestones`) or cosine.
        milestones: epochs of the step schedule.
        warmup_epochs: epochs over which the learning rate rises from zero.
        freeze_epochs: epochs in which only the head is trained.
        accumulate: batches whose gradients are added up for one step.
        clip_norm: bound on the norm of all gradients together.
        ema: decay of a running mean of the weights, which `tested` then is; 0: none.
        precision: number format of the forward pass; fp16 scales the loss.
        head: path of the layer that frozen epochs train; None: the last one.
        keep_statistics: leave running statistics of batch norms outside the head as they are.
        channels_last: keep the channels of a pixel side by side in memory; None: on a CPU, where convolutions are
            faster so, unless the network takes another layout for granted.
        compile: compile the training pass with torch.compile.
        fused: update all parameters in one fused kernel.

    Raises:
        InputError: the device has no fused optimizers, or there is no compiler for `compile`.

    Example:
        >>> from arelu_meta import data
        >>> digits = data.load("digits")  # 1,797 images of 1x28x28
        >>> net = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 10))
        >>> batches = Batches(digits, 256, torch.Generator().manual_seed(0))
        >>> trainer = SupervisedTrainer(net, batches, nn.functional.cross_entropy, epochs=2, lr=0.1)
        >>> [epoch.number for epoch in trainer.train()]
        [1, 2]
    """

    network: nn.Module
    batches: Batches
    loss: Loss
    _: KW_ONLY
    epochs: int = 20
    optimizer: OptimizerName = "sgd"
    lr: float = 0.01
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0
    activation_lr_multiplier: float = 1.0
    activation_weight_decay: float = 0.0
    layer_decay: float = 1.0
    schedule: Schedule = "constant"
    milestones: Sequence[int] = ()
    warmup_epochs: int = 0
    freeze_epochs: int = 0
    accumulate: int = 1
    clip_norm: float | None = None
    ema: float = 0.0
    precision: Precision = "fp32"
    head: str | None = None
    keep_statistics: bool = False
    channels_last: bool | None = None
    compile: bool = False
    fused: bool = False

    def __post_init__(self) -> None:
        device = next(self.network.parameters()).device.type
        if self.fused and device not in FUSED_DEVICES:
            raise InputError(f"torch has no fused optimizers for {device}; drop `fused`")
        if self.channels_last is None:
            self.channels_last = device == "cpu" and bears_channels_last(self.network, self._two_images())
        if self.channels_last:
            self.network.to(memory_format=torch.channels_last)
        self._forward = self.network
        if self.compile:
            compilers = [name for name in (os.environ.get("CXX", ""), *COMPILERS) if name]
            if device == "cpu" and not any(shutil.which(name) for name in compilers):
                known = ", ".join(COMPILERS)
                raise InputError(f"`compile` on a CPU needs a C++ compiler ({known}); install one, or drop `compile`")
            self._forward = torch.compile(self.network)  # type: ignore[assignment]
        self.torch_optimizer = self.build_optimizer(self.network)
        # Without a device torch takes CUDA, and the scaler of a CPU would scale nothing.
        self.scaler = torch.amp.GradScaler(device, enabled=self.precision == "fp16")
        self.averaged = AveragedModel(self.network, multi_avg_fn=get_ema_multi_avg_fn(self.ema)) if self.ema else None
        self._head_parameters = self._find_head() if self.freeze_epochs or self.keep_statistics else frozenset[str]()
        self.done = 0

    def _find_head(self) -> frozenset[str]:
        if self.head is not None:
            return parameters_of(self.network, self.head)
        return head_parameters(self.network, self._two_images())

    def _two_images(self) -> Tensor:
        """Give images to try the network with, one where there are no two."""
        images, parameter = self.batches.images, next(self.network.parameters())
        two = images.pixels(torch.arange(min(2, len(images)), device=images.device))
        return two.to(parameter.device, parameter.dtype)

    @property
    def tested(self) -> nn.Module:
        """The network to evaluate: the running mean where there is one."""
        return self.network if self.averaged is None else self.averaged.module

    def train(self) -> Iterator[Epoch]:
        """Train pass after pass from where it stands, and yield after each; the caller validates, saves, stops.

        Raises:
            DivergedError: the training loss of an epoch is not finite.
        """
        while self.done < self.epochs:
            yield self._epoch(self.done + 1)

    def state_dict(self) -> dict[str, Any]:
        """Give everything that a resumed training needs."""
        return {
            "network": self.network.state_dict(),
            "averaged": None if self.averaged is None else self.averaged.state_dict(),
            "optimizer": self.torch_optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "random": self.batches.random.get_state(),
            "done": self.done,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to where a checkpoint was taken."""
        if state.get("replayed") and state["done"] < self.epochs:
            raise InputError("this checkpoint was written with `together`, which cannot be resumed; drop `resume`")
        self.network.load_state_dict(state["network"])
        if self.averaged is not None:
            self.averaged.load_state_dict(state["averaged"])
        self.torch_optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.batches.random.set_state(state["random"])
        self.done = state["done"]

    def _epoch(self, number: int) -> Epoch:
        start = time.perf_counter()
        self._set_mode(number)
        total_loss = torch.zeros((), device=self.batches.images.device)
        correct = torch.zeros((), device=self.batches.images.device)
        orders, step_losses = list(self.batches.orders()), list[Tensor]()
        batches = self.batches.passed(orders, slice(processes.rank(), None, processes.world_size()))
        for step, (numbers, batch) in enumerate(zip(orders, batches, strict=True)):
            self.set_lr(self.torch_optimizer, number - 1 + step / len(orders))
            first = step // self.accumulate * self.accumulate
            added_up = orders[first : first + self.accumulate]  # fewer at the end of a pass
            weight = len(numbers) / sum(map(len, added_up))
            loss, right = self._step(batch, len(numbers), weight, last=step + 1 == first + len(added_up))
            if step == first:
                step_losses.append(loss * weight)
            else:
                step_losses[-1] = step_losses[-1] + loss * weight
            total_loss += loss * len(numbers)
            correct += right
        for module in (self.network, self.averaged):
            if module is not None:
                processes.broadcast_buffers(module)
        count = len(self.batches.images)
        mean = total_loss.item() / count
        if not math.isfinite(mean):
            raise DivergedError(f"the training loss is {mean} in epoch {number}; lower `lr`, or set `clip_norm`")
        self.done = number
        speed, by_step = count / (time.perf_counter() - start), tuple(torch.stack(step_losses).tolist())
        return Epoch(number, mean, correct.item() / count, speed, by_step)

    def build_optimizer(self, network: nn.Module) -> Optimizer:
        """Build the optimizer of these settings for a network."""
        groups = layer_groups(
            network,
            lr=self.lr,
            weight_decay=self.weight_decay,
            activation_lr_multiplier=self.activation_lr_multiplier,
            activation_weight_decay=self.activation_weight_decay,
            layer_decay=self.layer_decay,
        )
        options: dict[str, Any] = {"lr": self.lr, "fused": self.fused or None}  # None: torch's own choice
        if self.optimizer == "sgd":
            return torch.optim.SGD(groups, momentum=self.momentum, nesterov=self.nesterov, **options)
        return (torch.optim.Adam if self.optimizer == "adam" else torch.optim.AdamW)(groups, **options)

    def set_lr(self, optimizer: Optimizer, epoch: float) -> None:
        """Set the learning rates to the schedule's after so many passes."""
        factor = lr_factor(
            epoch,
            schedule=self.schedule,
            epochs=self.epochs,
            milestones=self.milestones,
            warmup_epochs=self.warmup_epochs,
        )
        for group in optimizer.param_groups:
            group["lr"] = group["base_lr"] * factor

    def _set_mode(self, number: int) -> None:
        """Set training mode; in frozen epochs, let only the head learn, and norms outside it keep their statistics."""
        self.network.train()
        frozen = number <= self.freeze_epochs
        if not self.freeze_epochs and not self.keep_statistics:
            return
        head = self._head_parameters
        if self.freeze_epochs and number <= self.freeze_epochs + 1:
            for name, parameter in self.network.named_parameters():
                parameter.requires_grad_(not frozen or name in head)
        if frozen or self.keep_statistics:
            modules_of_head = {name.rpartition(".")[0] for name in head}
            for name, module in self.network.named_modules():
                if getattr(module, "running_mean", None) is not None and name not in modules_of_head:
                    module.eval()

    def _step(self, batch: tuple[Tensor, Tensor], whole: int, weight: float, *, last: bool) -> tuple[Tensor, Tensor]:
        """Add the gradient of one of the batches that make a step together, with its weight; on the last, update.

        Each process has its share of the batch of `whole` images; loss and number of correct answers are those of the
        whole batch.
        """
        x, y = batch
        share = len(y) / whole
        figures = torch.zeros(2, device=x.device)
        if len(y):
            with autocast(x.device, self.precision):
                x = x.contiguous(memory_format=torch.channels_last) if self.channels_last else x
                output = self._forward(x)
                # The scaled loss, or a sum over the pixels of a mask, is more than half precision holds.
                output = output.float() if self.precision == "fp16" else output
                loss = self.loss(output, y)
            self.scaler.scale(loss * (share * weight)).backward()
            figures = torch.stack([loss.detach().float() * share, count_correct(output.detach(), y)])
        if last:
            processes.all_reduce_gradients(self.network.parameters())
            self.scaler.unscale_(self.torch_optimizer)
            if self.clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.clip_norm)
            self.scaler.step(self.torch_optimizer)
            self.scaler.update()
            self.torch_optimizer.zero_grad()
            if self.averaged is not None:
                self.averaged.update_parameters(self.network)
        return tuple(processes.all_reduce(figures))
