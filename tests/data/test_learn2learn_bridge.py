import builtins
import itertools
import random
import subprocess
import sys

import pytest
import torch

from arelu_meta import data
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.learn2learn_bridge import _learn2learn_data, episodes_from_taskset, to_metadataset
from arelu_meta.errors import InputError


@pytest.fixture(scope="module")
def l2l():
    return _learn2learn_data()


def numbered(counts):
    """Image i is filled with the value i, so that an image says its number."""
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]
    images = torch.arange(len(labels), dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 2, 2)
    return ImageSet("numbered", images, labels, tuple(map(str, range(len(counts)))))


def numbers_of(x):
    return (x[:, 0, 0, 0] * 255).round().long()


def taskset(l2l, images, *, ways, k, tasks, extra=()):
    dataset = to_metadataset(images)
    transforms = [
        l2l.transforms.NWays(dataset, ways),
        l2l.transforms.KShots(dataset, k),
        l2l.transforms.LoadData(dataset),
    ]
    return l2l.Taskset(dataset, [*transforms, *(make(dataset) for make in extra)], num_tasks=tasks)


def test_books_are_those_learn2learn_would_make(l2l):
    """Given the plain Dataset, it reads every image and makes its own books; ours must equal them."""
    images = numbered([7, 9, 8])
    ours = to_metadataset(images)
    theirs = l2l.MetaDataset(ours.dataset)
    assert ours.labels_to_indices == dict(theirs.labels_to_indices)
    assert ours.indices_to_labels == dict(theirs.indices_to_labels)
    assert sorted(ours.labels) == sorted(theirs.labels)
    assert len(ours) == len(images)


def test_items_are_normalised_pixels_and_labels():
    digits = data.load("digits")
    digits = digits.normalised_like(digits)
    x, y = to_metadataset(digits)[5]
    assert torch.equal(x, digits.pixels(torch.tensor(5)))
    assert y == int(digits.labels[5])


def test_episodes_of_its_tasks(l2l):
    images = numbered([12, 15, 13, 14])
    random.seed(0)
    remap = [l2l.transforms.RemapLabels]
    episodes = list(episodes_from_taskset(taskset(l2l, images, ways=3, k=6, tasks=4, extra=remap), shots=2, queries=4))
    assert len(episodes) == 4
    for episode in episodes:
        assert episode.support_x.shape == (6, 1, 2, 2)
        assert episode.query_x.shape == (12, 1, 2, 2)
        assert torch.bincount(episode.support_y).tolist() == [2, 2, 2]
        assert torch.bincount(episode.query_y).tolist() == [4, 4, 4]
        support, query = numbers_of(episode.support_x), numbers_of(episode.query_x)
        assert len(set(support.tolist()) | set(query.tolist())) == 18  # no image twice
        for label in range(3):
            of_label = torch.cat([support[episode.support_y == label], query[episode.query_y == label]])
            assert len(set(images.labels[of_label].tolist())) == 1


def test_labels_of_the_set_are_numbered_from_zero(l2l):
    random.seed(1)
    images = numbered([6, 6, 6, 6])
    (episode,) = episodes_from_taskset(taskset(l2l, images, ways=2, k=3, tasks=1), shots=1, queries=2)
    assert sorted(set(episode.support_y.tolist())) == [0, 1]
    first, second = images.labels[numbers_of(episode.support_x)].tolist()
    assert first < second  # in the order of their own labels


def test_its_own_partition_gives_the_same_images(l2l):
    """learn2learn's partition_task on a task with rows class after class, shots = 2, must choose the same support."""
    random.seed(2)
    images = numbered([9, 9, 9])
    tasks = taskset(
        l2l, images, ways=3, k=4, tasks=1, extra=[l2l.transforms.RemapLabels, l2l.transforms.ConsecutiveLabels]
    )
    x, y = tasks.sample()
    (episode,) = episodes_from_taskset([(x, y)], shots=2, queries=2)
    (theirs_x, theirs_y), (query_x, query_y) = l2l.partition_task(x, y, shots=2)

    def pairs(x, y):
        return sorted(zip(numbers_of(x).tolist(), y.tolist(), strict=True))

    assert pairs(episode.support_x, episode.support_y) == pairs(theirs_x, theirs_y)
    assert pairs(episode.query_x, episode.query_y) == pairs(query_x, query_y)


def test_a_taskset_without_end_is_taken_one_by_one(l2l):
    endless = taskset(l2l, numbered([6, 6]), ways=2, k=2, tasks=-1)
    assert len(list(itertools.islice(episodes_from_taskset(endless, shots=1, queries=1), 5))) == 5


def test_wrong_number_of_images_is_refused():
    task = (torch.zeros(5, 1, 2, 2), torch.tensor([7, 7, 7, 4, 4]))
    with pytest.raises(InputError, match=r"class 4 of a task has 2 images, but shots \+ queries = 3; use KShots"):
        next(episodes_from_taskset([task], shots=1, queries=2))


def test_missing_learn2learn_names_the_extra(monkeypatch):
    real = builtins.__import__

    def without(name, *arguments, **more):
        if name.startswith("learn2learn"):
            raise ModuleNotFoundError(f"No module named {name!r}", name="learn2learn")
        return real(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r"learn2learn is not installed; pip install 'arelu-meta\[learn2learn\]'"):
        to_metadataset(numbered([2]))


def test_import_is_silent_and_late():
    """The module itself does not import learn2learn; the first use does, without gym's banner on stderr."""
    code = (
        "import sys\n"
        "from arelu_meta import data\n"
        "from arelu_meta.data.learn2learn_bridge import to_metadataset\n"
        "assert 'learn2learn' not in sys.modules\n"
        "to_metadataset(data.load('digits'))\n"
        "assert 'learn2learn' in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
