import ast
import re
from pathlib import Path

import pytest

from arelu_meta.errors import InputError, RunError, first_line, suggestion, unknown

KNOWN = ["relu", "arelu", "tanh"]


@pytest.mark.parametrize(("name", "near"), [("arleu", "arelu"), ("RELU", "relu"), ("tahn", "tanh")])
def test_near_name_is_suggested(name: str, near: str):
    assert suggestion(name, KNOWN) == f"did you mean {near!r}?"


def test_far_name_lists_all_in_order():
    assert suggestion("zzz", KNOWN) == "known: arelu, relu, tanh"
    assert suggestion("zzz", []) == "known: none"


def test_unknown_says_kind_and_name():
    error = unknown("activation", "arleu", KNOWN)
    assert isinstance(error, InputError)
    assert str(error) == "unknown activation 'arleu'; did you mean 'arelu'?"


def test_callers_catch_wrong_input_as_value_error():
    assert issubclass(InputError, ValueError)
    assert not issubclass(RunError, ValueError)


@pytest.mark.parametrize(
    ("error", "line"),
    [(ValueError("\n one\ntwo"), "one"), (OSError(), "OSError"), (RuntimeError(" \n"), "RuntimeError")],
)
def test_the_first_line_of_an_error(error: Exception, line: str):
    assert first_line(error) == line


def test_messages_below_the_commands_name_arguments_not_flags(root: Path):
    """Commands show the arguments that are flags of theirs as flags; from a notebook, a flag does not exist."""
    package, advised = root / "arelu_meta", []
    for path in package.rglob("*.py"):
        if path.parent == package or path.name == "__main__.py" or path.parent.name == "console":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and re.search(r"(?<![\w-])--[a-z]", ast.unparse(node)):
                advised.append(f"{path.relative_to(package)}:{node.lineno}")
    of_mlflow = ("store/connection.py", "store/syncing.py")  # a flag of the mlflow command
    ours = [place for place in advised if not place.startswith(of_mlflow)]
    assert ours == []
