import numpy as np
import pandas as pd
import pytest
from scipy import stats

from arelu_meta.analysis.episodes import episode_pairs, episode_results


def rows(**runs: tuple[int, float]) -> pd.DataFrame:
    return pd.DataFrame(
        {"run_id": list(runs), "score": [value for _, value in runs.values()]},
        index=[seed for seed, _ in runs.values()],
    )


def test_episode_by_episode():
    """Differences 1, 3 in seed 0 and 3, 3 in seed 1; by episode 2 and 3: mean 2.5."""
    episodes = {
        "a0": np.array([[0, 2.0], [0, 4.0]]),  # (episodes, inner steps + 1): the last step counts
        "b0": np.array([[9, 1.0], [9, 1.0]]),
        "a1": np.array([5.0, 6.0]),
        "b1": np.array([2.0, 3.0]),
    }
    found = episode_pairs(rows(a0=(0, 3.0), a1=(1, 5.5)), rows(b1=(1, 2.5), b0=(0, 1.0)), "score", episodes)
    assert {seed: one.mean for seed, one in found.by_seed.items()} == {0: 2.0, 1: 3.0}
    assert (found.together.mean, found.together.n) == (2.5, 2)
    assert found.together.half_width == pytest.approx(stats.t.ppf(0.975, 1) * np.std([2, 3], ddof=1) / np.sqrt(2))


def test_a_metric_that_is_no_mean_of_the_episodes_has_none():
    episodes = {"a": np.array([0.5, 0.7]), "b": np.array([0.2, 0.4])}
    assert episode_results(episodes, "a", 0.9) is None  # such as the best training batch
    assert episode_pairs(rows(a=(0, 0.9)), rows(b=(0, 0.3)), "score", episodes) is None
    assert episode_pairs(rows(a=(0, 0.6)), rows(b=(0, 0.3)), "score", episodes) is not None


def test_missing_and_unequal_episodes():
    episodes = {"a": np.array([0.5, 0.7]), "b": np.array([0.2, 0.4, 0.3])}
    assert episode_pairs(rows(a=(0, 0.6)), rows(b=(0, 0.3)), "score", episodes) is None
    assert episode_pairs(rows(a=(0, 0.6)), rows(c=(0, 0.3)), "score", episodes) is None
    assert episode_pairs(rows(a=(0, 0.6)), rows(b=(1, 0.3)), "score", episodes) is None
