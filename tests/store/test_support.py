"""What a model was fitted to: typicality by its definition, its rate on images like the support, wrong input."""

import os
import sys

import numpy as np
import pytest
import torch
from torch.nn import functional

from arelu_meta.console.progress import silent
from arelu_meta.data.inputs import Inputs
from arelu_meta.errors import InputError
from arelu_meta.kinds.adapt.run import prepare
from arelu_meta.kinds.adapt.spec import AdaptSpec
from arelu_meta.pretrained.feature_cache import cached_features
from arelu_meta.store.models import WEIGHTS_FILE, open_model, save_weights
from arelu_meta.store.support import SUPPORT_FILE, StoredSupport, read_support


def support(count: int = 30, width: int = 8, seed: int = 0) -> StoredSupport:
    random = torch.Generator().manual_seed(seed)
    return StoredSupport(torch.randn(count, width, generator=random), torch.arange(count) % 3, "knn", "1")


def by_definition(own: torch.Tensor, new: torch.Tensor) -> float:
    """Loops: leave i out of the support, then compare how near i and the new image are to what is left."""
    count = 1
    for i in range(len(own)):
        left = [j for j in range(len(own)) if j != i]
        inside = max(functional.cosine_similarity(own[i], own[j], dim=0).item() for j in left)
        outside = max(functional.cosine_similarity(new, own[j], dim=0).item() for j in left)
        count += inside <= outside
    return count / (len(own) + 1)


def test_typicality_is_what_it_is_defined_as():
    given = support(12)
    new = torch.randn(20, 8, generator=torch.Generator().manual_seed(1))
    expected = [by_definition(given.features, one) for one in new]
    assert given.typicality(new).tolist() == pytest.approx(expected)
    assert len(set(expected)) > 5


@pytest.mark.parametrize(("count", "share"), [(19, 0.05), (40, 2 / 41), (100, 5 / 101)])
def test_images_like_the_support_are_rejected_as_rarely_as_asked(count, share):
    """By exchange of new and old: 1 of 20, 2 of 41, 5 of 101 cases; 400 supports of one distribution, 20 new each."""
    rejected = []
    for seed in range(400):
        new = torch.randn(20, 8, generator=torch.Generator().manual_seed(1000 + seed))
        rejected.append((support(count, seed=seed).typicality(new) <= 0.05).float().mean().item())
    error = np.std(rejected) / 20
    assert abs(np.mean(rejected) - share) < 4 * error + 0.002
    assert error < 0.005


def test_images_of_another_kind_are_rejected():
    given = StoredSupport(torch.eye(30)[:, :8] + 1, torch.arange(30) % 3, "knn", "1")
    assert (given.typicality(-torch.ones(4, 8)) <= 0.05).all()


def stored_in(folder):
    save_weights({"w": torch.ones(2)}, folder / WEIGHTS_FILE, Inputs(3, 8), ("a", "b"))
    return open_model(folder)


def test_written_and_read(tmp_path):
    given = support()
    given.write(tmp_path)
    read = read_support(stored_in(tmp_path))
    assert torch.equal(read.features, given.features)
    assert torch.equal(read.labels, given.labels)
    assert (read.method, read.strength) == ("knn", "1")


def written(folder, **changed):
    given = support(4)
    arrays = {"features": given.features.numpy(), "labels": given.labels.numpy(), "method": np.array("knn")}
    np.savez(folder / SUPPORT_FILE, **{**arrays, "strength": np.array("1"), **changed})


@pytest.mark.parametrize("what", ["pipe", "text", "missing", "shape", "labels", "none", "code"])
def test_damaged_ones_are_one_line(tmp_path, what):
    place, stored = tmp_path / SUPPORT_FILE, stored_in(tmp_path)
    if what == "pipe":
        os.mkfifo(place)
    elif what == "text":
        place.write_bytes(b"neither this nor that")
    elif what == "missing":
        np.savez(place, features=np.ones((4, 8), np.float32))
    elif what == "shape":
        written(tmp_path, features=np.ones((4, 8, 1), np.float32))
    elif what == "labels":
        written(tmp_path, labels=np.zeros(3, np.int64))
    elif what == "none":
        written(tmp_path, features=np.ones((0, 8), np.float32), labels=np.zeros(0, np.int64))
    else:
        written(tmp_path, method=np.array([object()]))
    with pytest.raises(InputError, match=SUPPORT_FILE) as raised:
        read_support(stored)
    assert "\n" not in str(raised.value)


def test_a_model_without(tmp_path):
    with pytest.raises(InputError, match="for models of adapt by method prototypes, knn or linear"):
        read_support(stored_in(tmp_path))


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        (0.05, r"`unknown` 0.05 needs 19 labelled images at least, and RUN was fitted to 18; raise it to 0.053"),
        (0.001, "needs 999 labelled images"),
        (0.0, "`unknown` 0 is no rate"),
        (1.0, "`unknown` 1 is no rate"),
        (-0.1, "`unknown` -0.1 is no rate"),
    ],
)
def test_rates_that_cannot_be_told(rate, message):
    with pytest.raises(InputError, match=message):
        support(18).check_rate(rate, "RUN")
    support(19).check_rate(0.05, "RUN")
    support(18).check_rate(0.053, "RUN")


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("name", ["cifar100", "omniglot", "svhn"])
@pytest.mark.filterwarnings("ignore::arelu_meta.data.readers.UnverifiedData", "ignore:.* left out of")
def test_false_alarms_on_real_images(name, published_data, tmp_path, monkeypatch):
    """EfficientNet-Lite0, half of the classes known by ten images each, the others held out, 40 draws, at rate 0.05.

    With 16 classes 4 of 81 false alarms are to be expected, with the ten of SVHN 2 of 51. `-s` shows what is measured.
    """
    monkeypatch.setenv("ARELU_META_CACHE", str(tmp_path))
    ways = 10 if name == "svhn" else 16
    data = {"dataset": name, "ways": ways, "shots": 10, "test_per_class": 40}
    spec = AdaptSpec(task="t", data=data, input={"image_size": 96})
    made = prepare(spec, root=str(published_data))
    images, known = made.drawn.images, ways // 2
    x, *_ = cached_features(made.network, images, made.inputs, name=name, device=torch.device("cpu"), bar=silent)
    alarms, found = [], []
    for draw in range(40):
        random = torch.Generator().manual_seed(draw)
        order = torch.randperm(ways, generator=random)
        members = [torch.nonzero(images.labels == label).squeeze(1) for label in order[:known]]
        members = [some[torch.randperm(len(some), generator=random)] for some in members]
        numbers = torch.cat([some[:10] for some in members])
        given = StoredSupport(x[numbers], images.labels[numbers], "knn", "1")
        alarms.append((given.typicality(x[torch.cat([some[10:] for some in members])]) <= 0.05).double().mean())
        found.append((given.typicality(x[torch.isin(images.labels, order[known:])]) <= 0.05).double().mean())
    shown = [
        f"{100 * np.mean(each):.2f} ± {100 * 2.0227 * np.std(each, ddof=1) / 40**0.5:.2f} %" for each in (alarms, found)
    ]
    sys.stdout.write(f"\n{name}: false alarms {shown[0]}, held-out classes found {shown[1]}\n")
    assert 0.03 < np.mean(alarms) < 0.07
    assert np.mean(found) > np.mean(alarms)
