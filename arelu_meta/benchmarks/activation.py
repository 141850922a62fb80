"""AReLU on a feature map, forward and backward: beside ReLU, PReLU and the formula as its authors wrote it."""

import shutil
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arelu_meta.activations.arelu import AReLU
from arelu_meta.benchmarks.report import BenchReport, Row
from arelu_meta.benchmarks.timing import interleaved
from arelu_meta.errors import RunError

SHAPE = (64, 64, 32, 32)


class AuthorsFormula(nn.Module):
    """relu(x) (1 + sigmoid(beta)) - relu(-x) clamp(alpha), term by term, for autograd to differentiate."""

    def __init__(self) -> None:
        super().__init__()
        self.alpha, self.beta = nn.Parameter(torch.tensor([0.9])), nn.Parameter(torch.tensor([2.0]))

    def forward(self, x: Tensor) -> Tensor:
        """Two maps, one for each side, and their difference."""
        return F.relu(x) * (1 + torch.sigmoid(self.beta)) - F.relu(-x) * torch.clamp(self.alpha, min=0.01, max=0.99)


def bench_activation(root: str | None = None) -> BenchReport:
    """Compare on one feature map; the compiled one where there is a compiler."""
    del root  # needs no images
    random = torch.Generator().manual_seed(0)
    x, given = torch.randn(SHAPE, generator=random), torch.randn(SHAPE, generator=random)
    ways: dict[str, Callable[[Tensor], Tensor]] = {
        "AReLU": AReLU(),
        "nn.ReLU": nn.ReLU(),
        "nn.PReLU": nn.PReLU(),
        "AReLU, authors' formula": AuthorsFormula(),
    }
    _check_equal(AReLU(), AuthorsFormula(), x, given)
    if shutil.which("g++") or shutil.which("c++"):
        ways["AReLU, torch.compile"] = torch.compile(AReLU())
    timings = interleaved({name: _pass(module, x, given) for name, module in ways.items()}, repeats=15)
    relu = next(timing.minimum for timing in timings if timing.name == "nn.ReLU")
    ours = timings[0].minimum
    rows = [
        Row(timing.name, timing.minimum, timing.minimum / ours, f"{timing.minimum / relu:.2f} of nn.ReLU")
        for timing in timings
    ]
    shape = "x".join(str(side) for side in SHAPE)
    return BenchReport(f"forward and backward, {shape}, {torch.get_num_threads()} threads", rows)


def _pass(module: Callable[[Tensor], Tensor], x: Tensor, given: Tensor) -> Callable[[], None]:
    leaf = x.clone().requires_grad_()
    return partial(_forward_backward, module, leaf, given)


def _forward_backward(module: Callable[[Tensor], Tensor], x: Tensor, given: Tensor) -> None:
    x.grad = None
    module(x).backward(given)


def _check_equal(ours: nn.Module, theirs: nn.Module, x: Tensor, given: Tensor) -> None:
    """Both must give the same feature map and the same gradients."""
    found = []
    for module in (ours, theirs):
        leaf = x.clone().requires_grad_()
        module.zero_grad()
        out = module(leaf)
        out.backward(given)
        slopes = [parameter.grad.reshape(()) for parameter in module.parameters() if parameter.grad is not None]
        found.append((out.detach(), leaf.grad, *slopes))
    for one, other in zip(*found, strict=True):
        if not torch.allclose(one, other, rtol=1e-4, atol=1e-4 * float(other.abs().max())):
            raise RunError("AReLU and its authors' formula differ; no speed is worth that")
