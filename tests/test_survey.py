"""The command `python -m arelu_meta.survey`."""

import pytest

from arelu_meta import survey


def test_the_command_writes_the_table(capsys: pytest.CaptureFixture[str]):
    assert survey.main(["alexnet", "timm/vgg11"]) == 0
    text = capsys.readouterr().out
    assert "1 of 2 networks swapped, 1 refused" in text
    assert "| alexnet | 7 | 0 | |" in text
    assert "| timm/vgg11 | | | pre_logits cannot be traced" in text
    assert survey.main(["alexnett"]) == 2
    assert "unknown network 'alexnett'; did you mean 'alexnet'?" in capsys.readouterr().err
