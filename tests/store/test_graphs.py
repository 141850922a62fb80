"""Graphs that compute what their networks do, and archives with code in them that are refused and not run."""

import os
from pathlib import Path

import pytest
import torch
from torch import nn

from arelu_meta.errors import InputError
from arelu_meta.store.graphs import GRAPH_FILE, fill_tensors, read_graph, read_module, strip_tensors, trace
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = MLFLOW_WARNINGS
PICKLE = b"cbuiltins\nprint\n(S'sprung'\ntR."
ALLOW = "MLFLOW_ALLOW_PICKLE_DESERIALIZATION"


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Dropout(0.5), nn.Flatten(), nn.Linear(108, 2)).eval()


def test_a_graph_takes_any_number_of_images(tmp_path: Path):
    torch.export.save(trace(network(), torch.rand(2, 1, 8, 8)), tmp_path / GRAPH_FILE)
    for count in (1, 2, 5):
        x = torch.rand(count, 1, 8, 8)
        for read in (read_module(tmp_path / GRAPH_FILE, "here"), read_graph(tmp_path / GRAPH_FILE, "here").module()):
            torch.testing.assert_close(read(x), network()(x))


def test_a_stripped_graph_takes_the_tensors_of_another_network(tmp_path: Path):
    """Tied weights, one file in the archive, included; the archive is read as any other."""
    torch.manual_seed(1)
    first, other = network(), network()
    for net in (first, other):
        net.add_module("5", nn.Linear(2, 108))
        net.add_module("6", nn.Linear(108, 2))
        net[6].weight = net[4].weight
    with torch.no_grad():
        for tensor in (*other.parameters(), other[1].running_mean):
            tensor.add_(torch.rand_like(tensor))
    torch.export.save(trace(first, torch.zeros(2, 1, 8, 8)), tmp_path / "first.pt2")
    stripped = strip_tensors(tmp_path / "first.pt2")
    assert fill_tensors(stripped, other.state_dict(), tmp_path / GRAPH_FILE)
    x = torch.rand(3, 1, 8, 8)
    torch.testing.assert_close(read_module(tmp_path / GRAPH_FILE, "here")(x), other(x))
    whole = dict(read_graph(tmp_path / GRAPH_FILE, "here").state_dict)
    assert whole.keys() == other.state_dict().keys()
    assert all(torch.equal(whole[name], value) for name, value in other.state_dict().items())
    assert not fill_tensors(stripped, {}, tmp_path / "no.pt2")
    assert not fill_tensors(stripped, {**other.state_dict(), "4.bias": torch.zeros(3)}, tmp_path / "no.pt2")
    assert not (tmp_path / "no.pt2").exists()


@pytest.mark.parametrize("allowed", [None, "true"])
def test_an_archive_with_code_in_it_is_refused_and_not_run(tmp_path: Path, capsys, monkeypatch, allowed: str | None):
    """MLflow's look at the archive finds the pickle before torch opens it, whatever the environment allows."""
    monkeypatch.delenv(ALLOW, raising=False)
    if allowed:
        monkeypatch.setenv(ALLOW, allowed)
    (tmp_path / GRAPH_FILE).write_bytes(PICKLE)
    with pytest.raises(InputError, match=r"^here is refused: ") as raised:
        read_graph(tmp_path / GRAPH_FILE, "here")
    assert "\n" not in str(raised.value)
    assert "sprung" not in capsys.readouterr().out
    assert os.environ.get(ALLOW) == allowed
