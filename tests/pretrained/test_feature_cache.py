"""The cache of features: used, verified, bounded, safe for two processes, and never needed."""

import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from arelu_meta.backbones.features import feature_network
from arelu_meta.console import progress
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.inputs import Inputs
from arelu_meta.errors import InputError
from arelu_meta.learners.frozen_heads import NeighbourHead, PrototypeHead
from arelu_meta.pretrained import feature_cache
from arelu_meta.pretrained.feature_cache import (
    CachedGraph,
    cached_features,
    network_key,
    read_features,
    write_features,
)
from tests.tiny_networks import tiny

IMAGES = ImageSet(
    "noise",
    torch.randint(256, (40, 3, 12, 12), generator=torch.Generator().manual_seed(0)).to(torch.uint8),
    torch.arange(40) % 2,
    ("a", "b"),
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("ARELU_META_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def network() -> nn.Module:
    torch.manual_seed(0)
    return feature_network(tiny().eval().requires_grad_(False), torch.zeros(2, 3, 12, 12))


def computed(network: nn.Module, images: ImageSet = IMAGES, inputs: Inputs | None = None, name: object = ""):
    return cached_features(
        network, images, inputs or Inputs(3, 12), name=name, device=torch.device("cpu"), bar=progress.silent
    )


def test_each_image_is_computed_once(network):
    with torch.no_grad():
        expected = network(IMAGES.images.float() / 255)
    first, count, _ = computed(network, IMAGES.subset(torch.arange(25)))
    assert count == 25
    torch.testing.assert_close(first, expected[:25])
    again, count, _ = computed(network)
    assert count == 15  # 25 are known
    assert torch.equal(again[:25], first)
    torch.testing.assert_close(again, expected)
    turned, count, _ = computed(network, IMAGES.subset(torch.arange(39, -1, -1)))
    assert count == 0
    assert torch.equal(turned, again.flip(0))


def test_what_decides_on_the_features_decides_on_the_row(network):
    computed(network)
    other = feature_network(tiny(width=7).eval().requires_grad_(False), torch.zeros(2, 3, 12, 12))
    assert computed(other)[1] == 40
    assert computed(network, inputs=Inputs(3, 16))[1] == 40
    assert computed(network, inputs=Inputs(3, 12, (0.5,) * 3, (0.5,) * 3))[1] == 40
    assert computed(network, name="another option")[1] == 40
    moved = feature_network(tiny().eval().requires_grad_(False), torch.zeros(2, 3, 12, 12))
    moved.load_state_dict(network.state_dict())
    assert network_key(moved) == network_key(network)
    moved.network.first.bias[0] += 1e-3
    assert network_key(moved) != network_key(network)
    assert computed(network)[1] == 0


def test_a_damaged_row_is_computed_again(network, folder):
    right = computed(network).features
    with sqlite3.connect(folder / "features.db") as connection:
        connection.execute("UPDATE features SET numbers = zeroblob(length(numbers))")
    again, count, _ = computed(network)
    assert count == 40
    assert torch.equal(again, right)


def test_a_file_that_is_no_database_is_replaced(network, folder):
    (folder / "features.db").write_bytes(b"not a database" * 1000)
    assert computed(network)[1] == 40
    assert computed(network)[1] == 0  # the first write found the file and removed it


def test_a_folder_that_cannot_be_written_costs_time_alone(network, folder, monkeypatch):
    (folder / "file").touch()
    monkeypatch.setenv("ARELU_META_CACHE", str(folder / "file" / "below"))
    assert [computed(network)[1] for _ in range(2)] == [40, 40]


def test_the_rows_used_last_are_kept(monkeypatch):
    """Ten numbers of 4 bytes a row, a bound of 400 bytes: the eleventh row leaves 200 bytes, five rows."""
    monkeypatch.setattr(feature_cache, "MOST_BYTES", 400)
    for number in range(10):
        write_features("net", {f"image {number}": torch.full((10,), float(number))})
        time.sleep(0.002)
    assert len(read_features("net", ["image 0"])) == 1  # used now
    write_features("net", {"image 10": torch.zeros(10)})
    kept = read_features("net", [f"image {number}" for number in range(11)])
    assert sorted(kept) == sorted(["image 0", "image 10", "image 9", "image 8", "image 7"])


def test_two_processes_at_once(root):
    """Each writes 200 rows, one transaction each, while the other does; all of them are there in the end."""
    script = (
        "import sys, torch; from arelu_meta.pretrained.feature_cache import write_features\n"
        "for number in range(200):\n"
        "    write_features('net', {f'{sys.argv[1]} {number}': torch.full((4,), float(number))})\n"
    )
    started = [subprocess.Popen([sys.executable, "-c", script, name], cwd=root) for name in ("one", "two")]
    assert [process.wait(timeout=120) for process in started] == [0, 0]
    found = read_features("net", [f"{name} {number}" for name in ("one", "two") for number in range(200)])
    assert len(found) == 400
    assert all(torch.equal(value, torch.full((4,), float(key.split()[1]))) for key, value in found.items())


class Switched(nn.Module):
    """A network of one's own whose printed form and tensors do not tell what it computes."""

    power = 1.0

    def forward(self, x):
        return x.flatten(2).mean(2).abs() ** self.power


def test_rows_of_two_versions_of_the_code_do_not_mix():
    """Images that are new to the cache say nothing of those before; the features of noise do."""
    network, old, new = Switched(), IMAGES.subset(torch.arange(10)), IMAGES.subset(torch.arange(10, 20))
    computed(network, old)
    network.power = 2.0
    key = computed(network, new).key
    assert not read_features(key, feature_cache.image_keys(old))
    both = IMAGES.subset(torch.arange(19, -1, -1))
    torch.testing.assert_close(computed(network, both).features, (both.images.float() / 255).flatten(2).mean(2) ** 2)


def test_the_row_of_noise_is_dropped_last(monkeypatch):
    """400 bytes at most: ten rows of 40 written after that of noise leave it and four others, 200 bytes."""
    monkeypatch.setattr(feature_cache, "MOST_BYTES", 400)
    write_features("net", {feature_cache.NOISE: torch.zeros(10)})
    for number in range(10):
        write_features("net", {f"image {number}": torch.zeros(10)})
        time.sleep(0.002)
    kept = read_features("net", [feature_cache.NOISE, *(f"image {number}" for number in range(10))])
    assert sorted(kept) == ["image 6", "image 7", "image 8", "image 9", "noise"]


def test_a_graph_is_found_by_network_code_settings_and_shapes():
    features, labels = torch.rand(12, 5), torch.arange(12) % 3
    head = NeighbourHead(features, labels, 3, 5)
    CachedGraph("net", head).write(b"graph")
    assert CachedGraph("net", NeighbourHead(2 * features, labels, 3, 5)).read() == b"graph"
    others = [NeighbourHead(features, labels, 3, 3), NeighbourHead(features[:9], labels[:9], 3, 5)]
    others += [PrototypeHead(features, labels, 3, "plain"), PrototypeHead(features, labels, 3, "centred")]
    assert len({CachedGraph("net", each).row for each in (head, *others)}) == 5
    assert not CachedGraph("net", others[0]).read()
    assert not CachedGraph("another net", head).read()


def test_a_network_whose_code_has_changed_is_computed_again():
    network, some = Switched(), IMAGES.subset(torch.arange(10))
    computed(network)
    network.power = 2.0
    assert network_key(network) == network_key(Switched())
    features, count, _ = computed(network, some)
    assert count == 10
    torch.testing.assert_close(features, (some.images.float() / 255).flatten(2).mean(2) ** 2)
    assert computed(network)[1] == 30  # all rows of the old code are gone
    network.power = 2.0 + 1e-5  # rounding
    assert computed(network)[1] == 0


@pytest.mark.parametrize("damage", [None, "abc", 5])
def test_rows_of_another_type_are_computed_again(network, folder, damage):
    computed(network)
    with sqlite3.connect(folder / "features.db") as connection:
        connection.execute("UPDATE features SET numbers = ?", (damage,))
    assert [computed(network)[1] for _ in range(2)] == [40, 0]


def test_a_table_of_another_shape_is_replaced(network, folder):
    with sqlite3.connect(folder / "features.db") as connection:
        connection.execute("CREATE TABLE features (network TEXT, image TEXT)")
    assert [computed(network)[1] for _ in range(2)] == [40, 0]  # the first write removes the file


def test_features_that_are_not_finite():
    class Broken(nn.Module):
        def forward(self, x):
            return x.mean((2, 3)) / (x.amax((1, 2, 3), keepdim=True) < 2).float().flatten(1).sub(1)

    with pytest.raises(InputError, match="image 0 of noise has features that are not finite"):
        computed(Broken())
