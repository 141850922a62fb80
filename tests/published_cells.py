# ruff: noqa: E501
"""The cells of the AReLU paper's tables with our own figures beside them, from experiments/published and docs/results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parents[1]
RESULTS, PUBLISHED = ROOT / "docs" / "results", ROOT / "experiments" / "published"
BEST_RUN = "_best_run"
BUDGETS = ("5 or more seeds", "2 to 4 seeds", "1 seed", "reduced")
"""What our figure rests on; the first three at the full length of the training."""


@cache
def _read(file: str) -> pd.DataFrame | None:
    """A file of docs/results, read once; None where there is none."""
    return pd.read_csv(RESULTS / file) if (RESULTS / file).is_file() else None


@dataclass(frozen=True)
class Source:
    """Runs of an experiment that measure cells of a table."""

    experiment: str
    fixed: Mapping[str, object] = field(default_factory=dict)
    """axes of the table that the experiment does not vary"""
    metric: str = ""
    """what it measures the published metric by, where that has another name"""
    share: float = 1.0
    """of the full training, in the shipped runs"""
    images: str = ""
    """what the shipped runs were trained on, where it is not what the paper trains on"""

    @property
    def runs(self) -> pd.DataFrame | None:
        """The shipped runs; None where none are."""
        runs = _read(f"{self.experiment}_runs.csv")
        return None if runs is None else runs.assign(**self.fixed)


@dataclass(frozen=True)
class Table:
    """A table of the paper."""

    label: str
    """the paper's, without `tab:`"""
    published: str
    """name of the file of its figures"""
    command: str
    sources: Sequence[Source]
    agreement: str
    """setting by setting: what is as in the paper, and what is not"""


_HELD_BACK = "54,001 of 60,000 images: a tenth is held back to choose by"
_MNIST = (
    "MNIST-Conv (10, 20, 40 channels, kernels 5, 5, 3), SGD with momentum 0.9 or Adam, 1e-2 to 1e-5, 5 runs, 19 activations: as in the paper; "
    "batches of 128 and pixels in [0, 1]: as in the authors' code; 54,001 images train and 5,999 validate, the paper trains on 60,000; "
    "Maxout, Comb and SLAF as the authors coded them"
)
_FIRST = (Source("mnist_first_epoch", images=_HELD_BACK),)
_TWENTY = (Source("mnist_curves", metric="paper/best_epoch_test/accuracy"), Source("mnist_20_epochs"))
_AS_PRINTED = (
    "`mnist_curves` follows the published procedure: 60,000 images, 20 epochs, the best epoch on the test images; "
    "`mnist_20_epochs` chooses the epoch on 5,999 images held back. Otherwise as the first epoch"
)
TABLES = (
    Table(
        "mnist-1st-mean", "mnist_first_epoch_mean", "python -m arelu_meta.paper run first_epoch", _FIRST,
        f"{_MNIST}; 1 epoch: as in the paper",
    ),
    Table(
        "mnist-1st-best", "mnist_first_epoch_best", "python -m arelu_meta.paper run first_epoch", _FIRST,
        "the same runs, the best of them",
    ),
    Table("mnist-20-mean", "mnist_20_epochs_mean", "python -m arelu_meta.paper run curves", _TWENTY, _AS_PRINTED),
    Table(
        "mnist-20-best", "mnist_20_epochs_best", "python -m arelu_meta.paper run curves", _TWENTY,
        "the same runs, the best of them",
    ),
    Table(
        "transfer", "transfer_mnist_to_svhn", "python -m arelu_meta.paper run transfer transfer_prelu transfer_controls",
        (Source("transfer_mnist_to_svhn"),),
        "read by the text: pre-training SGD 0.01 for 5, 10, 20 epochs, fine-tuning SGD 1e-5 for 100, 12 activations; the caption can be "
        "read as 5, 10, 20 epochs of fine-tuning (`transfer_mnist_to_svhn_caption`, no published figures beside it); 28x28 of three channels "
        "in [0, 1]: the authors' code; after the last epoch, the paper's is the best on the test images; 3 seeds, the authors' script has 5; "
        "a tenth of SVHN's training images is held back",
    ),
    Table(
        "meta", "maml_mnist", "python -m arelu_meta.paper run maml_paper",
        (Source("maml_mnist", images="54,001 of 60,000 images, as `paper` held a tenth back then"),),
        "MNIST-Conv, 5 ways, 1 and 5 shots, 5 inner steps, 32 tasks, 100 iterations, 12 activations: as in the paper; inner and outer rate "
        "0.005, as many queries as shots, a pool of 1,000 tasks, the best training batch as the result: the authors' code; beside it the "
        "accuracy on test images (`test/accuracy`), which the paper does not have",
    ),
    Table(
        "cifar10", "cifar10", "python -m arelu_meta.compare cifar10", (Source("cifar10"),),
        "three networks, SGD 0.1 with steps at 50 and 75, 100 epochs, batches of 128, Nesterov 0.9, decay 5e-4 also of alpha and beta, "
        "5 runs: as in the paper; crop and flip, and the networks' details (VGG without its wide head): assumed; 45,000 images train",
    ),
    Table(
        "cifar100", "cifar100", "python -m arelu_meta.compare cifar100", (Source("cifar100"),),
        "six networks, SGD 0.1, batches of 64, momentum 0.9, decay 5e-4, top-1 and top-5, 5 runs: as in the paper; 100 epochs with steps at "
        "50 and 75, crop and flip: the paper does not say; 45,000 images train",
    ),
    Table(
        "segmentation (text)", "segmentation", "python -m arelu_meta.compare segmentation", (Source("segmentation"),),
        "U-Net, Dice loss, Adam 1e-4, 100 epochs, sampling, cropping and scoring by Buda's code; the epoch is chosen on 10 patients and "
        "tested on 10 others, the published one is the best on its own 10; bilinear instead of spline resampling. "
        "8 of 110 patients are at hand: `segmentation_sample` shows the way and has no published figure beside it",
    ),
)  # fmt: skip


def cells_of(table: Table) -> pd.DataFrame:
    """Every published cell of a table with our figure: axes, metric, published, ours, n, budget, experiment.

    Ours is the mean over seeds, for a best run the maximum, of all runs that ended. Of several sources the first counts.
    """
    published = pd.read_csv(PUBLISHED / f"{table.published}.csv", dtype=str)
    axes = [name for name in published.columns if name not in ("metric", "value", "protocol", "source")]
    rows = []
    for _, cell in published.iterrows():
        place = {axis: cell[axis] for axis in axes}
        found = next((ours for source in table.sources if (ours := _measured(source, place, cell["metric"]))), {})
        rows.append({**place, "metric": cell["metric"], "published": float(cell["value"]), **found})
    columns = [*axes, "metric", "published", "ours", "n", "budget", "experiment"]
    return pd.DataFrame(rows, columns=columns)


def _measured(source: Source, place: Mapping[str, object], metric: str) -> dict[str, object]:
    """Our figure at a place of the table; nothing where no run of the source is there."""
    runs = source.runs
    if runs is None:
        return {}
    for axis, value in place.items():
        if pd.notna(value) and len(runs):
            runs = runs[[_same(one, value) for one in runs[axis]]]
    best = metric.endswith(BEST_RUN)
    column = source.metric or metric.removesuffix(BEST_RUN)
    values = runs[column].dropna() if column in runs else pd.Series(dtype=float)
    if not len(values):
        return {}
    ours = round(float(values.max() if best else values.mean()), 9)  # versions of NumPy differ in the last bits
    seeds = int(runs["seed"].nunique())
    if best and seeds == 1:  # no best of several
        return {}
    return {"ours": ours, "n": len(values), "budget": _budget(source.share, seeds), "experiment": source.experiment}


def _same(one: object, other: object) -> bool:
    try:
        return float(str(one)) == float(str(other))
    except ValueError:
        return str(one) == str(other)


def _budget(share: float, seeds: int) -> str:
    if share < 1:
        return "reduced"
    return BUDGETS[0] if seeds >= 5 else BUDGETS[1] if seeds > 1 else BUDGETS[2]
