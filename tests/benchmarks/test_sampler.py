from pathlib import Path

import pytest
import torch

from arelu_meta import data
from arelu_meta.benchmarks.sampler import _check_equal_work, bench_sampler
from arelu_meta.data import splits
from arelu_meta.data.episodes import EpisodeSampler
from arelu_meta.errors import InputError

pytest.importorskip("learn2learn")


def test_offline_it_runs_on_the_bundled_digits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("ARELU_META_OFFLINE", "1")
    monkeypatch.setenv("ARELU_META_DATA", str(tmp_path))
    report = bench_sampler()
    assert report.title == "32 episodes, 5-way 1-shot, 1 query, digits/train"
    ours, theirs = report.rows
    assert (ours.name, ours.ratio) == ("arelu_meta", 1.0)
    assert theirs.name == "learn2learn Taskset"
    assert theirs.ratio == pytest.approx(theirs.seconds / ours.seconds)
    assert report.plain()["rows"][1]["ratio"] == theirs.ratio
    assert f"{1000 * ours.seconds:.3f}" in report.text()


def test_unequal_work_is_refused():
    """Two ways of one support and one query image of 28x28 are 2 * 2 * 784 numbers."""
    sampler = EpisodeSampler(splits.by_image(data.load("digits")).train, ways=2, shots=1, queries=1)
    _check_equal_work(sampler, torch.zeros(4, 1, 28, 28))
    with pytest.raises(InputError, match="do not do the same work: 2352 and 3136 numbers"):
        _check_equal_work(sampler, torch.zeros(3, 1, 28, 28))
    with pytest.raises(InputError, match="do not do the same work"):
        _check_equal_work(sampler, torch.zeros(4, 1, 28, 28, dtype=torch.float64))
