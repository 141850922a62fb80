from arelu_meta.palette import COLOURS
from arelu_meta.reporting.analysis import analyse
from arelu_meta.reporting.looks import looks
from tests.reporting.sweeps import sweep


def test_those_that_matter_come_first():
    arms = {f"other{number}": 90.0 + number for number in range(12)}
    findings = sweep({**arms, "relu_gain": 50.0, "arelu": 60.0, "relu": 40.0})
    found = looks(findings, analyse(findings).judged[0])
    assert [look.name for look in found[:3]] == ["relu", "arelu", "relu_gain"]
    assert [look.in_front for look in found] == [True] * 7 + [False] * 8
    assert COLOURS[found[0].colour] == "#000000"
    assert len({(look.colour, look.dash) for look in found}) == 15  # all look different
