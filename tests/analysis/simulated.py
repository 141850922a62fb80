"""Coverage and false positives of whole reports, on simulated sweeps whose truth is known.

    python -m tests.analysis.simulated 20000     # sweeps of each kind, into docs/statistics.md; half a minute

Four arms of one true level, seeds paired; in one of them, the primary one, trainings may collapse. What is counted is
what a report says: its intervals, its verdicts, and how often it declines to give one. `counts` works that out for all
sweeps at once, with numpy and scipy; `counted` reads it from the report of one sweep, and a test holds the two to each
other sweep by sweep.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from arelu_meta.analysis.arms import ArmComparison, analyse
from arelu_meta.analysis.decisions import Outcome
from arelu_meta.analysis.estimates import Estimate, paired_difference
from arelu_meta.analysis.findings import Findings

LEVEL, CHANCE, MARGIN, FALLEN = 80.0, 20.0, 2.0, 40.0
ARMS = ("relu", "arelu", "elu", "prelu")
SIZES, SWEEPS = (5, 10, 20), 2000
PAGE = Path(__file__).parents[2] / "docs" / "statistics.md"
START, END = "<!-- coverage: start -->", "<!-- coverage: end -->"


def gaussian(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """No skew."""
    return random.normal(size=shape)


def skewed(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """A long tail of bad seeds: mean 0, variance 1, skewness -1.4; that of results, a sum of two, is -1."""
    return (2 - random.gamma(2, size=shape)) / math.sqrt(2)


@dataclass(frozen=True)
class Kind:
    """How seeds are distributed."""

    name: str
    noise: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
    collapse: float = 0.0
    """Share of the primary arm's trainings that fall by 40 points."""


KINDS = (
    Kind("Gaussian", gaussian),
    Kind("skewed", skewed),
    *(Kind(f"collapse {share:.0%}".replace("%", " %"), gaussian, share) for share in (0.1, 0.2, 0.4)),
)


def draw(kind: Kind, seeds: int, sweeps: int, random: np.random.Generator) -> np.ndarray:
    """Results, (sweeps, arms, seeds): luck of the seed, which all arms share, and luck of their own."""
    values = LEVEL + 2 * kind.noise(random, (sweeps, 1, seeds)) + 2 * kind.noise(random, (sweeps, len(ARMS), seeds))
    values[:, 1] -= FALLEN * (random.random((sweeps, seeds)) < kind.collapse)
    return values


def analysed(values: np.ndarray) -> ArmComparison:
    """One sweep (arms, seeds) as a report has it."""
    seeds = values.shape[1]
    runs = pd.DataFrame(
        {"activation": np.repeat(ARMS, seeds), "seed": np.tile(np.arange(seeds), len(ARMS)), "accuracy": values.ravel()}
    )
    given = {"units": {"accuracy": "%"}, "primary": "arelu", "margin": MARGIN, "chance": CHANCE}
    findings = Findings("simulated", "", "", runs, ("activation",), "activation", "relu", "accuracy", **given)
    return analyse(findings).primary[0]


def holds(interval: Estimate, truth: float) -> float:
    """1 or 0; NaN where there is no interval."""
    return float(interval.low <= truth <= interval.high) if np.isfinite(interval.low) else np.nan


def counted(values: np.ndarray, kind: Kind) -> dict[str, float]:
    """What the report of one sweep adds to each column."""
    comparison = analysed(values)
    primary, tests = comparison.arm("arelu"), {arm.name: arm.test for arm in comparison.arms if arm.test}
    rest = [test for name, test in tests.items() if name != "arelu"]
    # As far from the baseline as the margin: the sweep that equivalence is most often wrong about.
    at_margin = replace(
        primary.test, difference=paired_difference(primary.values + MARGIN, comparison.arm("relu").values)
    )
    return {
        "mean": holds(primary.estimate, LEVEL),
        "primary difference": holds(tests["arelu"].interval, 0.0),
        "the other two": float(all(holds(test.interval, 0.0) for test in rest)),
        "share that learned": holds(primary.learned, 100 * (1 - kind.collapse)),
        "ahead of the baseline": holds(primary.improvement, 50 * (1 - kind.collapse)),
        "primary found": float(tests["arelu"].differs),
        "any other found": float(any(test.differs for test in rest)),
        "equivalent at the margin": float(at_margin.outcome is Outcome.EQUIVALENT),
        "trainings fail": float(primary.outcome is Outcome.FAILING),
    }


def failures(results: np.ndarray) -> np.ndarray:
    """Which trainings failed, (sweeps, seeds): at chance, or all less than half as far above it as the upper group."""
    failed = results <= CHANCE + 0.2 * (100 - CHANCE)  # twice chance is more
    rest = np.sort(np.where(failed, np.nan, results))  # NaN last
    gaps = np.nan_to_num(np.diff(rest), nan=-1.0)
    above = gaps.argmax(1)[:, None] + 1
    upper = np.where(np.arange(rest.shape[1]) >= above, rest, np.nan)
    middle = np.array([np.median(own[~np.isnan(own)]) if (~np.isnan(own)).any() else np.nan for own in upper])
    below = np.take_along_axis(rest, above - 1, 1)[:, 0]
    two_groups = (gaps.max(1) >= 0) & (below - CHANCE < (middle - CHANCE) / 2)
    return failed | (two_groups[:, None] & (results <= below[:, None]))


@dataclass
class Student:
    """Mean and t statistic of each row of (sweeps, seeds), NaN left out."""

    values: np.ndarray

    def __post_init__(self) -> None:
        self.n = (~np.isnan(self.values)).sum(1)
        total = np.nansum(self.values, 1)
        self.mean = np.divide(total, self.n, out=np.full(len(total), np.nan), where=self.n > 0)
        squares = np.nansum((self.values - self.mean[:, None]) ** 2, 1)
        variance = np.divide(squares, self.n - 1, out=np.full(len(total), np.nan), where=self.n > 1)
        self.error = np.sqrt(variance / np.maximum(self.n, 1))

    def below(self, truth: float) -> np.ndarray:
        """Probability of a t statistic below that of the mean less a truth."""
        return stats.t.cdf((self.mean - truth) / self.error, np.maximum(self.n - 1, 1))

    def p(self, truth: float = 0.0) -> np.ndarray:
        """Two-sided; NaN below two values. The interval of confidence 1 - a holds the truth where p is above a."""
        below = self.below(truth)
        return 2 * np.minimum(below, 1 - below)


def exact_holds(successes: np.ndarray, n: int, truth: float) -> np.ndarray:
    """Whether Clopper and Pearson's interval holds a share: neither tail of the binomial is below 2.5 %."""
    low, high = stats.binom.cdf(successes, n, truth), stats.binom.sf(successes - 1, n, truth)
    return (low >= 0.025) & (high >= 0.025)


def counts(values: np.ndarray, kind: Kind) -> pd.DataFrame:
    """What the reports of all sweeps (sweeps, arms, seeds) add to each column: the rules of docs/statistics.md anew."""
    failed = failures(values[:, 1])
    whole, seeds = failed.all(1), values.shape[2]
    mixed = failed.any(1) & ~whole
    level = np.where(failed & ~whole[:, None], np.nan, values[:, 1])  # of an arm that never learns, all
    difference, rest = Student(level - values[:, 0]), [Student(values[:, arm] - values[:, 0]) for arm in (2, 3)]
    shifted, margin = Student(difference.values + MARGIN), MARGIN
    decided = mixed & (difference.mean > 0)  # failures of the better arm
    found = (difference.p() < 0.05) & ~decided
    one_sided = np.maximum(1 - shifted.below(-margin), shifted.below(margin))
    others = np.array([student.p() for student in rest])
    mean, level_p = Student(level), Student(level).p(LEVEL)
    return pd.DataFrame(
        {
            "mean": np.where(mean.n > 1, level_p >= 0.05, np.nan),
            "primary difference": np.where(difference.n > 1, difference.p() >= 0.05, np.nan),
            "the other two": (others >= 0.025).all(0),
            "share that learned": exact_holds((~failed).sum(1), seeds, 1 - kind.collapse),
            "ahead of the baseline": exact_holds((values[:, 1] > values[:, 0]).sum(1), seeds, (1 - kind.collapse) / 2),
            "primary found": found,
            "any other found": (others < 0.025).any(0),
            "equivalent at the margin": (one_sided < 0.05) & ~mixed & ~((shifted.p() < 0.05) & ~decided),
            "trainings fail": mixed & ~found,
        }
    ).astype(float)


def simulate(kind: Kind, seeds: int, sweeps: int = SWEEPS) -> pd.Series:
    """Shares in per cent over many sweeps."""
    random = np.random.default_rng([seeds, *kind.name.encode()])
    return 100 * counts(draw(kind, seeds, sweeps, random), kind).mean()


def write_table(sweeps: int) -> None:
    """Put the full table into docs/statistics.md."""
    cases = [(kind, seeds) for kind in KINDS for seeds in SIZES]
    rows = [simulate(kind, seeds, sweeps) for kind, seeds in cases]
    columns = list(rows[0].index)
    lines = ["| seeds are | n | sweeps | " + " | ".join(columns) + " |", "|---|---:|---:|" + "---:|" * len(columns)]
    for (kind, seeds), row in zip(cases, rows, strict=True):
        lines.append(f"| {kind.name} | {seeds} | {sweeps} | " + " | ".join(f"{value:.1f}" for value in row) + " |")
    before, rest = PAGE.read_text(encoding="utf-8").split(START)
    table = "\n".join(lines)
    PAGE.write_text(f"{before}{START}\n{table}\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    write_table(int(sys.argv[1]))
