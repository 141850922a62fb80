import pandas as pd
import pytest

from arelu_meta.analysis.analyse import analyse
from arelu_meta.reporting.frame import frame
from tests.reporting.sweeps import sweep


def test_a_row_per_arm_and_setting():
    findings = sweep({"relu": 60.0, "arelu": 70.0}, lrs=(0.01, 0.1))
    table = frame(analyse(findings))
    assert table.groupby("view").size().to_dict() == {"fixed": 4, "matched": 2}
    at = table[(table["view"] == "fixed") & (table["lr"] == 0.1)].set_index("activation")
    runs = findings.runs[findings.runs["lr"] == 0.1].pivot(index="seed", columns="activation", values="test/accuracy")
    assert at.at["arelu", "mean"] == pytest.approx(runs["arelu"].mean())
    assert at.at["arelu", "difference"] == pytest.approx((runs["arelu"] - runs["relu"]).mean())
    assert at.at["arelu", "seconds"] == 300.0
    assert pd.isna(at.at["relu", "difference"])
    assert at.at["relu", "role"] == "baseline"
