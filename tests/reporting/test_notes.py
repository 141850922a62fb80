import math
from dataclasses import replace

import pandas as pd

from arelu_meta.analysis.arms import analyse
from arelu_meta.analysis.findings import Findings
from arelu_meta.reporting.notes import make_notes
from tests.reporting.sweeps import sweep

TWO = {"relu": 60.0, "arelu": 75.0}


def said(findings: Findings) -> str:
    return "\n".join(make_notes(analyse(findings)))


def test_five_seeds_and_the_permutation_test():
    assert said(sweep(TWO)).startswith(
        "With 5 seeds the exact permutation test cannot go below p = 0.0625, so it cannot confirm a difference at 0.05;"
    )
    assert "at 0.05 corrected over 6 arms" in said(sweep())
    assert said(sweep(TWO, seeds=range(6))) == ""  # 2 / 64 = 0.031 is below 0.05


def test_the_two_tests_disagree():
    """4, 3, 3, 8, 0, 6, 5, -3: Student's p is 0.032, but 16 of the 256 sign patterns reach a sum of 26: 0.0625."""
    differences = pd.Series([4.0, 3.0, 3.0, 8.0, 0.0, 6.0, 5.0, -3.0])
    relu = pd.DataFrame({"activation": "relu", "seed": range(8), "test/accuracy": 60.0})
    arelu = relu.assign(**{"activation": "arelu", "test/accuracy": 60.0 + differences})
    text = said(replace(sweep(TWO), runs=pd.concat([relu, arelu])))
    assert text == "Detectable by the t test but not by the permutation test: arelu."


def test_lost_and_missing_seeds():
    findings = sweep({"relu": 60.0, "arelu": 75.0, "elu": 70.0})
    runs = findings.runs
    runs.loc[(runs["activation"] == "elu") & (runs["seed"] == 4), "test/accuracy"] = math.nan
    runs = runs[~((runs["activation"] == "arelu") & (runs["seed"] > 0))]
    text = said(replace(findings, runs=runs))
    assert "Trainings that failed, and are in no mean, no interval and no t test: elu (seed 4 diverged)." in text
    fewer = "Fewer seeds than the 5 of the others, paired where seeds are shared: "
    assert fewer in text
    assert "arelu (n = 1)" in text
    assert "elu (n = 4)" in text
    assert "One seed gives no interval and no test: arelu." in text


def test_no_shared_seed():
    findings = sweep(TWO)
    runs = findings.runs.copy()
    runs.loc[runs["activation"] == "arelu", "seed"] += 100
    assert "No seed shared with relu: arelu." in said(replace(findings, runs=runs))


def test_settings_with_other_seeds():
    findings = sweep(TWO, lrs=(0.01, 0.1))
    runs = findings.runs
    fewer = runs[(runs["activation"] == "relu") | (runs["lr"] == 0.1) | (runs["seed"] < 3)]
    words = "Settings that were not all run with the same seeds, chosen on those they share: "
    assert f"{words}arelu." in said(replace(findings, runs=fewer))
    assert words not in said(findings)


def test_constant_differences():
    assert "is the same in every seed and has no spread to test with: arelu." in said(sweep(TWO, arm_sd=0.0))


def test_seeds_that_lie_far_apart():
    """Two of five trainings came to nothing: 30 and 40 beside 80, 81, 82; sd 25 where the other arms have 1.58."""
    level = pd.Series([70.0, 71.0, 72.0, 73.0, 74.0])
    relu = pd.DataFrame({"activation": "relu", "seed": range(5), "test/accuracy": level})
    elu = relu.assign(activation="elu")
    arelu = relu.assign(**{"activation": "arelu", "test/accuracy": [30.0, 81.0, 82.0, 80.0, 40.0]})
    findings = sweep(TWO)
    text = said(replace(findings, runs=pd.concat([relu, elu, arelu])))
    wanted = "The seeds of arelu lie far apart, from 30.00 to 82.00 with a median of 80.00: look at them"
    assert wanted in text
    assert "far apart" not in said(replace(findings, runs=pd.concat([relu, arelu])))  # no telling which of two is usual
    assert "far apart" not in said(sweep())


def test_rates_at_the_edge_and_without_validation():
    edge = said(sweep(TWO, lrs=(0.001, 0.01, 0.1), best_lr={"relu": 0.1, "arelu": 0.01}))
    assert "Best at the edge of the grid, a wider one might do better: relu (lr = 0.1)." in edge
    blind = said(sweep(TWO, lrs=(0.01, 0.1), validation_metric=None))
    assert "There is no view with lr matched: choosing it per arm needs a validation metric." in blind


def test_what_holds_everywhere_is_said_once():
    findings = sweep(TWO)
    both = pd.concat([findings.runs.assign(shots=1), findings.runs[findings.runs["seed"] < 4].assign(shots=5)])
    text = said(replace(findings, runs=both, axes=("activation", "shots")))
    assert "Gaussian (shots = 1)." in text  # 5 seeds here, 4 there
    assert "Gaussian (shots = 5)." in text
    same = pd.concat([findings.runs.assign(shots=1), findings.runs.assign(shots=5)])
    assert said(replace(findings, runs=same, axes=("activation", "shots"))).count("Gaussian") == 1
    assert "not over the tables." in text


def test_execution_that_differs_between_arms_is_noted():
    executed = {
        "relu": {"exec.threads": ("2",), "exec.precision": ("fp32",), "exec.workers": ("2", "1")},
        "arelu": {"exec.threads": ("1",), "exec.precision": ("fp32",), "exec.workers": ("1", "2")},
        "elu": {"exec.threads": ("1",), "exec.precision": ("fp32",), "exec.workers": ("1", "2")},
    }
    text = said(sweep(dict.fromkeys(executed, 60.0), seeds=range(8), execution=executed))
    assert "Arms were run with different threads (relu 2; arelu, elu 1): results can differ by rounding." in text
    assert "Runs of each arm were made with different workers (1 and 2): results can differ by rounding." in text
    assert "precision" not in text
    assert "were" not in said(sweep(TWO, seeds=range(8)))


def test_execution_that_an_arm_does_not_tell():
    text = said(sweep(TWO, execution={"relu": {"exec.threads": ("2",)}, "arelu": {}}))
    assert "different threads (relu 2; arelu unknown)" in text


def test_arms_of_which_nothing_learned():
    findings = sweep({"relu": 60.0, "arelu": 20.0}, seed_sd=0.1, arm_sd=0.1, chance=20.0)
    assert "Arms of which no training learned: arelu (seeds 0, 1, 2, 3, 4 at chance)." in said(findings)


def test_runs_of_several_commits_and_machines():
    findings = sweep(TWO, seeds=range(8))
    commits = ["a" * 40] * 12 + ["b" * 40] * 3 + [""]
    text = said(replace(findings, runs=findings.runs.assign(commit=commits, machine=["Mine 9000"] * 15 + ["Yours"])))
    assert "Runs of several commits: aaaaaaa (12), bbbbbbb (3), unknown (1); runs.csv says which." in text
    assert "Runs of several machines: Mine 9000 (15), Yours (1); runs.csv says which." in text
    assert "several" not in said(replace(findings, runs=findings.runs.assign(commit="a" * 40, machine="Mine")))


def test_a_choice_that_is_lucky():
    """Three seeds, two rates; without seed 0 the other two choose 0.1, where seed 0 has 20 instead of 60."""
    rows = [
        {"activation": "relu", "lr": lr, "seed": seed, "test/accuracy": value, "validation/accuracy": value}
        for lr, values in ((0.01, (60.0, 60.0, 60.0)), (0.1, (20.0, 70.0, 70.0)))
        for seed, value in enumerate(values)
    ]
    text = said(sweep({"relu": 1.0}, runs=pd.DataFrame(rows), axes=("activation", "lr")))
    # Seeds 1 and 2 see (20 + 70) / 2 = 45 at 0.1, choose 0.01 and have 60: (20 + 60 + 60) / 3.
    assert "with the seed left out, the mean is another: relu (46.67 instead of 60.00)." in text


def test_identical_results():
    assert "Identical to relu in every seed: arelu." in said(sweep({"relu": 60.0, "arelu": 60.0}, arm_sd=0.0))


def test_seeds_beyond_those_of_the_file():
    text = said(sweep(TWO, seeds=range(8), planned_seeds=(0, 1, 2, 3, 4)))
    assert "Seeds beyond those of the experiment file: 5, 6, 7. Whoever adds seeds after a look" in text
    assert "beyond" not in said(sweep(TWO, seeds=range(4), planned_seeds=(0, 1, 2, 3, 4)))
    assert "beyond" not in said(sweep(TWO))
