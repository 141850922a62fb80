"""The command `python -m arelu_meta.look`."""

import importlib.util
from pathlib import Path

import pytest

from arelu_meta import look

NOBODY = "0" * 32


def test_a_missing_package_is_said_before_anything_is_loaded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "captum" else object())
    monkeypatch.setattr("arelu_meta.kinds.look.look_into", lambda *_, **__: pytest.fail("was begun"))
    assert look.main(["nobody", "--layer", "block1"]) == 2
    assert capsys.readouterr().err == "error: Grad-CAM needs the package captum; pip install 'arelu-meta[explain]'\n"


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (f"{NOBODY} --layer block1 --images 0", "--images 0: must be at least 1"),
        (f"{NOBODY} --layer block1", f"no run '{NOBODY}'"),
        (NOBODY, f"no run '{NOBODY}'"),
        ("nobody", "no folder, MLflow run or model URI: 'nobody'"),
    ],
)
def test_wrong_input_is_one_line(capsys: pytest.CaptureFixture[str], flags: str, message: str):
    assert look.main(flags.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not Path("pictures").exists()
