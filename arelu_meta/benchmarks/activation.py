"""AReLU on a feature map, forward and backward: beside ReLU, PReLU and the formula as its authors wrote it."""

import shutil
from collections.abc import Callable, Iterator
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


def bench_activation(_root: str | None = None) -> Iterator[BenchReport]:
    """Compare on one feature map; the compiled one where there is a compiler."""
    random = torch.Generator().manual_seed(0)
    x, gradient = torch.randn(SHAPE, generator=random), torch.randn(SHAPE, generator=random)
    modules: dict[str, Callable[[Tensor], Tensor]] = {
        "AReLU": AReLU(),
        "nn.ReLU": nn.ReLU(),
        "nn.PReLU": nn.PReLU(),
        "AReLU, authors' formula": AuthorsFormula(),
    }
    check_same_function(AReLU(), AuthorsFormula(), x, gradient)
    if shutil.which("g++") or shutil.which("c++"):
        modules["AReLU, torch.compile"] = torch.compile(AReLU())

    def forward_backward(module: Callable[[Tensor], Tensor], leaf: Tensor) -> None:
        leaf.grad = None
        module(leaf).backward(gradient)

    work = {name: partial(forward_backward, module, x.clone().requires_grad_()) for name, module in modules.items()}
    timings = interleaved(work, repeats=15)
    relu = next(timing.minimum for timing in timings if timing.name == "nn.ReLU")
    ours = timings[0].minimum
    rows = [Row(t.name, t.minimum, t.minimum / ours, f"{t.minimum / relu:.2f} of nn.ReLU") for t in timings]
    shape = "x".join(str(side) for side in SHAPE)
    yield BenchReport(f"forward and backward, {shape}, {torch.get_num_threads()} threads", rows)


def check_same_function(ours: nn.Module, theirs: nn.Module, x: Tensor, gradient: Tensor) -> None:
    """Make sure that both give the same feature map and the same gradients, before they are timed."""
    results = []
    for module in (ours, theirs):
        leaf = x.clone().requires_grad_()
        module.zero_grad()
        out = module(leaf)
        out.backward(gradient)
        slopes = [parameter.grad.reshape(()) for parameter in module.parameters() if parameter.grad is not None]
        results.append((out.detach(), leaf.grad, *slopes))
    for one, other in zip(*results, strict=True):
        if not torch.allclose(one, other, rtol=1e-4, atol=1e-4 * float(other.abs().max())):
            raise RunError("AReLU and its authors' formula differ; their times cannot be compared")
