import io
import sys

import pytest

from arelu_meta.console import progress


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
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress.shown("train", 2) as advance:
        advance("first")
        advance("loss 0.5")
    assert "2/2" in terminal.getvalue()
    assert "loss 0.5" in terminal.getvalue()


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
