import io
import re
import sys
import time

import pytest

from arelu_meta.console import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("total", "lines"), [(100, 10), (10, 10), (3, 3), (25, 10)])
def test_plain_lines_every_tenth(capsys: pytest.CaptureFixture[str], total: int, lines: int):
    with progress.shown("train", total) as advance:
        for step in range(total):
            advance(f"step {step}")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == lines
    assert captured.err.splitlines()[-1].startswith(f"train {total}/{total}  step {total - 1}")


def test_live_on_a_terminal(monkeypatch: pytest.MonkeyPatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress.shown("train", 2) as advance:
        advance("first")
        advance("loss 0.5")
    assert "2/2" in terminal.getvalue()
    assert "loss 0.5" in terminal.getvalue()


def test_what_is_done_before_and_after_a_bar_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress.working("digits: loading torch"):
        time.sleep(0.3)  # the line is drawn ten times a second
        assert "digits: loading torch" in terminal.getvalue()
        with progress.shown("train", 1) as advance:
            advance("loss 0.5")
        time.sleep(0.3)
        assert "recording" in terminal.getvalue().rpartition("loss 0.5")[2]


def test_colours_are_left_out_where_the_environment_says_so(monkeypatch: pytest.MonkeyPatch):
    """https://no-color.org: any value of NO_COLOR; the bar itself still moves."""
    written = {}
    for value in ("", "1"):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("NO_COLOR", value)  # empty counts as not there
        with progress.shown("train", 1) as advance:
            advance("")
        written[value] = terminal.getvalue()
    colour = re.compile(r"\x1b\[[0-9;]*3[0-9][0-9;]*m")
    assert colour.search(written[""])
    assert not colour.search(written["1"])


def test_a_log_has_one_line_of_what_is_done(capsys: pytest.CaptureFixture[str]):
    with progress.working("loading", in_logs=True):
        progress.now("reading")
    with progress.working("more"):
        pass
    assert capsys.readouterr().err == "loading\n"


def test_silent(capsys: pytest.CaptureFixture[str]):
    with progress.silent("train", 2) as advance:
        advance("note")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(28, "No space left on device"), ValueError("closed")])
def test_a_line_that_cannot_be_written_ends_nothing(monkeypatch: pytest.MonkeyPatch, error: Exception):
    """Standard error may be a pipe that was closed, a full disk, or closed itself."""

    class Gone(io.StringIO):
        def write(self, _text: str) -> int:
            raise error

    monkeypatch.setattr(sys, "stderr", Gone())
    with progress.shown("train", 2) as advance:
        advance("")
        advance("")
