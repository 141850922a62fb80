"""Make a spec from plain values; what is wrong with them becomes one line."""

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from arelu_meta.console.command_line import arguments_as_flags
from arelu_meta.errors import InputError, suggestion

ModelT = TypeVar("ModelT", bound=BaseModel)
FLAGS = "flags"


def validated(model: type[ModelT], values: dict[str, Any], where: str) -> ModelT:
    """Validate; `where` names the file the values come from, or is `FLAGS`."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise InputError(_one_line(model, error.errors()[0], where)) from None


def _one_line(model: type[BaseModel], problem: ErrorDetails, where: str) -> str:
    """Say the first problem as: where, which key, which value, what is wrong."""
    path = [part for part in problem["loc"] if isinstance(part, str)]  # without places in a list
    sections, key = path[:-1], path[-1] if path else ""  # none: several settings do not go together
    place = where + (f" [{'.'.join(sections)}]" if sections else "")
    if problem["type"] == "extra_forbidden":
        return f"{place}: unknown key {key!r}, {suggestion(key, _owner(model, sections).model_fields)}"
    if problem["type"] == "missing":
        return f"{place}: {key} is missing"
    if problem["type"] == "value_error":
        message = str(problem["ctx"]["error"])
        return message if where == FLAGS else f"{place}: {arguments_as_flags(message)}"  # a file has keys, no flags
    message = problem["msg"].replace("Input should be", "must be").replace("greater than or equal to", "at least")
    if where == FLAGS:
        flag = next((part for part in sections if part.endswith("_options")), key).replace("_", "-")
        return f"--{flag} {problem['input']}: {message}"
    return f"{place}: {key} = {problem['input']!r} {message}"


def _owner(model: type[BaseModel], sections: list[str]) -> type[BaseModel]:
    for section in sections:
        annotation = model.model_fields[section].annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            model = annotation
    return model
