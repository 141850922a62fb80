import re
from dataclasses import replace

import pandas as pd

from arelu_meta.analysis.analyse import analyse
from arelu_meta.pictures.palette import COLOURS
from arelu_meta.reporting.content import content
from arelu_meta.reporting.looks import looks
from arelu_meta.reporting.page import page
from tests.reporting.sweeps import sweep


def test_those_that_matter_come_first():
    arms = {f"other{number}": 90.0 + number for number in range(12)}
    findings = sweep({**arms, "relu_gain": 50.0, "arelu": 60.0, "relu": 40.0})
    found = looks(analyse(findings))
    assert [look.name for look in found[:3]] == ["relu", "arelu", "relu_gain"]
    assert [look.in_front for look in found] == [True] * 7 + [False] * 8
    assert COLOURS[found[0].colour] == "#000000"
    assert len({(look.colour, look.dash) for look in found}) == 15  # all look different


def test_an_arm_looks_the_same_in_every_comparison():
    """Ranks turned round from one comparison to the next, as a report over two numbers of shots may have them."""
    arms = {f"other{number}": 60.0 + 10 * number for number in range(4)}
    near = sweep({**arms, "relu": 50.0}, arm_sd=0)
    far = sweep({**{name: 200.0 - value for name, value in arms.items()}, "relu": 50.0}, arm_sd=0)
    runs = pd.concat([near.runs.assign(shots=1), far.runs.assign(shots=5)], ignore_index=True)
    findings = replace(near, runs=runs, axes=("activation", "shots"))
    assert [comparison.arms[0].name for comparison in analyse(findings).judged] == ["other3", "other0"]
    drawn = re.findall(r'class="row (c\d|rest)"><div class="name"><b>(\w+)', page(content(findings)))
    assert len(drawn) == 10
    assert len(set(drawn)) == 5
