"""Splits as what is compared: seeds averaged, overlap corrected (Nadeau and Bengio 2003)."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from arelu_meta.analysis import Findings, analyse
from arelu_meta.analysis.decisions import equivalence_p
from arelu_meta.analysis.estimates import mean_interval, paired_difference
from arelu_meta.analysis.resampling import over_splits
from arelu_meta.errors import InputError
from arelu_meta.reporting import make_report, write_report

METRIC = "test/accuracy"
RELU = {0: (80.0, 82.0), 1: (70.0, 71.0), 2: (90.0, 88.0), 3: (75.0, 79.0)}
LEAD = {0: (3.0, 5.0), 1: (1.0, 2.0), 2: (4.0, 2.0), 3: (6.0, 5.0)}


def findings(**changes) -> Findings:
    rows = [
        {
            "activation": arm,
            "split_seed": split,
            "seed": seed,
            METRIC: value + (LEAD[split][seed] if arm == "arelu" else 0),
        }
        for arm in ("relu", "arelu")
        for split, values in RELU.items()
        for seed, value in enumerate(values)
    ]
    found = Findings(
        name="mine",
        title="",
        question="",
        runs=pd.DataFrame(rows),
        axes=("activation", "split_seed"),
        arm="activation",
        baseline="relu",
        metric=METRIC,
        units={METRIC: "%"},
        primary="arelu",
        overlap=0.25,
    )
    return replace(found, **changes)


def test_differences_over_splits_by_hand():
    """Means over seeds 4, 1.5, 3, 5.5; squared error of their mean (1 / 4 + 0.25) of the variance."""
    (comparison,) = analyse(findings()).primary
    arm = comparison.arm("arelu")
    leads = [4.0, 1.5, 3.0, 5.5]
    assert arm.difference.differences.to_dict() == pytest.approx(dict(enumerate(leads)))
    error = np.std(leads, ddof=1) * math.sqrt(1 / 4 + 0.25)
    assert arm.test.p == pytest.approx(2 * stats.t.sf(3.5 / error, 3))
    assert (arm.test.interval.low, arm.test.interval.high) == pytest.approx(stats.t.interval(0.95, 3, 3.5, error))
    assert equivalence_p(arm.difference, 5.0) == pytest.approx(stats.t.cdf((3.5 - 5) / error, 3))
    assert comparison.seeds == "n = 4 splits"
    assert arm.test.further_seeds is None


def test_without_the_axis_nothing_is_corrected():
    """Runs always say how large their parts are; only over splits does it matter."""
    one = findings(axes=("activation",), runs=findings().runs.query("split_seed == 0").drop(columns="split_seed"))
    (comparison,) = analyse(one).primary
    plain = paired_difference(pd.Series([83.0, 87.0]), pd.Series([80.0, 82.0]))
    assert comparison.arm("arelu").test.p == pytest.approx(plain.p_t)
    assert comparison.seeds == "n = 2 seeds"


def test_only_seeds_that_all_arms_of_a_split_have():
    runs = findings().runs
    lacking = runs[~((runs["activation"] == "arelu") & (runs["split_seed"] == 2) & (runs["seed"] == 1))]
    averaged = over_splits(findings(runs=lacking)).runs.set_index(["activation", "seed"])[METRIC]
    assert averaged["arelu", 2] - averaged["relu", 2] == pytest.approx(4.0)
    assert averaged["arelu", 0] - averaged["relu", 0] == pytest.approx(4.0)  # (3 + 5) / 2


def test_a_training_at_chance_makes_its_split_fail():
    """Averaged with 80, a result at chance would pass for one that learned."""
    runs = findings().runs.copy()
    runs.loc[(runs["activation"] == "arelu") & (runs["split_seed"] == 2) & (runs["seed"] == 0), METRIC] = 20.0
    (comparison,) = analyse(findings(runs=runs, chance=20.0)).primary
    assert comparison.arm("arelu").failed == {2: "collapsed"}
    assert comparison.arm("relu").failed == {}


def test_verdict_and_table_know_of_the_overlap():
    """Leads of 4, 1.5, 3 and 5.5 points differ from none by Student's test, and not where splits overlap much."""
    for overlap, words in ((0.0, "is detectably better"), (3.0, "Undecided whether arelu differs")):
        report = make_report(findings(overlap=overlap, margin=3.0, runs=findings().runs.assign(commit=["a", "b"] * 8)))
        assert words in report.verdicts[0].sentences
        assert "10,000" not in f"{report.verdicts[0].sentences} {report.verdicts[0].evidence}"
        assert any("Runs of several commits" in note for note in report.notes)


def test_arms_without_a_common_seed():
    runs = findings().runs
    apart = runs[(runs["activation"] == "relu") == (runs["seed"] == 0)]
    with pytest.raises(InputError, match="the arms have no seed in common in any split"):
        analyse(findings(runs=apart))


def test_split_seeds_that_give_one_split():
    report = make_report(findings(protocol={"split digest": "abc"}))
    assert any("these are copies" in note for note in report.notes)


def test_one_training_without_a_number_makes_its_split_fail():
    runs = findings().runs.copy()
    runs.loc[(runs["activation"] == "arelu") & (runs["split_seed"] == 3) & (runs["seed"] == 0), METRIC] = math.nan
    (comparison,) = analyse(findings(runs=runs)).primary
    assert comparison.arm("arelu").failed == {3: "diverged"}


def test_an_overlap_that_is_not_known_is_refused():
    with pytest.raises(InputError, match=r"axis split_seed.* need `overlap`, the test images per training image"):
        analyse(findings(overlap=None))


def test_the_report_says_it_and_keeps_single_runs(tmp_path: Path):
    report = make_report(findings())
    write_report(report, tmp_path)
    assert len(pd.read_csv(tmp_path / "runs.csv")) == 16
    (note,) = [note for note in report.notes if "Nadeau" in note]
    assert note.startswith("Each value is of one split of the images (split_seed), the mean over 2 seeds;")
    assert "0.25 test images per training image" in note


def test_the_correction_covers_where_students_interval_does_not():
    """Means of 20 of 100 points, ten random splits of each of 400 sets whose true mean is 0."""
    random, held = np.random.default_rng(0), {0.0: 0, 20 / 80: 0}
    for _ in range(400):
        points = random.normal(size=100)
        means = [random.permutation(points)[:20].mean() for _ in range(10)]
        for overlap in held:
            interval = mean_interval(means, overlap=overlap)
            held[overlap] += interval.low <= 0 <= interval.high
    assert held[0.0] < 0.75 * 400
    assert held[0.25] > 0.9 * 400
