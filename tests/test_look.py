"""The command `python -m arelu_meta.look`."""

from pathlib import Path

import pytest

from arelu_meta import look


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("nobody --layer block1 --images 0", "--images 0: must be at least 1"),
        ("nobody --layer block1", "no run 'nobody'"),
        ("nobody", "no run 'nobody'"),
    ],
)
def test_wrong_input_is_one_line(capsys: pytest.CaptureFixture[str], flags: str, message: str):
    assert look.main(flags.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not Path("pictures").exists()
