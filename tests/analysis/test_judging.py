"""Tables of runs as findings: which runs count, and what the answer is; numbers by hand and by scipy."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from arelu_meta.analysis.arms import Analysis, analyse
from arelu_meta.analysis.judging import Answer, answer_of, find_fields, findings_of_table
from arelu_meta.errors import InputError

SEARCHED = ["run_id", "status", "params.lr", "params.seed", "tags.seed", "metrics.lr", "metrics.val/acc"]


def runs(**columns: list) -> pd.DataFrame:
    """Two arms on three seeds: differences 5, 6 and 5.5."""
    table = {"lr": [0.1] * 3 + [0.01] * 3, "seed": [0, 1, 2] * 2, "acc": [80.0, 82.0, 84.0, 85.0, 88.0, 89.5]}
    return pd.DataFrame(table | columns)


def judged(table: pd.DataFrame, arm: str = "lr", metric: str = "acc", **given) -> tuple[Analysis, tuple[str, ...]]:
    named = {key: given.pop(key) for key in ("seed", "pair_by") if key in given}
    findings = findings_of_table(table, find_fields(list(table), arm=arm, metric=metric, **named), **given)
    return analyse(findings), findings.remarks


def difference(analysis: Analysis, arm: str) -> dict[int, float]:
    return analysis.primary[0].arm(arm).difference.differences.to_dict()


@pytest.mark.parametrize(
    ("given", "columns"),
    [
        ({"arm": "param:lr", "metric": "val/acc"}, ("params.lr", "metrics.val/acc", ("params.seed",))),
        ({"arm": "lr", "metric": "metric:lr", "seed": "tag:seed"}, ("params.lr", "metrics.lr", ("tags.seed",))),
        ({"arm": "lr", "metric": "lr", "pair_by": ["status"]}, ("params.lr", "metrics.lr", ("status",))),
        (
            {"arm": "lr", "metric": "lr", "seed": "seed", "pair_by": ["tag:seed"]},
            ("params.lr", "metrics.lr", ("params.seed", "tags.seed")),
        ),
    ],
)
def test_fields_are_found_by_kind_and_by_role(given: dict, columns: tuple):
    found = find_fields(SEARCHED, **given)
    assert (found.arm, found.metric, found.pair_by) == columns


def test_where_nothing_is_called_seed_the_flag_that_names_it_is_said():
    message = "nothing named 'seed' pairs runs of different arms; name with `seed` what does: acc, model, repeat"
    with pytest.raises(InputError, match=message):
        find_fields(["model", "metrics.acc", "repeat"], arm="model", metric="acc")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"arm": "param:lrr", "metric": "lr"}, "unknown param 'lrr'; did you mean 'lr'?"),
        ({"arm": "lr", "metric": "val/ac"}, "unknown metric 'val/ac'; did you mean 'val/acc'?"),
        ({"arm": "lr", "metric": "lr", "seed": "sede"}, "unknown column 'sede'; did you mean 'seed'?"),
        ({"arm": "lr", "metric": "val/acc", "seed": "param:lr"}, "'lr' is named twice"),
    ],
)
def test_wrong_names_suggest_near_ones(given: dict, message: str):
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        find_fields(SEARCHED, **given)


def test_numbers_are_those_of_scipy():
    analysis, remarks = judged(runs())
    arm = analysis.primary[0].arm("0.01")
    test = stats.ttest_rel([85.0, 88.0, 89.5], [80.0, 82.0, 84.0])
    interval = test.confidence_interval()
    assert (analysis.findings.baseline, remarks) == ("0.1", ())
    assert arm.test.p == pytest.approx(test.pvalue, rel=1e-9)
    assert (arm.test.interval.low, arm.test.interval.high) == pytest.approx((interval.low, interval.high), rel=1e-9)
    assert answer_of(analysis) is Answer.DIFFERENT


def test_equivalence_is_that_of_statsmodels():
    weightstats = pytest.importorskip("statsmodels.stats.weightstats")
    random = np.random.default_rng(0)
    one = random.normal(80, 1, 12)
    other = one + random.normal(0.1, 0.3, 12)
    table = pd.DataFrame({"lr": ["a"] * 12 + ["b"] * 12, "seed": [*range(12)] * 2, "acc": [*one, *other]})
    analysis, _ = judged(table, margin=0.5)
    p, *_ = weightstats.ttost_paired(other, one, -0.5, 0.5)
    assert analysis.primary[0].arm("b").test.p_equivalence == pytest.approx(p, rel=1e-9)
    assert answer_of(analysis) is Answer.EQUIVALENT


def test_runs_that_did_not_finish_are_left_out_and_one_that_diverged_failed():
    status = ["FINISHED"] * 3 + ["FAILED", "FAILED", "FINISHED"]
    table = runs(status=status).assign(**{"tags.diverged": [None] * 4 + ["step 3", None]})
    analysis, remarks = judged(table)
    assert remarks == ("Runs that have not finished are left out: 1 FAILED.",)
    assert analysis.primary[0].arm("0.01").failed == {1: "diverged"}
    assert difference(analysis, "0.01") == {2: 5.5}
    assert analysis.findings.missing == ("lr = 0.01: no finished run of seed 0",)


def test_runs_without_a_value_are_left_out_and_those_that_are_not_finite_failed():
    table = runs(acc=["80", "82", "84", "", "nan", "89.5"], seed=[0, 1, 2, 0, 1, None])
    analysis, remarks = judged(table)
    assert remarks == ("Runs without seed are left out: 1.", "Runs without acc are left out: 1.")
    assert analysis.primary[0].arm("0.01").failed == {1: "diverged"}
    with pytest.raises(InputError, match="acc = 'good' is no number"):
        judged(runs(acc=["80", "82", "84", "good", "1", "2"]))


def test_runs_of_one_arm_and_seed_count_once_by_their_mean():
    """Seed 0 of 0.01 three times: (85 + 86 + 90) / 3 = 87, so 7 above 80; its runs differ in `epochs` alone."""
    extra = pd.DataFrame({"lr": [0.01] * 2, "seed": [0] * 2, "acc": [86.0, 90.0], "params.epochs": ["2", "3"]})
    table = pd.concat(
        [runs().assign(**{"params.epochs": "1", "params.width": "8"}), extra.assign(**{"params.width": "8"})]
    )
    analysis, remarks = judged(table)
    assert difference(analysis, "0.01") == {0: 7.0, 1: 6.0, 2: 5.5}
    assert remarks == ("Runs that share lr and seed count once, by their mean (0.01, 0: 3); they differ in epochs.",)


def test_a_cell_of_which_one_run_failed_has_failed():
    extra = pd.DataFrame({"lr": [0.01], "seed": [1], "acc": ["nan"]})
    analysis, _ = judged(pd.concat([runs().astype({"acc": str}), extra]))
    assert analysis.primary[0].arm("0.01").failed == {1: "diverged"}
    assert difference(analysis, "0.01") == {0: 5.0, 2: 5.5}


def test_the_earliest_arm_is_the_baseline_and_numbers_may_be_written_in_two_ways():
    table = runs(lr=["0.1", "1e-1", "0.10", "0.01", "0.01", "0.01"], start_time=[9, 8, 7, 3, 4, 5])
    analysis, _ = judged(table)
    assert analysis.findings.baseline == "0.01"
    assert sorted(arm.name for arm in analysis.primary[0].arms) == ["0.01", "0.1"]
    assert judged(table, baseline="1e-1")[0].findings.baseline == "0.1"
    with pytest.raises(InputError, match=r"unknown baseline '0\.2'; did you mean"):
        judged(table, baseline="0.2")


def test_pairs_agree_in_several_fields():
    """Two data sets with two seeds each: four pairs; without the data set there would be two."""
    table = pd.DataFrame(
        {
            "arm": ["a"] * 4 + ["b"] * 4,
            "data": ["x", "x", "y", "y"] * 2,
            "seed": [0, 1] * 4,
            "loss": [4.0, 3.0, 2.0, 1.0, 4.5, 3.25, 2.5, 1.75],
        }
    )
    analysis, remarks = judged(table, "arm", "loss", seed="seed", pair_by=["data"])
    assert sorted(difference(analysis, "b").values()) == [0.25, 0.5, 0.5, 0.75]
    assert not analysis.findings.higher_is_better
    assert remarks[0] == "What tables call a seed is the number of a pair, of seed, data; runs.csv says which."
    assert set(analysis.findings.runs[["given seed", "data"]].itertuples(index=False, name=None)) == {
        *(("0", "x"), ("1", "x"), ("0", "y"), ("1", "y"))
    }


def test_answers_of_too_little_and_of_nothing():
    assert answer_of(judged(runs()[lambda table: table["seed"] == 0])[0]) is Answer.TOO_LITTLE
    assert answer_of(judged(runs()[:0])[0]) is Answer.TOO_LITTLE
    assert answer_of(judged(runs(lr=0.1, seed=[*range(6)]))[0]) is Answer.TOO_LITTLE
    assert answer_of(judged(runs(acc=[1.0, 2.0, 3.0, 1.0, 2.0, 3.0]))[0]) is Answer.EQUIVALENT  # identical
    assert answer_of(judged(runs(acc=[1.0, 2.0, 3.0, 3.0, 1.0, 2.0]))[0]) is Answer.NONE
    with pytest.raises(InputError, match="`margin` = -1: must be above 0"):
        judged(runs(), margin=-1.0)


def test_one_arm_without_a_test_is_not_equivalent():
    """`b` is identical to `a`; `c` shares no seed with it, and nothing is known of it."""
    table = pd.DataFrame({"arm": ["a", "a", "b", "b", "c"], "seed": [0, 1, 0, 1, 2], "acc": [1.0, 2.0, 1.0, 2.0, 5.0]})
    assert answer_of(judged(table, "arm")[0]) is Answer.NONE


@pytest.mark.slow
def test_false_alarms_are_as_rare_as_they_are_said_to_be():
    """Four arms of one truth: any difference at all in at most 5 % of the sweeps. P(X > 32 of 400 | 5 %) < 0.005."""
    random = np.random.default_rng(0)
    names = {"arm": np.repeat(["a", "b", "c", "d"], 5), "seed": np.tile(range(5), 4)}
    fields = find_fields(["arm", "seed", "acc"], arm="arm", metric="acc")
    alarms = 0
    for _ in range(400):
        drawn = random.normal(0, 2, (1, 5)) + random.normal(0, 1, (4, 5))
        table = pd.DataFrame({**names, "acc": drawn.ravel()})
        alarms += answer_of(analyse(findings_of_table(table, fields))) is Answer.DIFFERENT
    assert stats.binom.sf(32, 400, 0.05) < 0.005
    assert alarms <= 32


@pytest.mark.slow
def test_half_of_true_differences_are_found_where_power_says_so():
    """detectable_difference at 50 % power, found in 200 sweeps about every other time."""
    from arelu_meta.analysis.power import detectable_difference

    size = detectable_difference(math.sqrt(2), 8, power=0.5)
    random, found = np.random.default_rng(1), 0
    fields = find_fields(["arm", "seed", "acc"], arm="arm", metric="acc")
    for _ in range(200):
        drawn = random.normal(0, 1, (2, 8)) + np.array([[0], [size]])
        table = pd.DataFrame({"arm": np.repeat(["a", "b"], 8), "seed": np.tile(range(8), 2), "acc": drawn.ravel()})
        found += answer_of(analyse(findings_of_table(table, fields))) is Answer.DIFFERENT
    assert 75 < found < 125  # 100 +- 3.5 standard deviations of 7.1


@pytest.mark.slow
def test_intervals_hold_the_truth_and_equivalence_is_claimed_wrongly_as_rarely_as_said():
    """Arms 1, 2 and 3 above the baseline: all three intervals hold in 95 % of the sweeps. P(X < 365 of 400) < 0.001.

    A margin of 1, which the first arm lies at: it is called equivalent in at most 5 %.
    """
    random, held, equivalent = np.random.default_rng(2), 0, 0
    truth = np.arange(4)[:, None]
    names = {"arm": np.repeat(["a", "b", "c", "d"], 6), "seed": np.tile(range(6), 4)}
    fields = find_fields(["arm", "seed", "acc"], arm="arm", metric="acc")
    for _ in range(400):
        drawn = truth + random.normal(0, 2, (1, 6)) + random.normal(0, 0.3, (4, 6))
        findings = findings_of_table(pd.DataFrame({**names, "acc": drawn.ravel()}), fields, baseline="a", margin=1.0)
        tests = [analyse(findings).primary[0].arm(name).test for name in "bcd"]
        held += all(test.interval.low <= size <= test.interval.high for size, test in enumerate(tests, start=1))
        equivalent += tests[0].p_equivalence < 0.05
    assert stats.binom.cdf(364, 400, 0.95) < 0.001
    assert held >= 365
    assert equivalent <= 32
