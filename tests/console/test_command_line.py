import argparse
import os
import signal
import warnings
from collections.abc import Sequence

import pytest

from arelu_meta.console import command_line
from arelu_meta.errors import InputError, RunError


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (InputError("ways is wrong"), 2, "error: ways is wrong\n"),
        (RunError("the loss is nan"), 1, "error: the loss is nan\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (command_line.Terminated(), 143, "terminated\n"),
        (None, 0, ""),
    ],
)
def test_exit_codes(capsys: pytest.CaptureFixture[str], error: BaseException | None, code: int, line: str):
    def command(_argv: Sequence[str] | None) -> None:
        if error is not None:
            raise error

    assert command_line.main(command, []) == code
    assert capsys.readouterr().err == line


def test_other_errors_are_not_hidden():
    def command(_argv: Sequence[str] | None) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        command_line.main(command, [])


def test_sigterm_ends_the_command_and_its_handler_is_put_back():
    before = signal.getsignal(signal.SIGTERM)

    def command(_argv: Sequence[str] | None) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()

    assert command_line.main(command, []) == 143
    assert signal.getsignal(signal.SIGTERM) is before


def test_parser_does_not_exit_by_itself():
    with pytest.raises(InputError):
        command_line.Parser().error("anything")
    assert issubclass(command_line.Parser, argparse.ArgumentParser)


def test_a_warning_is_one_line_while_a_command_runs():
    before, seen = warnings.formatwarning, []

    def command(_argv: Sequence[str] | None) -> None:
        seen.append(warnings.formatwarning("the files are not the publisher's", UserWarning, "mnist.py", 1))

    assert command_line.main(command, []) == 0
    assert seen == ["warning: the files are not the publisher's\n"]
    assert warnings.formatwarning is before
