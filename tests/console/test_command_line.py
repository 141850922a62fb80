import argparse
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

import pytest

from arelu_meta.console import command_line
from arelu_meta.errors import InputError, RunError
from arelu_meta.runtime.signals import Terminated


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (InputError("ways is wrong"), 2, "error: ways is wrong\n"),
        (RunError("the loss is nan"), 1, "error: the loss is nan\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (Terminated(), 143, "terminated\n"),
        (None, 0, ""),
    ],
)
def test_exit_codes(capsys: pytest.CaptureFixture[str], error: BaseException | None, code: int, line: str):
    def command(_argv: Sequence[str] | None) -> None:
        if error is not None:
            raise error

    assert command_line.main(command, []) == code
    assert capsys.readouterr().err == line


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(28, "No space left on device", "runs/a"), "the machine failed: No space left on device (runs/a)"),
        (OSError(24, "Too many open files"), "the machine failed: Too many open files"),
        (MemoryError(), "there is not enough memory; train on less at once, or end other processes"),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried\nmore"),
            "there is not enough memory ([enforce fail] DefaultCPUAllocator: can't allocate memory: you tried); "
            "train on less at once, or end other processes",
        ),
    ],
)
def test_what_the_machine_lacks_is_one_line(capsys: pytest.CaptureFixture[str], error: Exception, line: str):
    def command(_argv: Sequence[str] | None) -> None:
        raise RuntimeError("of a library") from error

    assert command_line.main(command, []) == 1
    assert capsys.readouterr().err == f"error: {line}\n"


def test_a_folder_that_was_deleted_is_the_machines_doing_and_a_wrong_name_is_ours(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    def command(argv: Sequence[str] | None) -> None:
        Path((argv or [""])[0]).read_text()

    assert command_line.main(command, [f"{tmp_path}/runs/a"]) == 1
    assert capsys.readouterr().err == f"error: the machine failed: No such file or directory ({tmp_path}/runs/a)\n"
    with pytest.raises(FileNotFoundError):
        command_line.main(command, [f"{tmp_path}/a"])
    with pytest.raises(IsADirectoryError):
        command_line.main(command, [f"{tmp_path}"])


def test_output_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """A full disk behind it, and afterwards nothing more is said of it; a closed one; letters that it has not."""
    with Path("/dev/full").open("w", encoding="ascii") as full:
        monkeypatch.setattr("sys.stdout", full)
        assert command_line.main(lambda _argv: print("\u00e4rger"), []) == 1  # noqa: T201
    assert capsys.readouterr().err == "error: the machine failed: No space left on device\n"
    monkeypatch.setattr("sys.stdout", None)
    assert command_line.main(lambda _argv: print("nobody reads it"), []) == 0  # noqa: T201


def test_other_errors_are_not_hidden():
    def command(_argv: Sequence[str] | None) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        command_line.main(command, [])


@pytest.mark.usefixtures("hangups_heard")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_command_and_its_handler_is_put_back(number: int, code: int):
    before = signal.getsignal(number)

    def command(_argv: Sequence[str] | None) -> None:
        os.kill(os.getpid(), number)
        signal.pause()

    assert command_line.main(command, []) == code
    assert signal.getsignal(number) is before


@pytest.mark.parametrize(("given", "taken"), [(None, "3"), ("9", "9")])
def test_mlflow_tries_a_server_again_for_seconds_unless_told_otherwise(
    given: str | None, taken: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", given or "")
    if given is None:
        monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES")
    seen: list[str] = []
    command_line.main(lambda _argv: seen.append(os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"]), [])
    assert seen == [taken]


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


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("lower `inner_lr`", "lower --inner-lr"),
        ('use `engine="func"`', "use --engine func"),
        ("set `milestones=(50, 75)`", "set --milestones 50 75"),
        ("set `limit=None`", "set --limit none"),
        ("leave out `resume`", "leave out --resume"),
        ("set `resume=True`", "set --resume"),
        ("set `resume=False`", "set --no-resume"),
        ('lower `ways`, or use `method="maml"`', 'lower ways, or use method="maml"'),
        ("`make setup` installs it", "`make setup` installs it"),
    ],
)
@pytest.mark.parametrize("error", [InputError, RunError])
def test_arguments_named_by_the_library_are_shown_as_flags_of_the_command(
    capsys: pytest.CaptureFixture[str], error: type[Exception], message: str, line: str
):
    def command(argv: Sequence[str] | None) -> None:
        first = command_line.Parser(add_help=False)
        first.add_argument("--inner-lr")
        parser = command_line.Parser()
        for flag in ("--engine", "--milestones", "--limit"):
            parser.add_argument(flag)
        parser.add_argument_group("how").add_argument("--resume", action=argparse.BooleanOptionalAction)
        parser.parse_args(argv)
        raise error(message)

    assert command_line.main(command, []) == (2 if error is InputError else 1)
    assert capsys.readouterr().err == f"error: {line}\n"


def test_flags_are_those_of_the_command_that_runs(capsys: pytest.CaptureFixture[str]):
    """A parser of an earlier command, or of none, does not count."""

    def first(_argv: Sequence[str] | None) -> None:
        command_line.Parser().add_argument("--ways")

    def second(_argv: Sequence[str] | None) -> None:
        raise InputError("lower `ways`")

    command_line.Parser().add_argument("--ways")
    assert command_line.main(first, []) == 0
    assert command_line.main(second, []) == 2
    assert capsys.readouterr().err == "error: lower ways\n"


def test_flags_of_a_subcommand_count(capsys: pytest.CaptureFixture[str]):
    def command(argv: Sequence[str] | None) -> None:
        parser = command_line.Parser()
        parser.add_subparsers(dest="what").add_parser("show").add_argument("--out")
        parser.parse_args(argv)
        raise InputError("choose another `out`")

    assert command_line.main(command, ["show"]) == 2
    assert capsys.readouterr().err == "error: choose another --out\n"


def test_a_warning_names_flags_too():
    seen = []

    def command(_argv: Sequence[str] | None) -> None:
        command_line.Parser().add_argument("--lr")
        seen.append(warnings.formatwarning("`lr` is high", UserWarning, "training.py", 1))

    assert command_line.main(command, []) == 0
    assert seen == ["warning: --lr is high\n"]


def test_an_output_folder_is_made_with_all_above_it(tmp_path: Path):
    assert command_line.output_folder(tmp_path / "a" / "b").is_dir()


def test_a_file_in_place_of_an_output_folder_is_wrong_input(tmp_path: Path):
    (tmp_path / "taken").write_text("")
    for place in (tmp_path / "taken", tmp_path / "taken" / "below"):
        with pytest.raises(InputError, match=r"cannot make the folder .*taken.*; choose another"):
            command_line.output_folder(place)


@pytest.mark.parametrize(
    "form",
    ["http://me:{}@127.0.0.1:5000", "http://me@a.org:{}@127.0.0.1:5000", "postgresql://host/db?password={}&user=me"],
)
@pytest.mark.parametrize("password", ["s3cr3tpw", "s3cr@t:pw", "s3cr%40tpw"])
def test_passwords_are_masked_whoever_writes_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], password: str, form: str
):
    """On both streams, in errors, and in the traceback of an error nobody expected; as written, and decoded."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", form.format(password))

    def command(argv: Sequence[str] | None) -> None:
        print(f"View run at {form.format(password)}")  # noqa: T201  # as MLflow does
        sys.stderr.write(f"connecting with {unquote(password)}\n")
        raise RunError(f"no answer from {password}") if argv else KeyError(password)

    for argv in (["known"], []):
        assert command_line.main(command, argv) == 1
        captured = capsys.readouterr()
        assert password not in captured.out + captured.err
        assert unquote(password) not in captured.out + captured.err
        assert captured.out == f"View run at {form.format('***')}\n"
        assert "connecting with ***" in captured.err
    assert "KeyError" in captured.err


def test_without_a_password_output_and_errors_are_left_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    monkeypatch.delenv("MLFLOW_TRACKING_PASSWORD", raising=False)
    streams = []

    def command(_argv: Sequence[str] | None) -> None:
        streams.append(sys.stdout)
        raise KeyError("a mistake in code")

    with pytest.raises(KeyError):
        command_line.main(command, [])
    assert streams == [sys.stdout]
