"""Differences episode by episode: what two trained networks differ by on the same fixed episodes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from arelu_meta.analysis.estimates import Estimate, estimate_mean


@dataclass(frozen=True, eq=False)
class EpisodePairs:
    """Paired differences over episodes, by seed and for the mean over the seeds.

    The interval over episodes holds for these trained networks; it says nothing about another seed.
    """

    by_seed: Mapping[int, Estimate]
    together: Estimate
    """Of the differences averaged over seeds first: seeds share the episodes, so an episode is counted once."""


def episode_results(episodes: Mapping[str, np.ndarray], run_id: str, value: float) -> np.ndarray | None:
    """The per-episode results behind a run's value, after the last inner step; None where they are not its mean.

    A metric that is no mean over the test episodes, such as the best training batch, has no per-episode view.
    """
    if run_id not in episodes:
        return None
    results = np.asarray(episodes[run_id], dtype=np.float64)
    results = results[:, -1] if results.ndim == 2 else results
    if results.size < 2 or not math.isclose(float(results.mean()), value, rel_tol=1e-3, abs_tol=1e-9):
        return None
    return results


def episode_pairs(
    arm: pd.DataFrame, other: pd.DataFrame, metric: str, episodes: Mapping[str, np.ndarray]
) -> EpisodePairs | None:
    """Compare two arms, rows indexed by seed with `run_id` and the metric; None without a seed that can be paired."""
    differences: dict[int, np.ndarray] = {}
    for seed in arm.index.intersection(other.index) if episodes else ():
        ours, theirs = (
            episode_results(episodes, rows.at[seed, "run_id"], float(rows.at[seed, metric])) for rows in (arm, other)
        )
        if ours is not None and theirs is not None and ours.shape == theirs.shape:
            differences[seed] = ours - theirs
    if not differences or len({len(values) for values in differences.values()}) > 1:
        return None
    by_seed = {seed: estimate_mean(values) for seed, values in differences.items()}
    return EpisodePairs(by_seed, estimate_mean(np.mean(list(differences.values()), axis=0)))
