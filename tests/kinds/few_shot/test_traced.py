"""Networks of one's own code: their graphs adapt and answer as they do, or they say what is missing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from arelu_meta import backbones
from arelu_meta.backbones import BackboneEntry
from arelu_meta.errors import InputError
from arelu_meta.kinds.few_shot.model import FewShotModel
from arelu_meta.kinds.few_shot.traced import foreign_classes
from arelu_meta.store.graphs import GRAPH_FILE
from tests.own_code import Branching, Normed, OwnBackbone, Squareplus
from tests.tiny_model import CONV4, images, tiny_model
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = MLFLOW_WARNINGS
SUPPORT_Y = torch.tensor([0, 1, 2, 0, 1, 2])
OWN = {"backbone": "own", "activation": "tests.own_code:Squareplus"}


@pytest.fixture(autouse=True)
def own_backbones() -> Iterator[None]:
    """Backbones that this process alone has registered."""
    added = {"own": OwnBackbone, "branching": Branching, "normed": Normed}
    for name, target in added.items():
        backbones._REGISTRY.add(BackboneEntry(name, target))
    yield
    for name in added:
        if name in backbones._REGISTRY:
            backbones._REGISTRY.remove(name)


def test_whose_code_a_network_is():
    assert foreign_classes(tiny_model(network={"activation": "pau"}).learner.network) == []
    assert foreign_classes(nn.Sequential(Squareplus(), nn.ReLU(), Squareplus())) == ["tests.own_code:Squareplus"]


METHODS = [{"method": name} for name in ("maml", "fomaml", "anil", "boil", "meta_sgd", "mamlpp", "reptile", "protonet")]
OTHERS = [{"engine": "learn2learn"}, {"engine": "higher"}, {"test_steps": 4, "clip_norm": 0.1}]


@pytest.mark.parametrize("training", [*METHODS, *OTHERS], ids=str)
def test_it_adapts_where_the_code_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, training):
    """Neither the backbone's name nor the activation's module is known when it is loaded."""
    model = tiny_model(network=OWN, **training)
    support, query = images(6), images(4, seed=1)
    expected = model.probabilities(support, SUPPORT_Y, query)
    model.save(tmp_path)
    backbones._REGISTRY.remove("own")
    monkeypatch.setattr("arelu_meta.activations.factory", None)
    loaded = FewShotModel.load(tmp_path)
    torch.testing.assert_close(loaded.probabilities(support, SUPPORT_Y, query), expected, rtol=1e-4, atol=1e-5)
    fewer = loaded.probabilities(support[:2], SUPPORT_Y[:2], query[:1])  # another number of images than in the trace
    torch.testing.assert_close(fewer, model.probabilities(support[:2], SUPPORT_Y[:2], query[:1]), rtol=1e-4, atol=1e-5)


def test_a_graph_of_a_model_that_was_saved_before_is_not_taken_for_the_new_ones(tmp_path: Path):
    for network in (OWN, {}):
        model = tiny_model(network=network)
        model.save(tmp_path)
    support, query = images(6), images(4, seed=1)
    loaded = FewShotModel.load(tmp_path)
    assert torch.equal(loaded.probabilities(support, SUPPORT_Y, query), model.probabilities(support, SUPPORT_Y, query))


def test_queries_that_see_each_other_still_do(tmp_path: Path):
    model = tiny_model(side=16, network={**CONV4, "norm": "batch", "activation": "tests.own_code:Squareplus"})
    model.save(tmp_path)
    assert (tmp_path / GRAPH_FILE).is_file()
    assert FewShotModel.load(tmp_path).transductive


UNTRACEABLE = {
    "values": ({"backbone": "branching"}, {"method": "protonet"}, "data-dependent"),
    "higher": (OWN, {"engine": "higher", "inner_optimizer": "adam", "inner_lr": 0.01}, "."),
    "support statistics": (
        {**CONV4, "norm": "batch_support", "activation": "tests.own_code:Squareplus"},
        {},
        "its graph adapts otherwise than the network itself",
    ),
}


@pytest.mark.parametrize(("network", "training", "reason"), UNTRACEABLE.values(), ids=UNTRACEABLE)
def test_what_cannot_be_traced_loads_where_its_code_is(tmp_path, monkeypatch, capsys, network, training, reason):
    model = tiny_model(network=network, **training)
    model.save(tmp_path)
    assert capsys.readouterr() == ("", "")
    assert not (tmp_path / GRAPH_FILE).exists()
    support, query = images(6), images(4, seed=1)
    expected = model.probabilities(support, SUPPORT_Y, query)
    assert torch.equal(FewShotModel.load(tmp_path).probabilities(support, SUPPORT_Y, query), expected)

    def missing(*_: object, **__: object) -> None:
        raise InputError("cannot import 'own_code'")

    monkeypatch.setattr("arelu_meta.backbones.build", missing)
    message = rf"needs tests\.own_code:.*, which could not be traced \(.*{reason}.*\); make it importable here: cannot"
    with pytest.raises(InputError, match=message) as raised:
        FewShotModel.load(tmp_path)
    assert "\n" not in str(raised.value)


def test_batch_norms_of_a_graph_take_the_statistics_of_the_batch(tmp_path: Path):
    """As they do in the learner: running statistics, which a graph of the network by itself would hold, never moved."""
    model = tiny_model(network={"backbone": "normed"})
    support, query = images(6), images(4, seed=1)
    expected = model.probabilities(support, SUPPORT_Y, query)
    model.save(tmp_path)
    backbones._REGISTRY.remove("normed")
    loaded = FewShotModel.load(tmp_path)
    torch.testing.assert_close(loaded.probabilities(support, SUPPORT_Y, query), expected, rtol=1e-4, atol=1e-5)
    assert loaded.transductive
