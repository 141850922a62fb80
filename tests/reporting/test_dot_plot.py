import re

from arelu_meta.analysis.analyse import analyse
from arelu_meta.reporting.content import content
from arelu_meta.reporting.dot_plot import dot_plot
from arelu_meta.reporting.looks import looks
from tests.reporting.sweeps import sweep


def drawn(**fields: object) -> str:
    findings = sweep(**fields)
    analysis = analyse(findings)
    return dot_plot(findings, analysis.judged[0], looks(analysis), content(findings).numbers)


def test_places_are_proportional():
    """60 and 80 with room of 4 % on both sides: at 4 / 108 and 104 / 108 of the width."""
    text = drawn(truth={"relu": 60.0, "arelu": 80.0}, seeds=[0], seed_sd=0, arm_sd=0)
    values = re.findall(r'<circle cx="([\d.]+)%"', text)
    assert values[0] == "96.30"  # arelu, the best, first
    assert values[-1] == "3.70"
    assert text.count('x1="3.70%" x2="3.70%" y1="0" y2="100%" class="base"') >= 2  # the baseline, in every strip


def test_wide_intervals_do_not_squeeze_the_points():
    """Two seeds: the t interval is 9 times as wide as the points are apart, and runs out of the figure."""
    text = drawn(truth={"relu": 60.0, "arelu": 60.0}, seeds=[0, 1])
    ends = [
        float(end) for end in re.findall(r'<line x1="(-?[\d.]+)%" x2="-?[\d.]+%" y1="17" y2="17" class="bar"', text)
    ]
    assert min(ends) < 0


def test_strips_describe_themselves():
    text = drawn(truth={"relu": 60.0, "arelu": 80.0})
    assert 'aria-label="arelu: mean ' in text
    assert 'aria-label="arelu: difference +' in text


def test_without_a_baseline_there_are_no_differences():
    text = drawn(truth={"elu": 60.0, "arelu": 80.0})
    assert 'class="dots single"' in text
    assert "difference to" not in text
