import hashlib
import json

import pytest
from pydantic import ValidationError

from arelu_meta import kinds
from arelu_meta.kinds.execution import Execution
from arelu_meta.kinds.few_shot.spec import FewShotSpec


def made(**sections) -> FewShotSpec:
    return FewShotSpec.model_validate({"task": "mine", "data": {"dataset": "digits"}, **sections})


def test_specs_are_frozen():
    spec = made()
    with pytest.raises(ValidationError, match="frozen"):
        spec.seed = 1
    with pytest.raises(ValidationError, match="frozen"):
        spec.episode.ways = 3


def test_unknown_keys_are_refused():
    with pytest.raises(ValidationError, match="Extra inputs"):
        made(colour="blue")
    with pytest.raises(ValidationError, match="Extra inputs"):
        made(episode={"way": 5})


@pytest.mark.parametrize(
    "sections",
    [
        {"episode": {"ways": 1}},
        {"episode": {"shots": 0}},
        {"episode": {"queries": 0}},
        {"training": {"inner_lr": 0}},
        {"training": {"outer_lr": -1}},
        {"training": {"outer_lr": float("inf")}},
        {"training": {"inner_lr": float("nan")}},
        {"training": {"iterations": 0}},
        {"training": {"method": "reptil"}},
        {"evaluation": {"protocol": "both"}},
        {"evaluation": {"test_episodes": 1}},
        {"data": {"dataset": "digits", "test": 1.0}},
        {"data": {"dataset": "digit"}},
        {"network": {"backbone": "conv5"}},
        {"seed": -1},
        {"version": 0},
    ],
)
def test_values_out_of_range_are_refused(sections: dict):
    with pytest.raises(ValidationError):
        made(**sections)


def test_places_outside_the_package_are_accepted():
    assert made(network={"activation": "torch.nn:Hardswish"}).network.activation == "torch.nn:Hardswish"


def test_identity_is_the_hash_of_what_decides_the_result():
    """SHA-256 of the sorted JSON without the summary, made here anew."""
    spec = made(summary="words")
    content = json.loads(spec.model_dump_json())
    del content["summary"]
    assert spec.identity == hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    assert spec.identity == made(summary="other words").identity


@pytest.mark.parametrize(
    "sections", [{"seed": 1}, {"version": 2}, {"episode": {"shots": 2}}, {"network": {"activation": "relu"}}]
)
def test_every_change_is_another_identity(sections: dict):
    assert made(**sections).identity != made().identity


def test_flat_has_every_setting_once():
    spec = made(seed=3, episode={"ways": 7})
    flat = spec.flat()
    sections = [spec.data, spec.episode, spec.network, spec.training, spec.evaluation]
    leaves = sum(len(type(section).model_fields) for section in sections) + len(FewShotSpec.model_fields) - 5
    assert len(flat) == leaves  # no two sections share a name, or a flag would have two meanings
    assert (flat["seed"], flat["ways"], flat["dataset"], flat["kind"]) == (3, 7, "digits", "few_shot")


def test_training_queries_of_the_protocols():
    episode = {"shots": 3, "queries": 7}
    assert made(episode=episode).train_queries == 7
    assert made(episode=episode, evaluation={"protocol": "paper"}).train_queries == 3


def test_round_trip_through_json():
    spec = made(network={"activation_options": {"alpha": 0.5, "clamp": "sigmoid"}})
    assert FewShotSpec.model_validate_json(spec.model_dump_json()) == spec


def test_kinds():
    assert kinds.entry("few_shot").spec_class is FewShotSpec


def test_defaults_are_the_papers():
    """Five inner steps, 32 tasks, 100 iterations, learning rate 0.005."""
    training = made().training
    assert (training.inner_steps, training.meta_batch, training.iterations) == (5, 32, 100)
    assert training.inner_lr == training.outer_lr == 0.005


def test_every_setting_says_what_it_is():
    spec = made()
    for section in (spec.data, spec.episode, spec.network, spec.training, spec.evaluation, Execution()):
        for name, field in type(section).model_fields.items():
            assert field.description, name


def test_execution_is_no_part_of_the_identity():
    assert not set(Execution.model_fields) & set(made().flat())
