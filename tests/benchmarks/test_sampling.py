"""Drawing episodes and batches, and the images that benchmarks use."""

import pytest
import torch

from arelu_meta import data
from arelu_meta.benchmarks.sampling import Pictures, bench_pipeline, bench_sampler, check_same_size, local_or_bundled
from arelu_meta.data import splits
from arelu_meta.data.episodes import EpisodeSampler
from arelu_meta.errors import InputError
from tests.tiny_images import digits

pytest.importorskip("learn2learn")


@pytest.mark.usefixtures("_no_sets")
@pytest.mark.parametrize(("name", "bundled"), [("mnist", "digits"), ("cifar10", "street"), ("svhn", "street")])
def test_a_set_that_is_not_at_hand_is_not_downloaded(name: str, bundled: str):
    assert local_or_bundled(name, bundled, None).train.name == f"{bundled}/train"


def test_a_set_that_is_at_hand_is_used(monkeypatch: pytest.MonkeyPatch):
    asked = []
    street = data.load("street")

    def load(name: str, root: str | None = None) -> object:
        asked.append((name, root))
        return street

    monkeypatch.setattr(data, "is_local", lambda name, root: (name, root) == ("svhn", "here"))
    monkeypatch.setattr(data, "load", load)
    assert local_or_bundled("svhn", "digits", "here").train.name == "street/train"
    assert asked == [("svhn", "here")]


def test_pictures_are_those_of_the_set():
    images = digits()
    picture, label = Pictures(images)[7]
    assert label == int(images.labels[7])
    assert torch.allclose(picture, images.images[7] / 255)


@pytest.mark.usefixtures("_no_sets")
def test_without_mnist_the_sampler_runs_on_the_bundled_digits():
    (report,) = bench_sampler()
    assert report.title == "32 episodes, 5-way 1-shot, 1 query, digits/train"
    ours, theirs = report.rows
    assert (ours.name, ours.ratio) == ("arelu_meta", 1.0)
    assert theirs.name == "learn2learn Taskset"
    assert theirs.ratio == pytest.approx(theirs.seconds / ours.seconds)
    assert f"{1000 * ours.seconds:.3f}" in report.text()


def test_unequal_work_is_refused():
    """Two ways of one support and one query image of 28x28 are 2 * 2 * 784 numbers."""
    sampler = EpisodeSampler(splits.by_image(data.load("digits")).train, ways=2, shots=1, queries=1)
    check_same_size(sampler, torch.zeros(4, 1, 28, 28))
    with pytest.raises(InputError, match="do not do the same work: 2352 and 3136 numbers"):
        check_same_size(sampler, torch.zeros(3, 1, 28, 28))
    with pytest.raises(InputError, match="do not do the same work"):
        check_same_size(sampler, torch.zeros(4, 1, 28, 28, dtype=torch.float64))


@pytest.mark.usefixtures("_no_sets")
def test_the_pipeline_as_a_share_of_a_step():
    ours, _, step = next(iter(bench_pipeline(batch=2, repeats=1))).rows
    assert ours.note == f"{100 * ours.seconds / step.seconds:.2f} % of the step"
    assert step.ratio == pytest.approx(step.seconds / ours.seconds)
