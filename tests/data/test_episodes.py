"""Properties of the sampler over random configurations: `configuration` draws sets, sizes and seeds."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch.utils.data import DataLoader, TensorDataset

from arelu_meta import data
from arelu_meta.data.episodes import EpisodeSampler, sample_without_replacement
from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import InputError

MANY = settings(max_examples=500, deadline=None)


def numbered(counts, shuffle=0):
    """A set in which pixel values tell class and place: image i of the set is (class, i // 256, i % 256)."""
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(shuffle))]
    i = torch.arange(len(labels))
    images = torch.stack([labels, i // 256, i % 256], dim=1).to(torch.uint8).view(-1, 3, 1, 1)
    return ImageSet("numbered", images, labels, tuple(f"c{label}" for label in range(len(counts))))


def stream(seed):
    return torch.Generator().manual_seed(seed)


@st.composite
def configuration(draw):
    """Unbalanced classes, one empty; ways, shots and queries that fit; how many episodes, and a seed."""
    shots, queries = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    full = draw(st.lists(st.integers(shots + queries, shots + queries + 30), min_size=1, max_size=12))
    ways = draw(st.integers(1, len(full)))
    empty = draw(st.integers(0, len(full)))
    counts = [*full[:empty], 0, *full[empty:]]
    seed = draw(st.integers(0, 2**32 - 1))
    sampler = EpisodeSampler(numbered(counts, seed), ways=ways, shots=shots, queries=queries)
    return sampler, draw(st.integers(1, 6)), seed


@given(configuration())
@settings(MANY, max_examples=1000)
def test_no_image_and_no_class_twice_in_an_episode(drawn):
    """Each row is of one class; as no image comes twice, support and query are disjoint."""
    sampler, n, seed = drawn
    numbers = sampler.draw(n, stream(seed))
    assert numbers.shape == (n, sampler.ways, sampler.shots + sampler.queries)
    labels = sampler.images.labels[numbers]  # (n, ways, k)
    assert (labels == labels[:, :, :1]).all()
    for episode, classes in zip(numbers.flatten(1).tolist(), labels[:, :, 0].tolist(), strict=True):
        assert len(set(episode)) == len(episode)
        assert len(set(classes)) == sampler.ways


@given(configuration())
@MANY
def test_episodes_hold_the_drawn_images_in_balance(drawn):
    """Pixels tell class and number, so the halves can be read back without the sampler's own index arithmetic."""
    sampler, n, seed = drawn
    numbers = sampler.draw(n, stream(seed))
    batch = sampler.episodes(numbers)
    for episode, drawn_numbers in zip(batch, numbers, strict=True):
        halves = []
        for x, y, each in (
            (episode.support_x, episode.support_y, sampler.shots),
            (episode.query_x, episode.query_y, sampler.queries),
        ):
            assert Counter(y.tolist()) == dict.fromkeys(range(sampler.ways), each)
            code = (x.view(-1, 3) * 255).round().long()
            halves.append(set((code[:, 1] * 256 + code[:, 2]).tolist()))
            for label in range(sampler.ways):
                assert len(set(code[y == label, 0].tolist())) == 1  # one class behind one label
        support, query = halves
        assert not support & query
        assert support == set(drawn_numbers[:, : sampler.shots].flatten().tolist())
        assert query == set(drawn_numbers[:, sampler.shots :].flatten().tolist())


@given(configuration())
@MANY
def test_a_stream_repeats_alone(drawn):
    """The same seed gives the same numbers, call after call, whatever was drawn from other generators in between."""
    sampler, n, seed = drawn
    random = stream(seed)
    first, second = sampler.draw(n, random), sampler.draw(n, random)
    torch.rand(7)
    again = stream(seed)
    assert torch.equal(first, sampler.draw(n, again))
    assert torch.equal(second, sampler.draw(n, again))


def test_another_seed_gives_other_episodes():
    sampler = EpisodeSampler(numbered([20] * 6), ways=5, shots=1, queries=5)
    assert not torch.equal(sampler.draw(4, stream(0)), sampler.draw(4, stream(1)))


def test_sample_draws_and_gathers():
    sampler = EpisodeSampler(numbered([20] * 6), ways=3, shots=2, queries=1)
    expected = sampler.episodes(sampler.draw(4, stream(5)))
    for ours, theirs in zip(sampler.sample(4, stream(5)).tensors(), expected.tensors(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_data_loader_takes_episodes():
    """Each batch of the loader is one episode: three classes of two support and one query image each."""
    images = numbered([20] * 6)
    sampler = EpisodeSampler(images, ways=3, shots=2, queries=1)
    dataset = TensorDataset(torch.arange(len(images)), images.labels)
    loader = DataLoader(dataset, batch_sampler=sampler.batch_indices(4, stream(5)))
    drawn = sampler.draw(4, stream(5))
    for _ in range(2):  # epochs
        for (numbers, labels), episode in zip(loader, drawn, strict=True):
            assert torch.equal(numbers.view(3, 3), episode)
            assert torch.equal(labels, images.labels[numbers])
            assert len(labels.unique()) == 3


def test_labels_are_permuted():
    """Each of 4 classes must bear each of 3 labels equally often over 6,000 episodes: 4 * 3 cells of 1,500."""
    sampler = EpisodeSampler(numbered([9, 12, 30, 15]), ways=3, shots=1, queries=1)
    classes = sampler.images.labels[sampler.draw(6000, stream(1))][:, :, 0]  # (n, ways): the class behind each label
    table = np.array([[int((classes[:, label] == c).sum()) for label in range(3)] for c in range(4)])
    assert stats.chisquare(table.ravel()).pvalue > 1e-3
    assert stats.chisquare(table.sum(1)).pvalue > 1e-3  # and each class comes equally often, large or small


def test_every_image_of_a_class_comes_equally_often_in_support_and_query():
    sampler = EpisodeSampler(numbered([8, 8]), ways=2, shots=2, queries=3)
    numbers = sampler.draw(4000, stream(2))
    for half in (numbers[..., :2], numbers[..., 2:]):
        counts = torch.bincount(half.flatten(), minlength=16)
        assert stats.chisquare(counts.numpy()).pvalue > 1e-3


@pytest.mark.parametrize(("size", "k"), [(1, 1), (5, 2), (6, 3), (7, 6), (5, 5)])
def test_sampling_without_replacement_is_uniform_over_ordered_choices(size, k):
    """All size! / (size - k)! ordered choices equally often: chi-square over their counts, about 50 each."""
    ordered = int(np.prod(range(size - k + 1, size + 1)))
    n = max(200, 50 * ordered)
    chosen = sample_without_replacement(torch.full((n,), size), k, stream(3)).numpy()
    cells = Counter(map(tuple, chosen.tolist()))
    assert all(len(set(cell)) == k for cell in cells)
    counts = list(cells.values()) + [0] * (ordered - len(cells))
    if ordered > 1:
        assert stats.chisquare(counts).pvalue > 1e-3
    subsets = Counter(frozenset(cell) for cell in map(tuple, chosen.tolist()))
    assert set(subsets) == {frozenset(subset) for subset in combinations(range(size), k)}


@given(st.lists(st.integers(1, 60), min_size=1, max_size=20), st.data(), st.integers(0, 2**32 - 1))
@MANY
def test_sampling_without_replacement_below_each_size(sizes, more, seed):
    k = more.draw(st.integers(1, min(sizes)))
    chosen = sample_without_replacement(torch.tensor(sizes), k, stream(seed))
    assert chosen.shape == (len(sizes), k)
    for row, size in zip(chosen.tolist(), sizes, strict=True):
        assert len(set(row)) == k
        assert min(row) >= 0
        assert max(row) < size


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"ways": 0}, "ways must be at least 1, not 0; raise `ways`"),
        ({"shots": -1}, "shots must be at least 1, not -1"),
        ({"queries": 0}, "queries must be at least 1, not 0"),
        ({"ways": 4}, "numbered has 3 classes, but ways = 4; lower `ways` to 3 or less"),
        (
            {"shots": 5, "queries": 2},
            "class 'c2' of numbered has 6 images, but shots \\+ queries = 7; lower `shots`, or .* to 1 or less",
        ),
        ({"shots": 6, "queries": 2}, r"= 8; lower `shots`, or `queries` \(in validation and test `test_queries`\)$"),
    ],
)
def test_impossible_sizes_are_refused_at_once(sizes, message):
    with pytest.raises(InputError, match=message):
        EpisodeSampler(numbered([9, 0, 6, 8]), **{"ways": 2, "shots": 1, "queries": 1, **sizes})


def test_pixels_are_normalised_as_the_set_says():
    digits = data.load("digits")
    digits = digits.normalised_like(digits)
    sampler = EpisodeSampler(digits, ways=5, shots=1, queries=3)
    numbers = sampler.draw(2, stream(0))
    batch = sampler.episodes(numbers)
    assert batch.support_x.shape == (2, 5, 1, 28, 28)
    assert batch.query_x.shape == (2, 15, 1, 28, 28)
    scaled = digits.images.numpy() / 255
    expected = (scaled[int(numbers[1, 2, 0])] - scaled.mean()) / scaled.std()
    np.testing.assert_allclose(batch[1].support_x[2].numpy(), expected, atol=1e-5)
