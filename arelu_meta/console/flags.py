"""Flags from pydantic models: every field is a flag, written once, where the model is; values become models again.

Nothing here imports torch, so `--help` answers at once.
"""

import argparse
import math
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from arelu_meta.console.command_line import arguments_as_flags
from arelu_meta.errors import InputError, suggestion

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)  # it has no public name

ModelT = TypeVar("ModelT", bound=BaseModel)
FLAGS = "flags"  # where values come from that come from no file
_SWITCH: dict[str, Any] = {"action": argparse.BooleanOptionalAction}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def add_flags(
    parser: argparse._ActionsContainer,
    defaults: BaseModel,
    *,
    skip: Collection[str] = (),
    short: Mapping[str, str] | None = None,
) -> None:
    """Add a flag for every field of a model and of the models inside it.

    Args:
        parser: parser or group that takes the flags; a flag that is not given is None there
        defaults: the model whose values the help shows
        skip: fields that are no flags
        short: second names of flags, by field
    """
    for name, field in type(defaults).model_fields.items():
        value = getattr(defaults, name)
        if name in skip:
            continue
        if isinstance(value, BaseModel):
            add_flags(parser, value, skip=skip, short=short)
            continue
        flags = [f"--{name.replace('_', '-')}", *([short[name]] if short and name in short else [])]
        if isinstance(value, bool) or bool in get_args(field.annotation):  # or neither, where it is not said
            parser.add_argument(*flags, dest=name, default=None, help=field.description, **_SWITCH)
            continue
        words = value if isinstance(value, tuple) else [value]
        if isinstance(value, dict):
            words = [f"{key}={item}" for key, item in value.items()]
        shown = "none" if value is None else " ".join(map(str, words)) or "none"
        parser.add_argument(
            *flags,
            dest=name,
            nargs="*" if isinstance(value, dict | tuple) else None,
            metavar="KEY=VALUE" if isinstance(value, dict) else name.rsplit("_", 1)[-1].upper(),
            help=f"{field.description} [{shown}]".replace("%", "%%"),
        )


def from_flags(model: type[ModelT], given: argparse.Namespace, values: Mapping[str, Any] | None = None) -> ModelT:
    """Make a model of plain values and of the flags that were given, which replace them.

    Args:
        model: the class to make; fields of models inside it are flags too
        given: what the parser read, None for flags that were not given
        values: values of a file, sections as mappings
    """
    flags = {name: value for name, value in vars(given).items() if value is not None}

    def chosen(fields: Mapping[str, FieldInfo]) -> dict[str, Any]:
        return {
            name: _options(field, flags[name]) if get_origin(field.annotation) is dict else flags[name]
            for name, field in fields.items()
            if name in flags
        }

    replaced = {key: dict(value) if isinstance(value, dict) else value for key, value in (values or {}).items()}
    replaced.update(chosen(model.model_fields))
    for name, field in model.model_fields.items():
        section = field.annotation
        if not (isinstance(section, type) and issubclass(section, BaseModel)):
            continue
        if new := chosen(section.model_fields):
            replaced.setdefault(name, {}).update(new)
    return validated(model, replaced, FLAGS)


def _options(field: FieldInfo, words: list[str]) -> dict[str, Any]:
    """Turn KEY=VALUE words into a mapping; numbers and truth values where the field takes them."""
    options: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            raise InputError(f"{word!r} is not of the form KEY=VALUE")
        options[key] = text if get_args(field.annotation)[1] is str else _literal(text)
    return options


def _literal(text: str) -> bool | int | float | str:
    """Read a number or a truth value as such. Words that only Python takes for numbers (nan, 1_000) stay words.

    >>> [_literal(text) for text in ("true", "3", "-1e-3", "nan", "1_000", "relu")]
    [True, 3, -0.001, 'nan', '1_000', 'relu']
    """
    if text in ("true", "false"):
        return text == "true"
    if not _NUMBER.fullmatch(text):
        return text
    if text.lstrip("+-").isdigit():
        return int(text)
    return float(text) if math.isfinite(float(text)) else text


def validated(model: type[ModelT], values: Mapping[str, Any], where: str) -> ModelT:
    """Make a model from plain values; what is wrong with them becomes one line.

    Args:
        model: the class to make
        values: its fields, sections as mappings
        where: the file that the values come from, or `FLAGS`

    Raises:
        InputError: a value is wrong; the message says where, which key, which value and what is wrong.
    """
    try:
        return model.__pydantic_validator__.validate_python(values)  # as pydantic, to say where they come from
    except ValidationError as error:
        raise InputError(_one_line(model, error.errors()[0], where)) from None


class CheckedType(ModelMetaclass):
    """Metaclass of models that raise `InputError` when they are called with wrong values: section, key, value, remedy.

    >>> class Size(BaseModel, metaclass=CheckedType):
    ...     side: int
    >>> Size(side=0.5)
    Traceback (most recent call last):
    arelu_meta.errors.InputError: Size: side = 0.5 must be a valid integer, got a number with a fractional part
    """

    def __call__(self, *arguments: Any, **values: Any) -> Any:
        """Make a model; models inside it are made without such a call, so that the line is the outermost model's."""
        try:
            return super().__call__(*arguments, **values)
        except ValidationError as error:
            model: Any = self
            raise InputError(_one_line(model, error.errors()[0], model.__name__, python=True)) from None


class CheckedModel(BaseModel, metaclass=CheckedType):
    """A model that raises `InputError` for wrong values whichever way it is made; copies are checked too."""

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Make a model of plain values; options as pydantic has them."""
        try:
            return super().model_validate(obj, **options)
        except ValidationError as error:
            raise InputError(_one_line(cls, error.errors()[0], cls.__name__, python=True)) from None

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        """Make a model of JSON; options as pydantic has them."""
        try:
            return super().model_validate_json(json_data, **options)
        except ValidationError as error:
            raise InputError(_one_line(cls, error.errors()[0], cls.__name__, python=True)) from None

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy it with other values, which have to go with those that stay."""
        if update:
            checked = type(self).model_validate({**dict(self), **update})
            update = {name: getattr(checked, name) for name in update}
        return super().model_copy(update=update, deep=deep)


def _one_line(model: type[BaseModel], problem: ErrorDetails, where: str, *, python: bool = False) -> str:
    path = [part for part in problem["loc"] if isinstance(part, str)]  # without positions in a list
    message = problem["msg"].replace("Input should be", "must be").replace("greater than or equal to", "at least")
    message = message.partition(", unable to parse")[0]  # pydantic's reason, which says nothing more
    option = next((number for number, part in enumerate(path) if part.endswith("_options")), len(path)) + 1
    if len(path) > option + 1:  # pydantic goes on with a type that an option may have
        path, message = path[: option + 1], "must be a number, text, true or false"
    sections, key = path[:-1], path[-1] if path else ""  # none: several settings do not go together
    place = where + (f" [{'.'.join(sections)}]" if sections else "")
    if problem["type"] == "extra_forbidden":
        for section in sections:
            annotation = model.model_fields[section].annotation
            if isinstance(annotation, type) and issubclass(annotation, BaseModel):
                model = annotation
        return f"{place}: unknown key {key!r}, {suggestion(key, model.model_fields)}"
    if problem["type"] == "missing":
        return f"{place}: {key} is missing"
    if problem["type"] == "value_error":
        reason = str(problem["ctx"]["error"])
        if where == FLAGS:
            return reason
        return f"{place}: {reason if python else arguments_as_flags(reason)}"  # a file has keys, no flags
    if where == FLAGS:
        flag = next((part for part in sections if part.endswith("_options")), key).replace("_", "-")
        return f"--{flag} {problem['input']}: {message}"
    return f"{place}: {key} = {problem['input']!r} {message}"
