"""The sine waves of Finn et al. 2017: what they are, by numpy, and what episodes of them are."""

import math
import re

import numpy as np
import pytest
import torch

from arelu_meta import data
from arelu_meta.data.episodes import EpisodeSampler
from arelu_meta.data.splits import published


@pytest.fixture(scope="module")
def waves():
    return data.load("sinusoid")


def test_targets_are_those_of_the_named_functions(waves):
    amplitude, phase = np.array([re.findall(r"-?[\d.]+", name) for name in waves.class_names], float).T
    x, y, label = waves.images.flatten().numpy(), waves.targets.flatten().numpy(), waves.labels.numpy()
    np.testing.assert_allclose(y, amplitude[label] * np.sin(x - phase[label]), atol=2e-5)  # six digits in names


def test_ranges_are_the_published_ones(waves):
    amplitude, phase = np.array([re.findall(r"[\d.]+", name) for name in waves.class_names], float).T
    for values, low, high in ((amplitude, 0.1, 5), (phase, 0, math.pi), (waves.images.flatten().numpy(), -5, 5)):
        assert low <= values.min() < low + 0.01 * (high - low)
        assert high - 0.01 * (high - low) < values.max() <= high
        assert values.mean() == pytest.approx((low + high) / 2, abs=0.05)


def test_functions_are_held_out(waves):
    split = published(waves)
    assert [len(getattr(split, part).labels.unique()) for part in ("train", "validation", "test")] == [2000, 200, 1000]
    assert split.held_out == "classes"
    assert waves.counts().tolist() == [50] * 3200
    assert len(set(waves.class_names)) == 3200


def test_second_load_is_the_same(waves):
    assert data.load("sinusoid").digest == waves.digest


def test_an_episode_is_one_function(waves):
    sampler = EpisodeSampler(waves, ways=1, shots=10, queries=40)
    numbers = sampler.draw(3, torch.Generator().manual_seed(0))
    batch = sampler.episodes(numbers)
    assert [tuple(part.shape) for part in batch.tensors()] == [
        (3, 10, 1, 1, 1),
        (3, 10, 1),
        (3, 40, 1, 1, 1),
        (3, 40, 1),
    ]
    assert [len(waves.labels[episode].unique()) for episode in numbers] == [1, 1, 1]
    both = torch.cat([batch.support_y, batch.query_y], 1)
    assert torch.equal(both.flatten(1), waves.targets[numbers].flatten(1))
    assert torch.equal(torch.cat([batch.support_x, batch.query_x], 1).flatten(1), waves.images[numbers].flatten(1))
