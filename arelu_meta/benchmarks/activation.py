"""AReLU beside ReLU, PReLU and GELU: on a feature map, where the authors' formula is too, and in training steps."""

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arelu_meta import activations, backbones
from arelu_meta.activations.arelu import AReLU
from arelu_meta.benchmarks.report import BenchReport, Row
from arelu_meta.benchmarks.timing import Timing, interleaved
from arelu_meta.errors import InputError, RunError
from arelu_meta.kernels import two_slopes
from arelu_meta.pretrained.installed import find_installed
from arelu_meta.registry import load_attribute
from arelu_meta.runtime.hardware import keep_freed_memory, threads
from arelu_meta.surgery import swap

SHAPES = ((128, 20, 8, 8), (128, 10, 24, 24), (64, 64, 32, 32))  # of mnist_conv, and as ResNets for CIFAR have them
COMPARED = ("arelu", "relu", "prelu", "gelu")
WITHOUT_BLOCKS = "arelu, formula without blocks"
STEPS = 9  # repeats of a training step


class AuthorsFormula(nn.Module):
    """relu(x) (1 + sigmoid(beta)) - relu(-x) clamp(alpha), term by term, for autograd to differentiate."""

    def __init__(self) -> None:
        super().__init__()
        self.alpha, self.beta = nn.Parameter(torch.tensor([0.9])), nn.Parameter(torch.tensor([2.0]))

    def forward(self, x: Tensor) -> Tensor:
        """Two maps, one for each side, and their difference."""
        return F.relu(x) * (1 + torch.sigmoid(self.beta)) - F.relu(-x) * torch.clamp(self.alpha, min=0.01, max=0.99)


def bench_activation(_root: str | None = None) -> Iterator[BenchReport]:
    """Compare on feature maps of three sizes, with one thread and with all; then in whole training steps.

    Memory is kept for the next tensor throughout, so that page faults do not decide.
    """
    counts = sorted({1, torch.get_num_threads()})
    with keep_freed_memory():
        for shape in SHAPES:
            for count in counts:
                with threads(count):
                    yield _on_feature_map(shape, compiled=shape == SHAPES[-1])
        for name, (make, batch, size) in NETWORKS.items():
            try:
                yield _training_steps(name, make, batch, size)
            except InputError as error:  # a package with a network that is not installed
                sys.stderr.write(f"warning: {name} is left out: {error}\n")


def _on_feature_map(shape: Sequence[int], *, compiled: bool) -> BenchReport:
    """Forward and backward through the activation alone; compiled too, where wanted and where there is a compiler."""
    random = torch.Generator().manual_seed(0)
    x, gradient = torch.randn(shape, generator=random), torch.randn(shape, generator=random)
    modules: dict[str, Callable[[Tensor], Tensor]] = {
        "AReLU": AReLU(),
        "nn.ReLU": nn.ReLU(),
        "nn.PReLU": nn.PReLU(),
        "AReLU, authors' formula": AuthorsFormula(),
    }
    check_same_function(AReLU(), AuthorsFormula(), x, gradient)
    if compiled and (shutil.which("g++") or shutil.which("c++")):
        modules["AReLU, torch.compile"] = torch.compile(AReLU())

    def forward_backward(module: Callable[[Tensor], Tensor], leaf: Tensor) -> None:
        leaf.grad = None
        module(leaf).backward(gradient)

    work = {name: partial(forward_backward, module, x.clone().requires_grad_()) for name, module in modules.items()}
    shown = "x".join(str(side) for side in shape)
    title = f"forward and backward, {shown}, {torch.get_num_threads()} threads"
    return BenchReport(title, _in_relus(interleaved(work, repeats=15), "nn.ReLU"))


def _training_steps(name: str, make: Callable[[str], nn.Module], batch: int, size: tuple[int, int, int]) -> BenchReport:
    """Whole training steps of a network with each activation: forward, backward, SGD; and AReLU without blocks.

    Channels last, as commands train on a CPU.
    """
    random = torch.Generator().manual_seed(0)
    x, labels = torch.randn(batch, *size, generator=random), torch.randint(10, (batch,), generator=random)
    x = x.to(memory_format=torch.channels_last)

    def step(network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        F.cross_entropy(network(x), labels).backward()
        optimizer.step()

    work: dict[str, Callable[[], object]] = {}
    for activation in COMPARED:
        torch.manual_seed(0)
        network = make(activation).train().to(memory_format=torch.channels_last)
        work[activation] = partial(step, network, torch.optim.SGD(network.parameters(), 1e-4, momentum=0.9))
    work[WITHOUT_BLOCKS] = without_blocks(work[COMPARED[0]])
    title = f"training step, {name}, {batch} images of {'x'.join(map(str, size))}, {torch.get_num_threads()} threads"
    return BenchReport(title, _in_relus(interleaved(work, repeats=STEPS), "relu"))


def without_blocks(work: Callable[[], object]) -> Callable[[], None]:
    """Do the same work with AReLU by its formula, which `kernels/two_slopes.py` does block by block on large maps."""

    def run() -> None:
        before, two_slopes.WORTHWHILE = two_slopes.WORTHWHILE, sys.maxsize
        try:
            work()
        finally:
            two_slopes.WORTHWHILE = before

    return run


def _in_relus(timings: Sequence[Timing], relu: str) -> list[Row]:
    """Make rows, ours first, that say how many times the way with ReLU each takes, by minima and by medians."""
    base = next(timing for timing in timings if timing.name == relu)
    return [
        Row(
            t.name,
            t.minimum,
            t.minimum / timings[0].minimum,
            f"{t.minimum / base.minimum:.2f} of {relu}, {t.median / base.median:.2f} by medians",
        )
        for t in timings
    ]


def _ours(backbone: str, size: tuple[int, int, int], activation: str) -> nn.Module:
    factory = activations.factory(activation)
    return backbones.build(backbone, activation=factory, channels=size[0], image_size=size[1:], classes=10)


def _efficientnet(activation: str) -> nn.Module:
    """Build EfficientNet-Lite0 of its package, without weights, and swap its ReLU6 for another activation."""
    installed = find_installed("efficientnet_lite0")
    network: nn.Module = load_attribute(installed.builder)(**installed.options)
    swap(network, activation)
    return network


NETWORKS: dict[str, tuple[Callable[[str], nn.Module], int, tuple[int, int, int]]] = {
    "mnist_conv": (partial(_ours, "mnist_conv", (1, 28, 28)), 128, (1, 28, 28)),
    "resnet18": (partial(_ours, "resnet18", (3, 32, 32)), 64, (3, 32, 32)),
    "EfficientNet-Lite0": (_efficientnet, 8, (3, 224, 224)),
}
"""Networks by name: how each is made with an activation, images per step, and their shape."""


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
