"""Flags derived from specs: every field of a spec is a flag of its command, written once, in `spec.py`.

Nothing here imports torch, so `--help` answers at once. A command is: `spec, execution = parse(...)`, then `run`.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from arelu_meta.console import catalog
from arelu_meta.console.command_line import Parser
from arelu_meta.console.validation import FLAGS, validated
from arelu_meta.errors import InputError, suggestion
from arelu_meta.kinds.execution import Execution
from arelu_meta.kinds.sections import Section, Spec

SpecT = TypeVar("SpecT", bound=Spec)
ExecutionT = TypeVar("ExecutionT", bound=Execution)
_SWITCH: dict[str, Any] = {"action": argparse.BooleanOptionalAction}
COMMANDS = {
    "few_shot": "maml",
    "classify": "classify",
    "segment": "segment",
    "transfer": "finetune",
    "finetune": "finetune",
}
_NOT_FLAGS = {"task", "version", "summary", "kind"}


def parse(
    spec_class: type[SpecT],
    *,
    module: str,
    description: str,
    default_task: str,
    argv: Sequence[str] | None = None,
    execution_class: type[ExecutionT] = Execution,  # type: ignore[assignment]  # the default of a type variable
) -> tuple[SpecT, ExecutionT]:
    """Read the flags over the task file: `--task` names the file, every other flag replaces one of its values."""
    arguments = [_dashed(argument) for argument in (sys.argv[1:] if argv is None else argv)]
    first = Parser(add_help=False, allow_abbrev=False)
    first.add_argument("--task", default=default_task)
    task = first.parse_known_args(arguments)[0].task
    values = catalog.read("task", task)
    where = f"{catalog.find('task', task)}"
    kind, own = values.get("kind"), get_args(spec_class.model_fields["kind"].annotation)[0]
    if kind != own and kind in COMMANDS:
        raise InputError(
            f"task {values['task']!r} is of kind {kind!r}; run it with python -m arelu_meta.{COMMANDS[kind]}"
        )
    defaults = validated(spec_class, values, where)

    parser = Parser(
        prog=f"python -m {module}",
        description=description,
        allow_abbrev=False,
        epilog=f"Defaults shown are those of --task {defaults.task}. Tasks: {', '.join(catalog.names('task'))}.",
    )
    parser.add_argument("--task", default=default_task, metavar="NAME|FILE", help="task file, by name or path")
    _add_flags(parser, defaults)
    _add_flags(parser.add_argument_group("execution (no part of the result)"), execution_class())
    given, rest = parser.parse_known_args(arguments)
    if rest:
        raise InputError(f"unknown flag {rest[0]!r}; {suggestion(rest[0], parser.flags())}")
    flags = {name: value for name, value in vars(given).items() if value is not None and name != "task"}
    spec = validated(spec_class, _replace(spec_class, values, flags), FLAGS)
    fields = execution_class.model_fields
    execution = {
        name: _words(flags[name]) if _is_mapping(field) else flags[name]
        for name, field in fields.items()
        if name in flags
    }
    return spec, validated(execution_class, execution, FLAGS)


def _dashed(argument: str) -> str:
    """Accept `--inner_lr` for `--inner-lr`."""
    flag, equals, value = argument.partition("=")
    return flag.replace("_", "-") + equals + value if flag.startswith("--") else argument


def _leaves(spec: BaseModel) -> list[tuple[str, FieldInfo, Any]]:
    """All settings of a spec and of its sections: name, field, value."""
    leaves: list[tuple[str, FieldInfo, Any]] = []
    for name, field in type(spec).model_fields.items():
        value = getattr(spec, name)
        if isinstance(value, Section):
            leaves.extend(_leaves(value))
        elif name not in _NOT_FLAGS:
            leaves.append((name, field, value))
    return leaves


def _add_flags(parser: argparse._ActionsContainer, defaults: Section) -> None:
    for name, field, value in _leaves(defaults):
        if isinstance(value, bool):
            parser.add_argument(
                f"--{name.replace('_', '-')}", dest=name, default=None, help=field.description, **_SWITCH
            )
            continue
        options, several = isinstance(value, dict), isinstance(value, tuple)
        shown = " ".join(f"{key}={item}" for key, item in value.items()) if options else value
        shown = " ".join(map(str, value)) if several else shown
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            *(["--data"] if name == "dataset" else []),
            dest=name,
            nargs="*" if options or several else None,
            metavar="KEY=VALUE" if options else name.rsplit("_", 1)[-1].upper(),
            help=f"{field.description} [{shown if shown not in ('', None) else 'none'}]".replace("%", "%%"),
        )


def _replace(spec_class: type[Spec], values: dict[str, Any], flags: dict[str, Any]) -> dict[str, Any]:
    """Put the flags into the sections they belong to."""
    replaced = {key: dict(value) if isinstance(value, dict) else value for key, value in values.items()}
    for name, field in spec_class.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, Section):
            chosen = {key: flags[key] for key in section.model_fields if key in flags}
            if chosen:
                fields = section.model_fields
                plain = {key: _plain(value) if _is_mapping(fields[key]) else value for key, value in chosen.items()}
                replaced.setdefault(name, {}).update(plain)
        elif name in flags:
            replaced[name] = flags[name]
    return replaced


def _is_mapping(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is dict


def _plain(value: list[str]) -> dict[str, Any]:
    """Turn KEY=VALUE words into a mapping with numbers and truth values where they look like it."""
    return {key: _literal(text) for key, text in _words(value).items()}


def _words(value: list[str]) -> dict[str, str]:
    """Turn KEY=VALUE words into a mapping."""
    options: dict[str, str] = {}
    for word in value:
        key, equals, text = word.partition("=")
        if not equals:
            raise InputError(f"{word!r} is not of the form KEY=VALUE")
        options[key] = text
    return options


def _literal(text: str) -> bool | int | float | str:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
