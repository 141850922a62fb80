"""The nine figures of the AReLU paper, drawn from finished runs of the experiments that repeat them.

Grad-CAM and feature maps are of the first seed; curves are means over seeds with their range.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from arelu_meta.console.command_line import output_folder
from arelu_meta.errors import InputError, unknown
from arelu_meta.paper.curves import alpha_and_beta, convergence, learned_curves, losses, mnist_panels, starts
from arelu_meta.paper.finished import Finished, finished_runs
from arelu_meta.paper.looks import feature_maps, first_layer_cam, mnist_conv, overlays

PAPER_ARMS = (
    "relu,celu,elu,gelu,leaky_relu,maxout_paper,relu6,rrelu,selu,sigmoid,softplus,swish,tanh,"
    "apl,comb_paper,pau,prelu,slaf_paper,arelu"
)
"""The nineteen activations of the paper's MNIST tables and figures."""
CONVERGENCE_ARMS = "relu,selu,leaky_relu,prelu,pau,arelu"
TWO = "activation=relu,arelu"
SEGMENTATION = ("segmentation", (TWO,), "segmentation_sample")

Draw = Callable[[Finished, str | None], Figure]


@dataclass(frozen=True)
class PaperFigure:
    """A figure of the paper, or a part of one."""

    name: str
    """the paper's label, with the part"""
    shows: str
    draw: Draw
    experiment: str = ""
    """what its runs belong to; empty: it needs none"""
    only: tuple[str, ...] = ()
    """the cells that are drawn, as `compare` takes them"""
    sample: str = ""
    """a smaller experiment, drawn where the first has no runs"""
    one_seed: bool = False
    """whether it shows networks of one seed"""

    @property
    def command(self) -> str:
        """The command that makes its runs."""
        words = ["python -m arelu_meta.compare", self.sample or self.experiment, "--workers 2 --threads 1"]
        words += ["--seeds 0"] if self.one_seed else []
        return " ".join([*words, *(["--only", *self.only] if self.only else [])])


FIGURES = (
    PaperFigure(
        "attention", "feature maps before and after ReLU and AReLU, of one MNIST test image", feature_maps,
        "mnist_curves", (TWO, "optimizer=sgd", "lr=0.01"), one_seed=True,
    ),
    PaperFigure("alpha_beta_a", "accuracy by epoch from sixteen starts of alpha and beta", starts, "arelu_init"),
    PaperFigure(
        "alpha_beta_b", "alpha and beta of every layer over training, from 0.25 and 1", alpha_and_beta,
        "arelu_init", ("alpha=0.25", "beta=1"),
    ),
    PaperFigure(
        "alpha_beta_c", "the learned AReLU of every layer, from 0.25 and 1", learned_curves,
        "arelu_init", ("alpha=0.25", "beta=1"),
    ),
    PaperFigure(
        "mnistplot", "test accuracy on MNIST by epoch at SGD 1e-4 and 1e-5", mnist_panels("test/accuracy"),
        "mnist_curves", (f"activation={PAPER_ARMS}", "optimizer=sgd", "lr=1e-4,1e-5"),
    ),
    PaperFigure(
        "converge", "test accuracy on CIFAR-100 by epoch in six networks", convergence,
        "cifar100_curves", (f"activation={CONVERGENCE_ARMS}",),
    ),
    PaperFigure(
        "gradcam", "Grad-CAM of ResNet-18's first layer on CIFAR-100 test images", first_layer_cam,
        "cifar100_curves", (TWO, "backbone=resnet18"), one_seed=True,
    ),
    PaperFigure("conv_mnist", "the layers of MNIST-Conv", mnist_conv),
    PaperFigure(
        "mnistplot_large", "training loss and test accuracy on MNIST by epoch at 1e-2 and 1e-3",
        mnist_panels("train/loss", "test/accuracy"),
        "mnist_curves", (f"activation={PAPER_ARMS}", "lr=1e-2,1e-3"),
    ),
    PaperFigure(
        "mnistplot_small", "training loss and test accuracy on MNIST by epoch at 1e-4 and 1e-5",
        mnist_panels("train/loss", "test/accuracy"),
        "mnist_curves", (f"activation={PAPER_ARMS}", "lr=1e-4,1e-5"),
    ),
    PaperFigure("seg_overlays", "segmentations of gliomas with ReLU and AReLU", overlays, *SEGMENTATION, one_seed=True),
    PaperFigure("seg_losses", "training and validation loss of the U-Net", losses, *SEGMENTATION),
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What became of a figure: the file and how many of its runs there were, or why it was not drawn."""

    figure: PaperFigure
    file: Path | None = None
    runs: int = 0
    planned: int = 0
    reason: str = ""

    @property
    def complete(self) -> bool:
        """Whether it was drawn from all runs that the experiment plans."""
        return self.file is not None and self.runs >= self.planned


def choose_figures(names: Sequence[str]) -> list[PaperFigure]:
    """Give figures by name, all without any; a figure's name stands for its parts too: `seg`, `alpha_beta`.

    Raises:
        InputError: an unknown name.
    """
    by_name: Mapping[str, PaperFigure] = {figure.name: figure for figure in FIGURES}
    chosen = []
    for name in names or by_name:
        found = [by_name[name]] if name in by_name else [one for one in FIGURES if one.name.startswith(f"{name}_")]
        if not found:
            raise unknown("figure", name, by_name)
        chosen += found
    return chosen


def draw_figures(
    figures: Sequence[PaperFigure], out: Path, *, budget: float = 1.0, root: str | None = None
) -> list[Outcome]:
    """Draw what there are runs for, as NAME.png in a folder.

    Args:
        figures: what to draw, as `choose_figures` gives it.
        out: the folder, which is made.
        budget: the budget that the comparisons were run with.
        root: folder of the published data sets, for pictures of test images.

    Returns:
        An outcome for each.
    """
    output_folder(out)
    return [_draw(figure, out, budget, root) for figure in figures]


def _draw(figure: PaperFigure, out: Path, budget: float, root: str | None) -> Outcome:
    try:
        runs = _runs_of(figure, budget)
        drawn = figure.draw(runs, root)
    except InputError as error:
        return Outcome(figure, reason=str(error))
    file = out / f"{figure.name}.png"
    drawn.savefig(file, dpi=150)
    return Outcome(figure, file, len(runs.runs), runs.planned)


def _runs_of(figure: PaperFigure, budget: float) -> Finished:
    """Find its finished runs; those of the smaller experiment where there is one and the other has none."""
    if not figure.experiment:
        return NO_RUNS
    seeds = [0] if figure.one_seed else None
    try:
        return finished_runs(figure.experiment, figure.only, budget=budget, seeds=seeds)
    except InputError:
        if not figure.sample:
            raise
        return finished_runs(figure.sample, figure.only, budget=budget, seeds=seeds)


NO_RUNS = Finished("", None, (), 0)  # type: ignore[arg-type]  # of a figure without any
