"""Coverage and false positives of whole reports, on simulated sweeps whose truth is known.

    python -m tests.analysis.simulated 2000 1     # sweeps of each kind, processes; into docs/statistics.md, 20 minutes

Four arms of one true level, seeds paired; in one of them, the primary one, trainings may collapse. What is counted is
what a report says: its intervals, its verdicts, and how often it declines to give one.
"""

import math
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

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


def draw(kind: Kind, seeds: int, random: np.random.Generator) -> ArmComparison:
    """One sweep, analysed: luck of the seed, which all arms share, and luck of their own."""
    values = LEVEL + 2 * kind.noise(random, (1, seeds)) + 2 * kind.noise(random, (len(ARMS), seeds))
    values[1] -= FALLEN * (random.random(seeds) < kind.collapse)
    runs = pd.DataFrame(
        {"activation": np.repeat(ARMS, seeds), "seed": np.tile(np.arange(seeds), len(ARMS)), "accuracy": values.ravel()}
    )
    given = {"units": {"accuracy": "%"}, "primary": "arelu", "margin": MARGIN, "chance": CHANCE}
    findings = Findings("simulated", "", "", runs, ("activation",), "activation", "relu", "accuracy", **given)
    return analyse(findings).primary[0]


def holds(interval: Estimate, truth: float) -> float:
    """1 or 0; NaN where there is no interval."""
    return float(interval.low <= truth <= interval.high) if np.isfinite(interval.low) else np.nan


def counted(kind: Kind, seeds: int, random: np.random.Generator) -> dict[str, float]:
    """What one sweep adds to each column."""
    comparison = draw(kind, seeds, random)
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


def simulate(kind: Kind, seeds: int, sweeps: int = SWEEPS) -> pd.Series:
    """Shares in per cent over many sweeps."""
    random = np.random.default_rng([seeds, *kind.name.encode()])
    return 100 * pd.DataFrame([counted(kind, seeds, random) for _ in range(sweeps)]).mean()


def write_table(sweeps: int, workers: int) -> None:
    """Put the full table into docs/statistics.md."""
    cases = [(kind, seeds) for kind in KINDS for seeds in SIZES]
    with ProcessPoolExecutor(workers) as pool:
        rows = list(pool.map(simulate, *zip(*cases, strict=True), [sweeps] * len(cases)))
    columns = list(rows[0].index)
    lines = ["| seeds are | n | sweeps | " + " | ".join(columns) + " |", "|---|---:|---:|" + "---:|" * len(columns)]
    for (kind, seeds), row in zip(cases, rows, strict=True):
        lines.append(f"| {kind.name} | {seeds} | {sweeps} | " + " | ".join(f"{value:.1f}" for value in row) + " |")
    before, rest = PAGE.read_text(encoding="utf-8").split(START)
    table = "\n".join(lines)
    PAGE.write_text(f"{before}{START}\n{table}\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    write_table(int(sys.argv[1]), int(sys.argv[2]))
