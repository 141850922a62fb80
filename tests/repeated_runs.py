# ruff: noqa: E501
"""docs/results/repeats.md: what moves when a comparison is repeated, from two tables of runs each.

python -m tests.repeated_runs       # writes the page again
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from tests.shipped_results import RESULTS

PAGE = RESULTS / "repeats.md"
SCORE = "test/accuracy"
HEAD = """# What moves when a comparison is repeated

*The same commands with the same seeds: on another thread count, at another commit, on another processor.*

Settings and seeds are equal in each pair, so weights and batches or episodes are; what differs is the order in which numbers are added up. Accuracies are on the test images, in
percentage points; an arm's mean is over the seeds that both have. Written by `python -m tests.repeated_runs` from the runs of the reports and, for the repeated ones, from `repeats/*.csv`.

"""
TAIL = """
- **Where training is steady, digits move and results do not.** Away from Adam at 0.01, the largest rate of the grid, no run of the first epoch moved by more than {steady:.2f} points.
- **Where it is not, single runs move by as much as arms differ**: with Adam at 0.01 by up to {largest:.2f} points. A report's intervals are over seeds and contain this; a single run is not to be
  compared across machines or thread counts.
- **At the edge of what a rate bears, rounding decides whether a training diverges**: of `learning_rates` up to 0.01 no run moved by more than {low:.2f} points, at 0.03 by up to {edge:.2f}, and
  one of AReLU's five ended at {fell:.1f} % in one repetition and diverged in the other; from 0.1 on accuracies of one run are up to {wild:.0f} points apart. At each arm's own rate AReLU's lead over ReLU was {first:+.2f} points and
  is {again:+.2f}: the verdict, a difference within the margin of 1 point, is the same.
- **MAML multiplies rounding more than that**: five inner steps are differentiated through, and one unit in the last place can decide whether an episode's gradient explodes
  ([bounded gradients](../meta_learning.md#bounded-gradients)). Of `maml_mnist_clip`, AReLU's trainings without a bound moved by {maml_none:.1f} points in the median and up to {maml_none_most:.1f}, those with one by
  {maml_25:.1f} and up to {maml_25_most:.1f}; the means of 20 seeds by {mean_none:.2f} and {mean_25:.2f}.
- `compare` says in a note where runs of one report differ in threads, machine or generation of kernels.
"""


@dataclass(frozen=True)
class Repeat:
    """Two tables of runs of one experiment."""

    experiment: str
    first: str
    """path of the runs, below docs/results"""
    again: str
    differs: str
    axes: Sequence[str]
    """what a run is told by, beside arm and seed"""

    def pairs(self) -> pd.DataFrame:
        """The runs that both have: their place, and both scores."""
        place = ["activation", *self.axes, "seed"]
        tables = [pd.read_csv(RESULTS / name, dtype=dict.fromkeys(self.axes, str)) for name in (self.first, self.again)]
        for table in tables:
            for axis in self.axes:
                table[axis] = [_word(value) for value in table[axis]]
        both = tables[0].merge(tables[1], on=place, suffixes=("_first", "_again"), validate="one_to_one")
        both["apart"] = (both[f"{SCORE}_again"] - both[f"{SCORE}_first"]).abs()
        return both.dropna(subset=["apart"])


_FIRST, _AXES = "mnist_first_epoch_runs.csv", ("optimizer", "lr")
REPEATS = (
    Repeat("learning_rates", "repeats/learning_rates_729a989.csv", "learning_rates_runs.csv", "commit b2be323 in place of 729a989 and 7420f53, another machine, older kernels", ("lr",)),
    Repeat("gain_controls", "gain_controls_runs.csv", "repeats/gain_controls_two_threads.csv", "two threads in place of one; the same machine and commit", ()),
    Repeat("maml_mnist_clip", "repeats/maml_mnist_clip_76b833a.csv", "maml_mnist_clip_runs.csv", "commit 842ee6c in place of 76b833a, another machine, kernels of generation 3 in place of 1", ("episode_clip",)),
    Repeat("mnist_first_epoch", "repeats/mnist_first_epoch_02017ea.csv", _FIRST, "commit 02017ea in place of bd7f58f, an AMD EPYC, perhaps another", _AXES),
    Repeat("mnist_first_epoch", "repeats/mnist_first_epoch_76b833a.csv", _FIRST, "commit 76b833a in place of bd7f58f, an AMD EPYC, perhaps another", _AXES),
    Repeat("mnist_first_epoch", "repeats/mnist_first_epoch_b9d2c08.csv", _FIRST, "commit b9d2c08 in place of bd7f58f, another machine, channels not last", _AXES),
)  # fmt: skip


def _word(value: str) -> str:
    try:
        return f"{float(value):g}"
    except ValueError:
        return value


def row(repeat: Repeat) -> list[str]:
    """One line of the table."""
    pairs = repeat.pairs()
    arms = pairs.groupby(["activation", *repeat.axes])
    means = (arms[f"{SCORE}_again"].mean() - arms[f"{SCORE}_first"].mean()).abs()
    worst = pairs.loc[pairs["apart"].idxmax()]
    where = ", ".join(str(worst[name]) for name in ("activation", *repeat.axes)) + f", seed {worst['seed']}"
    same = int((pairs["apart"] < 1e-9).sum())
    return [
        f"`{repeat.experiment}`", repeat.differs, str(len(pairs)), str(same), f"{pairs['apart'].median():.2f}",
        f"{pairs['apart'].max():.2f} ({where})", f"{means.max():.2f}",
    ]  # fmt: skip


def page() -> str:
    """The whole page."""
    header = [
        "comparison",
        "what differs",
        "runs in both",
        "same digits",
        "apart, median",
        "apart, most",
        "means of arms apart, most",
    ]
    lines = [header, ["---"] * len(header), *(row(repeat) for repeat in REPEATS)]
    epochs = pd.concat([repeat.pairs() for repeat in REPEATS if repeat.experiment == "mnist_first_epoch"])
    wild = (epochs["optimizer"] == "adam") & (epochs["lr"] == "0.01")
    steady = {"steady": epochs.loc[~wild, "apart"].max(), "largest": epochs.loc[wild, "apart"].max()}
    tail = TAIL.format(**steady, **_sweep(), **_meta_learning())
    return HEAD + "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n" + tail


def _sweep() -> dict[str, float]:
    """How far runs of the sweep over learning rates are apart, by rate; and the lead at own rates, 0.01 and 0.03."""
    (repeat,) = (repeat for repeat in REPEATS if repeat.experiment == "learning_rates")
    pairs = repeat.pairs()
    rate = pairs["lr"].astype(float)
    tables = [
        pd.read_csv(RESULTS / name).pivot(index="seed", columns=["activation", "lr"], values=SCORE)
        for name in (repeat.first, repeat.again)
    ]
    leads = [(table["arelu", 0.01] - table["relu", 0.03]).mean() for table in tables]
    fell = tables[0]["arelu", 0.03][tables[1]["arelu", 0.03].isna()]
    return {
        "low": pairs.loc[rate <= 0.01, "apart"].max(), "edge": pairs.loc[rate == 0.03, "apart"].max(),
        "wild": pairs.loc[rate > 0.03, "apart"].max(), "fell": fell.item(), "first": leads[0], "again": leads[1],
    }  # fmt: skip


def _meta_learning() -> dict[str, float]:
    """How far trainings of MAML are apart, and their means over seeds, with bounded gradients and without."""
    (repeat,) = (repeat for repeat in REPEATS if repeat.experiment == "maml_mnist_clip")
    found: dict[str, float] = {}
    for bound, pairs in repeat.pairs().groupby("episode_clip"):
        means = pairs[f"{SCORE}_again"].mean() - pairs[f"{SCORE}_first"].mean()
        found |= {f"maml_{bound}": pairs["apart"].median(), f"maml_{bound}_most": pairs["apart"].max()}
        found[f"mean_{bound}"] = abs(means)
    return found


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
