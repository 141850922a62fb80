"""The command `python -m arelu_meta.completion`."""

import json

import pytest

from arelu_meta.__main__ import commands
from arelu_meta.completion import main


def test_every_command_and_its_flags(capsys: pytest.CaptureFixture[str]):
    assert main(["bash", "--json"]) == 0
    text = json.loads(capsys.readouterr().out)["script"]
    lines = dict(line.strip().partition(") words=")[::2] for line in text.splitlines() if ") words=" in line)
    for name in commands():
        assert "--json" in lines[name.removeprefix("arelu_meta.")]
    assert "--meta-batch" in lines["maml"]
    assert "--model" in lines["finetune"]  # of its second kind
    assert "--pretrain-epochs" in lines["finetune"]
    assert "--lr-sweep" in lines["lr_view"]
    assert lines["data"].startswith("'list show ")
    assert "maml_digits" in lines["compare"]
    assert "glyphs" in lines['*" --task"']
    assert lines['"segment --task"'].split() == ["'lgg", "lgg_plain", "phantom'", ";;"]  # those that it runs
    assert lines['"adapt --method"'].startswith("'prototypes knn linear ")


def test_wrong_shell(capsys: pytest.CaptureFixture[str]):
    assert main(["csh"]) == 2
    assert "invalid choice: 'csh'" in capsys.readouterr().err
