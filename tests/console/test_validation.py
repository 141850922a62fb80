from typing import Any

import pytest
from pydantic import BaseModel, model_validator

from arelu_meta.console.validation import FLAGS, validated
from arelu_meta.errors import InputError
from arelu_meta.kinds.few_shot.spec import FewShotSpec


def values(**sections: Any) -> dict[str, Any]:
    return {"task": "mine", "data": {"dataset": "digits"}, **sections}


def complaint(where: str, content: dict[str, Any]) -> str:
    with pytest.raises(InputError) as raised:
        validated(FewShotSpec, content, where)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_good_values_become_the_spec():
    spec = validated(FewShotSpec, values(episode={"ways": 7}), "mine.toml")
    assert (spec.episode.ways, spec.data.dataset) == (7, "digits")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (values(episode={"way": 5}), "mine.toml [episode]: unknown key 'way', did you mean 'ways'?"),
        (values(eposide={}), "mine.toml: unknown key 'eposide', did you mean 'episode'?"),
        ({"task": "mine"}, "mine.toml: data is missing"),
        ({"task": "mine", "data": {}}, "mine.toml [data]: dataset is missing"),
        (values(episode={"shots": 0}), "mine.toml [episode]: shots = 0 must be at least 1"),
        (values(training={"inner_lr": -0.1}), "mine.toml [training]: inner_lr = -0.1 must be greater than 0"),
        (
            values(network={"activation": "arleu"}),
            "mine.toml [network]: unknown activation 'arleu'; did you mean 'arelu'?",
        ),
    ],
)
def test_of_a_file_place_key_value_and_problem(content: dict[str, Any], message: str):
    assert complaint("mine.toml", content) == message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (values(episode={"shots": "0"}), "--shots 0: must be at least 1"),
        (values(training={"inner_lr": "-0.1"}), "--inner-lr -0.1: must be greater than 0"),
        (values(network={"activation": "arleu"}), "unknown activation 'arleu'; did you mean 'arelu'?"),
    ],
)
def test_of_a_flag_the_flag_and_problem(content: dict[str, Any], message: str):
    assert complaint(FLAGS, content) == message


@pytest.mark.parametrize("value", ["five", "1.5", ""])
def test_not_a_number(value: str):
    assert complaint(FLAGS, values(episode={"ways": value})).startswith(f"--ways {value}: must be a valid integer")


def test_wrong_option_value_names_the_flag():
    assert complaint(FLAGS, values(network={"activation_options": {"alpha": [1]}})).startswith("--activation-options")


class Consistent(BaseModel):
    low: int
    high: int

    @model_validator(mode="after")
    def _ordered(self) -> "Consistent":
        if self.low > self.high:
            raise InputError("`low` is above `high`; lower `low`")
        return self


@pytest.mark.parametrize(
    ("where", "message"),
    [(FLAGS, "`low` is above `high`; lower `low`"), ("a.toml", "a.toml: low is above high; lower low")],
)
def test_arguments_in_messages_are_keys_of_a_file_and_left_to_the_command_for_flags(where: str, message: str):
    with pytest.raises(InputError) as raised:
        validated(Consistent, {"low": 2, "high": 1}, where)
    assert str(raised.value) == message
