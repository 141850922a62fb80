import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from arelu_meta.analysis.arms import analyse
from arelu_meta.analysis.controls import against_controls, explained_arm
from tests.reporting.sweeps import CONTROLS, sweep


@pytest.mark.parametrize(
    ("arms", "explained", "found"),
    [
        (("relu", "arelu", "elu"), None, "arelu"),
        (("relu", "elu", "arelu_unit"), None, "elu"),  # the only one that is neither baseline nor control
        (("relu", "elu", "celu"), None, None),
        (("relu", "arelu", "elu"), "elu", "elu"),
        (("relu", "arelu"), "elu", None),  # named, but no run of it finished
        (("relu",), None, None),
    ],
)
def test_explained_arm(arms: tuple[str, ...], explained: str | None, found: str | None):
    findings = sweep(dict.fromkeys(arms, 60.0), explained=explained)
    assert explained_arm(findings, analyse(findings).primary[0]) == found


def test_against_scipy_and_statsmodels():
    findings = sweep(seeds=range(6))
    controls = against_controls(findings, analyse(findings).primary[0])
    table = findings.runs.pivot(index="seed", columns="activation", values="test/accuracy")
    raw = [stats.ttest_rel(table["arelu"], table[name]).pvalue for name in CONTROLS]
    assert [control.arm for control in controls] == list(CONTROLS)
    assert [control.lacks for control in controls] == list(CONTROLS.values())
    assert [control.test.p for control in controls] == pytest.approx(
        multipletests(raw, method="bonferroni")[1], rel=1e-9
    )


def test_controls_that_cannot_be_tested():
    findings = sweep({"relu": 60.0, "arelu": 70.0, "arelu_unit": 60.0}, seeds=[0])
    assert against_controls(findings, analyse(findings).primary[0]) == []


def test_the_primary_arm_is_the_one_explained():
    findings = sweep(dict.fromkeys(("relu", "elu", "celu"), 60.0), primary="elu")
    assert explained_arm(findings, analyse(findings).primary[0]) == "elu"
