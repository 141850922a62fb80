import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from arelu_meta.analysis.estimates import Estimate
from arelu_meta.console import command_line, output, progress
from arelu_meta.errors import InputError


def command(argv: Sequence[str] | None) -> None:
    parser = command_line.Parser(prog="python -m arelu_meta.mine")
    parser.add_argument("--fail", action="store_true")
    given = parser.parse_args(argv)
    assert set(vars(given)) == {"fail"}
    progress.say("under way")
    if given.fail:
        raise InputError("the value 3 is wrong; give 4")
    output.show("for people", {"score": 1.5})


@pytest.mark.parametrize(
    ("words", "out", "err"),
    [
        ([], "for people\n", "under way\n"),
        (["--quiet"], "for people\n", ""),
        (["--json"], {"command": "mine", "score": 1.5}, "under way\n"),
        (["--json", "--quiet"], {"command": "mine", "score": 1.5}, ""),
    ],
)
def test_one_of_two_is_printed(capsys: pytest.CaptureFixture[str], words: list[str], out: object, err: str):
    assert command_line.main(command, words) == 0
    captured = capsys.readouterr()
    assert (captured.out if isinstance(out, str) else json.loads(captured.out)) == out
    assert captured.err == err
    assert not output.wants_json()  # nor is the next command
    assert not output.is_quiet()


def test_what_libraries_print_does_not_mix_with_the_document(capsys: pytest.CaptureFixture[str]):
    """As torch.hub does: `Downloading: ...` on standard output, before the result."""

    def downloading(argv: Sequence[str] | None) -> None:
        command_line.Parser(prog="python -m arelu_meta.mine").parse_args(argv)
        sys.stdout.write("Downloading: weights\n")
        print("done")  # noqa: T201
        output.show("for people", {"score": 1.5})

    assert command_line.main(downloading, ["--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"command": "mine", "score": 1.5}
    assert captured.err == "Downloading: weights\ndone\n"
    assert command_line.main(downloading, []) == 0
    assert capsys.readouterr() == ("Downloading: weights\ndone\nfor people\n", "")


def test_wrong_input_stays_one_line_on_standard_error(capsys: pytest.CaptureFixture[str]):
    assert command_line.main(command, ["--json", "--quiet", "--fail"]) == 2
    assert capsys.readouterr() == ("", "error: the value 3 is wrong; give 4\n")


def test_plain_values():
    given = {
        "estimate": Estimate(0.5, math.nan, math.inf, 3),
        "path": Path("a") / "b",
        "numbers": np.array([1.0, math.nan]),
        "number": np.float64(2.5),
        7: (True, None, "text"),
    }
    plain = output.plain(given)
    assert json.loads(json.dumps(plain, allow_nan=False)) == {
        "estimate": {"mean": 0.5, "low": None, "high": None, "n": 3, "cut": False},
        "path": "a/b",
        "numbers": [1.0, None],
        "number": 2.5,
        "7": [True, None, "text"],
    }


def test_a_part_of_a_command_takes_the_flags_too(capsys: pytest.CaptureFixture[str]):
    def parts(argv: Sequence[str] | None) -> None:
        parser = command_line.Parser(prog="python -m arelu_meta.whole")
        parser.add_subparsers(dest="part").add_parser("part")
        parser.parse_args(argv)
        output.show("", {})

    for words in (["part", "--json"], ["--json", "part"]):
        assert command_line.main(parts, words) == 0
        assert json.loads(capsys.readouterr().out) == {"command": "whole"}
