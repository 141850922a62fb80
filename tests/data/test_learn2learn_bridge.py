import builtins
import random
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

from arelu_meta import data
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.learn2learn_bridge import _learn2learn_data, taskset, to_metadataset
from arelu_meta.errors import InputError

INSTALLED = pytest.mark.skipif(find_spec("learn2learn") is None, reason="learn2learn is not installed")


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


@INSTALLED
def test_books_are_those_learn2learn_would_make(l2l):
    """Given the plain Dataset, it reads every image and makes its own books; ours must equal them."""
    images = numbered([7, 9, 8])
    ours = to_metadataset(images)
    theirs = l2l.MetaDataset(ours.dataset)
    assert ours.labels_to_indices == dict(theirs.labels_to_indices)
    assert ours.indices_to_labels == dict(theirs.indices_to_labels)
    assert sorted(ours.labels) == sorted(theirs.labels)
    assert len(ours) == len(images)


@INSTALLED
def test_items_are_normalised_pixels_and_labels():
    digits = data.load("digits")
    digits = digits.normalised_like(digits)
    x, y = to_metadataset(digits)[5]
    assert torch.equal(x, digits.pixels(torch.tensor(5)))
    assert y == int(digits.labels[5])


@INSTALLED
def test_its_episodes():
    """Three classes of six images each, no image twice, labels 0..2, one class after the other."""
    images = numbered([12, 15, 13, 14])
    random.seed(0)
    pixels, labels = taskset(images, ways=3, images_per_class=6).sample()
    assert pixels.shape == (18, 1, 2, 2)
    assert len(labels.view(3, 6).unique(dim=1)[0]) == 1
    assert torch.bincount(labels).tolist() == [6, 6, 6]
    numbers = numbers_of(pixels)
    assert len(set(numbers.tolist())) == 18
    for label in range(3):
        assert len(set(images.labels[numbers[labels == label]].tolist())) == 1


def test_missing_learn2learn_names_the_extra(monkeypatch):
    real = builtins.__import__

    def without(name, *arguments, **more):
        if name.startswith("learn2learn"):
            raise ModuleNotFoundError(f"No module named {name!r}", name="learn2learn")
        return real(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r"learn2learn is not installed; pip install 'arelu-meta\[learn2learn\]'"):
        to_metadataset(numbered([2]))


@INSTALLED
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


@INSTALLED
def test_a_pool_gives_its_episodes_again():
    """A pool of one has the same images each time."""
    drawn = taskset(numbered([12, 15, 13, 14]), ways=3, images_per_class=6, num_tasks=1)
    first, labels = drawn.sample()
    for again, same in (drawn.sample(), drawn.sample()):
        assert torch.equal(first, again)
        assert torch.equal(labels, same)
