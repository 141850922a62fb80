"""What a prediction needs of a spec, and nothing else."""

import json

import pytest
import torch

from arelu_meta import learners
from arelu_meta.errors import InputError
from arelu_meta.kinds.few_shot.settings import LearnerSettings, build_learner
from tests.tiny_runs import tiny_spec


def test_nothing_of_data_and_training():
    spec = tiny_spec(inner_lr=0.3, clip_norm=2.0, ways=4)
    values = json.loads(json.dumps(LearnerSettings.of(spec).values()))
    assert set(values) == {"ways", "network", "method", "engine", "inner_loop"}
    assert values["inner_loop"] == {
        "inner_lr": 0.3,
        "inner_steps": 1,
        "test_steps": None,
        "clip_norm": 2.0,
        "inner_optimizer": "sgd",
        "adapt": "all",
        "head": "",
        "lora_rank": 4,
    }
    assert "digits" not in json.dumps(values)
    assert LearnerSettings(**values) == LearnerSettings.of(spec)


def test_a_spec_whose_data_is_not_here():
    """What the settings of a stored run are: plain values, whose data set may be someone else's folder."""
    values = tiny_spec(method="protonet").model_dump(mode="json")
    values["data"]["dataset"] = "someone_elses_folder"
    settings = LearnerSettings.of_values(values)
    assert (settings.method, settings.inner_loop, settings.ways) == ("protonet", {}, 2)


@pytest.mark.parametrize("method", learners.names())
def test_the_learner_of_a_spec_is_that_of_its_settings(method: str):
    spec = tiny_spec(method=method)
    settings = LearnerSettings.of(spec)
    one = build_learner(spec, 1, (28, 28))
    other = settings.build_learner(settings.build_network(1, (28, 28), seed=spec.seed))
    assert type(one) is type(other)
    states = one.state().state_dict(), other.state().state_dict()
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_adapters_start_by_the_seed_and_the_same_for_every_activation():
    def start(**settings: object) -> torch.Tensor:
        return build_learner(tiny_spec(adapt="lora", **settings), 1, (28, 28)).network.get_parameter("head.lora_a")

    torch.manual_seed(7)
    assert torch.equal(start(activation="relu"), start(activation="arelu"))
    assert not torch.equal(start(seed=1), start(seed=2))
    assert torch.initial_seed() == 7  # torch's own randomness is left alone


def test_a_network_that_is_not_known_here_is_one_line():
    with pytest.raises(InputError, match=r"network: unknown backbone 'conv5'; did you mean 'conv4'\?"):
        LearnerSettings(3, {"backbone": "conv5"}).build_network(1, (28, 28))
