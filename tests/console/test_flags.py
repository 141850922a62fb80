from typing import Any

import pytest
from pydantic import BaseModel, Field, model_validator

from arelu_meta.console.command_line import Parser
from arelu_meta.console.flags import FLAGS, add_flags, from_flags, validated
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


class Layer(BaseModel):
    width: int = Field(8, description="units, 50 % more than enough")
    options: dict[str, bool | int | float | str] = Field({}, description="options of the layer")


class Settings(BaseModel):
    name: str = Field("none so far", description="what it is called")
    deep: bool = Field(False, description="whether it is deep")
    wide: bool | None = Field(None, description="whether it is wide, by default on Sundays")
    milestones: tuple[int, ...] = Field((1, 2), description="where it turns")
    tags: dict[str, str] = Field({}, description="words")
    layer: Layer = Layer()


def read(*argv: str, values: dict[str, Any] | None = None) -> Settings:
    parser = Parser()
    add_flags(parser, Settings(), skip=["name"], short={"width": "--units"})
    return from_flags(Settings, parser.parse_args(argv), values)


def test_any_model_has_flags(capsys: pytest.CaptureFixture[str]):
    assert read() == Settings()
    assert read("--width", "3", "--deep").model_dump() == {
        **Settings(deep=True).model_dump(),
        "layer": {"width": 3, "options": {}},
    }
    assert read("--units", "3").layer.width == 3
    assert read("--milestones", "5", "6", "7").milestones == (5, 6, 7)
    assert read("--no-deep", values={"deep": True, "name": "mine"}) == Settings(name="mine")
    assert [read(*words).wide for words in ([], ["--wide"], ["--no-wide"])] == [None, True, False]
    with pytest.raises(InputError, match="unknown flag '--name'"):
        read("--name", "x")
    with pytest.raises(SystemExit):
        read("--help")
    shown = capsys.readouterr().out
    assert "units, 50 % more than enough [8]" in shown
    assert "where it turns [1 2]" in shown
    assert "options of the layer [none]" in shown


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-3", -3),
        ("0.5", 0.5),
        ("1e-3", 0.001),
        ("true", True),
        ("false", False),
        ("nan", "nan"),
        ("infinity", "infinity"),
        ("inf", "inf"),
        ("-inf", "-inf"),
        ("1_000", "1_000"),
        ("1e999", "1e999"),
        ("", ""),
        ("relu", "relu"),
    ],
)
def test_options_that_look_like_numbers_are_numbers_and_no_others(text: str, value: object):
    """Python's own int and float take more, such as nan and 1_000, which no user writes for a number."""
    option = read("--options", f"a={text}").layer.options["a"]
    assert option == value
    assert type(option) is type(value)
    assert read("--tags", f"a={text}").tags == {"a": text}
