"""Networks of one's own code: their graphs adapt and answer as they do, or they say what is missing."""

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from arelu_meta import backbones
from arelu_meta.backbones import BackboneEntry
from arelu_meta.errors import InputError
from arelu_meta.kinds.few_shot.model import FewShotModel
from arelu_meta.kinds.few_shot.settings import LearnerSettings
from arelu_meta.kinds.few_shot.traced import foreign_code
from arelu_meta.store.graphs import GRAPH_FILE
from tests.own_code import Branching, Normed, OwnBackbone, Squareplus, layers_of_torch
from tests.tiny_model import CONV4, images, tiny_model
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = MLFLOW_WARNINGS
SUPPORT_Y = torch.tensor([0, 1, 2, 0, 1, 2])
OWN = {"backbone": "own", "activation": "tests.own_code:Squareplus"}


@pytest.fixture(autouse=True)
def own_backbones() -> Iterator[None]:
    """Backbones that this process alone has registered."""
    added = {"own": OwnBackbone, "layers": layers_of_torch, "branching": Branching, "normed": Normed}
    for name, target in added.items():
        backbones._REGISTRY.add(BackboneEntry(name, target))
    yield
    for name in added:
        if name in backbones._REGISTRY:
            backbones._REGISTRY.remove(name)


def test_whose_code_a_network_is():
    """By what builds it and by what it is built of; torch's and ours are everywhere."""
    ours = {"backbone": "conv4", "activation": "torch.nn:Hardswish"}
    assert foreign_code(LearnerSettings(3, ours), nn.Sequential(nn.ReLU())) == []
    assert foreign_code(LearnerSettings(3), nn.Sequential(Squareplus(), Squareplus())) == ["tests.own_code:Squareplus"]
    theirs = {"backbone": "tests.own_code:layers_of_torch", "activation": "registered_elsewhere"}
    found = foreign_code(LearnerSettings(3, theirs), nn.Sequential(nn.ReLU()))
    assert found == ["registered_elsewhere", "tests.own_code:layers_of_torch"]
    assert foreign_code(LearnerSettings(3, {"backbone": "own"}), nn.ReLU()) == ["tests.own_code:OwnBackbone"]


@pytest.mark.parametrize(
    "network",
    [
        {"backbone": "tests.own_code:layers_of_torch"},
        {"backbone": "layers", "activation": "relu"},
        {"activation": "tests.own_code:leaky"},
    ],
    ids=str,
)
def test_what_a_function_builds_of_layers_of_torch_travels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, network):
    model = tiny_model(network=network)
    support, query = images(6), images(4, seed=1)
    expected = model.probabilities(support, SUPPORT_Y, query)
    model.save(str(tmp_path))
    monkeypatch.setattr("arelu_meta.backbones.build", None)
    loaded = FewShotModel.load(tmp_path)
    torch.testing.assert_close(loaded.probabilities(support, SUPPORT_Y, query), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", ["maml", "protonet"])
def test_a_model_that_travelled_can_be_trained_copied_and_saved_again(tmp_path: Path, method: str):
    """Where its code is not; with the weights that it has when it is saved."""
    tiny_model(network=OWN, method=method).save(tmp_path / "first")
    backbones._REGISTRY.remove("own")
    loaded = FewShotModel.load(tmp_path / "first")
    support, query = images(6), images(4, seed=1)
    before = loaded.probabilities(support, SUPPORT_Y, query)
    with torch.no_grad():
        for parameter in loaded.learner.network.parameters():
            parameter.mul_(1.5)
    expected = loaded.probabilities(support, SUPPORT_Y, query)
    assert not torch.allclose(expected, before, atol=1e-3)
    loaded.save(tmp_path / "second")
    for model in (copy.deepcopy(loaded), FewShotModel.load(tmp_path / "second")):
        assert torch.equal(model.probabilities(support, SUPPORT_Y, query), expected)


def test_what_a_method_of_ones_own_learned_beside_the_network_stays(tmp_path: Path):
    """Logits of 7 times the distances instead of 3 times."""
    model = tiny_model(network=OWN, method="tests.own_code:ScaledProtoNet")
    with torch.no_grad():
        model.learner.scale.fill_(7.0)
    model.save(tmp_path)
    assert (tmp_path / GRAPH_FILE).is_file()
    loaded = FewShotModel.load(tmp_path, trust=["tests", "no_such_module"])
    assert loaded.learner.scale.item() == 7.0
    support, query = images(6), images(4, seed=1)
    expected = model.probabilities(support, SUPPORT_Y, query)
    torch.testing.assert_close(loaded.probabilities(support, SUPPORT_Y, query), expected, rtol=1e-4, atol=1e-5)


def test_a_method_of_ones_own_has_to_be_there(tmp_path: Path):
    tiny_model(method="tests.own_code:ScaledProtoNet").save(tmp_path)
    path = tmp_path / "few_shot.json"
    path.write_text(path.read_text().replace("tests.own_code:", "no_such_module:"))
    message = "needs method 'no_such_module:ScaledProtoNet': methods of one's own are not stored with a model; make it"
    with pytest.raises(InputError, match=f"{message} importable here: cannot import 'no_such_module'"):
        FewShotModel.load(tmp_path, trust=["tests", "no_such_module"])


METHODS = [{"method": name} for name in ("maml", "fomaml", "anil", "boil", "meta_sgd", "mamlpp", "reptile", "protonet")]
OTHERS = [
    {"engine": "learn2learn"},
    {"engine": "higher"},
    {"test_steps": 4, "clip_norm": 0.1},
    {"adapt": "lora", "lora_rank": 2},
]


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
    assert torch.equal(FewShotModel.load(tmp_path, trust=["tests"]).probabilities(support, SUPPORT_Y, query), expected)

    def missing(*_: object, **__: object) -> None:
        raise InputError("cannot import 'own_code'")

    monkeypatch.setattr("arelu_meta.backbones.build", missing)
    message = rf"needs tests\.own_code:.*, which could not be traced \(.*{reason}.*\); make it importable here: cannot"
    with pytest.raises(InputError, match=message) as raised:
        FewShotModel.load(tmp_path, trust=["tests", "no_such_module"])
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
