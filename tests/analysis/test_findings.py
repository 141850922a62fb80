import pandas as pd

from arelu_meta.analysis import Findings, analyse
from arelu_meta.reporting import make_report, report_summary


def test_eight_arguments_are_enough():
    """A table from anywhere has no run ids, times, curves or units: it is analysed and reported all the same."""
    runs = pd.DataFrame({"model": ["a", "a", "b", "b"], "seed": [0, 1, 0, 1], "score": [1.0, 2.0, 3.0, 4.5]})
    findings = Findings("mine", "", "", runs, ("model",), "model", "a", "score")
    (comparison,) = analyse(findings).primary
    assert comparison.arm("b").difference.differences.to_dict() == {0: 2.0, 1: 2.5}
    text = report_summary(make_report(findings))
    assert text.startswith("mine\n\nUndecided whether b differs from a on score: +2.25, 95 % interval ")
