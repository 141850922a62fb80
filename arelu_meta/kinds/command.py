"""The commands that run one kind of run: read flags over a task file into a spec, run it, print the report.

Nothing here imports torch before the flags are read.
"""

import argparse
import gc
import os
import shlex
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from arelu_meta import data, kinds
from arelu_meta.console import catalog, command_line, output
from arelu_meta.console.flags import add_flags, from_flags, validated
from arelu_meta.errors import InputError, RunError, suggestion, unknown
from arelu_meta.trust import trusting

if TYPE_CHECKING:
    from arelu_meta.kinds.execution import Execution
    from arelu_meta.kinds.results import Result
    from arelu_meta.kinds.sections import Spec
    from arelu_meta.kinds.seeds import SeedsResult

_NOT_FLAGS = ("task", "version", "summary", "kind")
_SHORT = {"dataset": "--data"}


def run_command(
    kind: str, argv: Sequence[str] | None, *, kind_by_flag: Mapping[str, str] | None = None, example: str = ""
) -> int:
    """Read the flags, run with a progress bar, print the report, and give the exit code.

    Args:
        kind: the kind of run, as in the registry of kinds
        argv: the command's arguments; None: those of the process
        kind_by_flag: flags that call for another kind of the same command, where no task file is named
        example: the task of a command that takes its images as a word, as in `read_flags`
    """

    def command(argv: Sequence[str] | None) -> None:
        spec, execution = read_flags(kind, argv, kind_by_flag=kind_by_flag, example=example)
        if file := _early_flags(_arguments(argv)).save_task:
            save_task(spec, Path(file))
            again = f"python -m arelu_meta.{kinds.entry(spec.kind).command} --task {shlex.quote(file)}"
            output.show(f"wrote {file}; to run it: {again}", {"task_file": file, "identity": spec.identity})
            return
        for name in spec.datasets():
            data.check_path(name)  # before torch and MLflow are loaded, which takes seconds
        from arelu_meta.console import progress

        first = os.environ.get("RANK", "0") == "0"  # of several processes, the one that speaks
        loading = progress.working(f"{spec.task}: loading torch and MLflow", in_logs="torch" not in sys.modules)
        try:
            with loading if first else nullcontext():
                result = _run(spec, execution)
        except KeyboardInterrupt:
            if first:
                _say_how_to_resume(spec, _arguments(argv))
            raise
        if first:
            output.show(result.report(), result.as_dict())

    return command_line.main(command, argv)


def _run(spec: "Spec", execution: "Execution") -> "Result | SeedsResult":
    from arelu_meta.console import progress

    with _collecting_later():
        from arelu_meta.kinds.execution import TrainingExecution
        from arelu_meta.kinds.seeds import run_seeds

        kinds.entry(spec.kind).load()
    progress.now(f"{spec.task}: reading images, building the network")
    if isinstance(execution, TrainingExecution) and execution.seeds:
        return run_seeds(spec, execution, progress.shown)
    return kinds.run(spec, execution, bar=progress.shown)


def _say_how_to_resume(spec: "Spec", arguments: Sequence[str]) -> None:
    """Name the command that goes on with an interrupted run, where there is a checkpoint to go on from."""
    from arelu_meta.store.run_folder import RunFolder

    if RunFolder(spec).checkpoint_path.is_file():
        words = [word for word in arguments if word != "--resume"]
        command = f"python -m arelu_meta.{kinds.entry(spec.kind).command}"
        output.write_line(f"to resume: {shlex.join([*command.split(), *words, '--resume'])}")


@contextmanager
def _collecting_later() -> Iterator[None]:
    """Look for garbage after the block alone: what imports make stays, and looking at it takes time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


def read_flags(
    kind: str,
    argv: Sequence[str] | None,
    *,
    kind_by_flag: Mapping[str, str] | None = None,
    example: str = "",
    command: str = "",
    description: str = "",
) -> "tuple[Spec, Execution]":
    """Read the flags over the task file: `--task` names the file, every other flag replaces one of its values.

    Args:
        kind: the kind of run unless the task file or a flag of `kind_by_flag` says another
        argv: the command's arguments; None: those of the process
        kind_by_flag: flags that call for another kind, where no task file is named
        example: where given, a word without a flag names the images; where nothing names any, this task is run
        command: name of the command in the help; of the kind's own unless given
        description: first lines of the help; of the kind's own unless given

    Returns:
        What is run, and how.
    """
    arguments = _arguments(argv)
    path, values = _read_task(kind, arguments, kind_by_flag or {})
    entry = kinds.entry(values["kind"])
    parser = _parser(entry, validated(entry.spec_class, values, str(path)), kind_by_flag or {}, command, description)
    if example:
        parser.add_argument("images", nargs="?", metavar="IMAGES", help="the images, the same as --data")
    given = _parsed(parser, arguments, {} if entry.name in (kind_by_flag or {}).values() else kind_by_flag or {})
    if example and given.dataset is None and given.task is None:
        return read_flags(kind, ["--task", example, *arguments], example=example)
    del given.task  # in a spec, the name of the file
    values = entry.task_values(values, {name: value for name, value in vars(given).items() if value is not None})
    return from_flags(entry.spec_class, given, values), from_flags(entry.execution_class, given)


def _arguments(argv: Sequence[str] | None) -> list[str]:
    """The words of the command line; `--inner_lr` is accepted for `--inner-lr`."""
    arguments = []
    for argument in sys.argv[1:] if argv is None else argv:
        flag, equals, value = argument.partition("=")
        arguments.append(flag.replace("_", "-") + equals + value if flag.startswith("--") else argument)
    return arguments


def _parsed(parser: command_line.Parser, arguments: Sequence[str], others: Mapping[str, str]) -> argparse.Namespace:
    """Parse the arguments; images that are named by a word alone are those of --data.

    `others` are flags that would have called for another kind, whose flags are known then.
    """
    given, rest = parser.parse_known_intermixed_args(arguments)
    if rest:
        flag = rest[0].partition("=")[0]
        for caller, kind in others.items() if flag not in others else ():
            entry = kinds.entry(kind)
            values = {"kind": kind, **catalog.read("task", entry.task)}
            settings = validated(entry.spec_class, values, entry.task).flat()
            if flag in {*(f"--{name.replace('_', '-')}" for name in settings), *_SHORT.values()}:
                raise InputError(f"{flag} goes with {caller}, which names the network; add {caller}")
        raise InputError(f"unknown flag {flag!r}; {suggestion(flag, parser.flags())}")
    images = getattr(given, "images", None)
    if images is not None and given.dataset is not None:
        raise InputError(f"images are named twice, {images!r} and {given.dataset!r}; leave one out")
    if images is not None:
        given.dataset = images
    return given


def _parser(
    entry: kinds.Kind, defaults: "Spec", kind_by_flag: Mapping[str, str], command: str, description: str
) -> command_line.Parser:
    """Make the parser of a kind of run: a flag for every setting, with the defaults of its task."""
    does = f"{entry.summary[0].upper()}{entry.summary[1:]}, tracked in MLflow."
    for other in {name: None for name in kind_by_flag.values() if name != entry.name}:
        flags = " or ".join(flag for flag, name in kind_by_flag.items() if name == other)
        does += f" With {flags}: {kinds.entry(other).summary} (--help then lists its flags)."
    parser = command_line.Parser(
        prog=f"python -m arelu_meta.{command or entry.command}",
        description=description or does,
        allow_abbrev=False,
        epilog=f"Defaults shown are those of --task {defaults.task}. Tasks: {', '.join(catalog.names('task'))}.",
    )
    parser.add_argument("--task", metavar="NAME|FILE", help="task file, by name or path")
    parser.add_argument(
        "--save-task", metavar="FILE", help="write all settings as a task file (.toml), and run nothing"
    )
    add_flags(parser, defaults, skip=_NOT_FLAGS, short=_SHORT)
    add_flags(parser.add_argument_group("execution (no part of the result)"), entry.execution_class())
    return parser


def repeating_command(spec: "Spec") -> str:
    """Write the command that repeats a run; empty where its task file is not known by name, or flags cannot say it.

    >>> from arelu_meta.kinds.few_shot.spec import FewShotSpec
    >>> spec = FewShotSpec.model_validate({**catalog.read("task", "digits"), "seed": 3})
    >>> repeating_command(spec)
    'python -m arelu_meta.maml --task digits --seed 3'
    """
    entry = kinds.entry(spec.kind)
    words = ["--task", spec.task]
    try:
        defaults = validated(entry.spec_class, {"kind": spec.kind, **catalog.read("task", spec.task)}, spec.task).flat()
        for name, value in spec.flat().items():
            if name in _NOT_FLAGS or defaults.get(name) == value:
                continue
            flag = f"--{name.replace('_', '-')}"
            if isinstance(value, bool):
                words.append(flag if value else f"--no-{flag[2:]}")
            elif isinstance(value, dict):
                words += [flag, *(f"{key}={item}" for key, item in value.items())]
            else:
                words += [flag, *map(str, value if isinstance(value, tuple) else ["none" if value is None else value])]
        same = read_flags(spec.kind, words)[0].identity == spec.identity
    except InputError:
        return ""
    return shlex.join(["python", "-m", f"arelu_meta.{entry.command}", *words]) if same else ""


def save_task(spec: "Spec", path: Path) -> None:
    """Write all settings of a spec into a task file, which then makes the same identity.

    Args:
        spec: the settings; the name of their task is kept in the file.
        path: a .toml file, in a folder that is there.

    Raises:
        InputError: the file cannot be written, or has another ending.
    """
    if path.suffix != ".toml":
        raise InputError(f"`save_task` {path}: a task file ends in .toml; name it so")
    values = _without_none(spec, spec.model_dump(mode="json"))
    text = catalog.as_toml(values)
    if validated(type(spec), tomllib.loads(text), str(path)).identity != spec.identity:
        raise RunError(f"{path} would not make the same run; a setting of {spec.kind} has no form in TOML")
    try:
        path.write_text(f"{text}\n")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; choose another") from error


def _without_none(model: BaseModel, values: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is None by default, as TOML has no such value; what is None by choice is the word none."""
    kept: dict[str, Any] = {}
    for name, value in values.items():
        inner = getattr(model, name)
        if isinstance(inner, BaseModel):
            kept[name] = _without_none(inner, value)
        elif value is not None:
            kept[name] = value
        elif type(model).model_fields[name].get_default(call_default_factory=True) is not None:
            kept[name] = "none"
    return kept


def _early_flags(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the flags that decide which others there are, and what is done with them."""
    parser = command_line.Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--task")
    parser.add_argument("--save-task")
    parser.add_argument("--trust", default="")
    return parser.parse_known_args(arguments)[0]


def _read_task(kind: str, arguments: Sequence[str], kind_by_flag: Mapping[str, str]) -> tuple[Path, dict[str, Any]]:
    """Find and read the task file that the flags name, or that of the kind they call for; its kind is checked."""
    given = _early_flags(arguments)
    task = given.task
    flags = [argument.partition("=")[0] for argument in arguments]
    kind = next((other for flag, other in kind_by_flag.items() if flag in flags), kind)
    path = catalog.find("task", task or kinds.entry(kind).task)
    with trusting(given.trust):
        values = {"kind": kind, **catalog.read("task", task or kinds.entry(kind).task)}
    if not isinstance(values["kind"], str) or values["kind"] not in kinds.names():
        raise InputError(f"{path}: {unknown('kind', str(values['kind']), kinds.names())}")
    named = kinds.entry(values["kind"])
    if named.command != kinds.entry(kind).command:
        right = f"python -m arelu_meta.{named.command}"
        raise InputError(f"task {values['task']!r} is of kind {named.name!r}; run it with {right}")
    return path, values
