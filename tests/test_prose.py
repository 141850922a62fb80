# ruff: noqa: RUF001
"""What README and docs/findings.md say in words is what the shipped runs say: every figure worked out again."""

import re
from collections.abc import Iterable

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tests.shipped_results import PUBLISHED, RESULTS
from tests.test_results import learned

README, FINDINGS = RESULTS.parents[1] / "README.md", RESULTS.parent / "findings.md"
SCORE = "test/accuracy"
SWEEPS = (("glyphs_rates", "inner_lr", 20), ("inner_rates", "inner_lr", 20), ("learning_rates", "lr", 10))


def words(*pages) -> str:
    """Pages as one line, a typographic minus as the plain one."""
    return " ".join(" ".join(page.read_text(encoding="utf-8").split()) for page in pages).replace("−", "-")


def scores(experiment: str, metric: str = SCORE, **place: object) -> pd.DataFrame:
    """A metric of the shipped runs at a place: a row per seed, a column per arm."""
    runs = pd.read_csv(RESULTS / f"{experiment}_runs.csv")
    for axis, value in place.items():
        runs = runs[runs[axis] == value]
    assert len(runs), (experiment, place)
    return runs.pivot(index="seed", columns="activation", values=metric)


def difference(apart: pd.Series, digits: int) -> str:
    """`+0.51 [+0.16, +0.86]`: mean and Student's 95 % interval."""
    low, high = stats.t.interval(0.95, len(apart) - 1, apart.mean(), stats.sem(apart))
    return f"{apart.mean():+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"


def own_rates(experiment: str, axis: str) -> tuple[dict[str, float], pd.DataFrame]:
    """The rate of each arm whose mean validation is best, and all runs by arm, rate and seed."""
    runs = pd.read_csv(RESULTS / f"{experiment}_runs.csv")
    table = runs.pivot(index="seed", columns=["activation", axis], values="validation/accuracy").mean(skipna=False)
    best = {arm: float(table[arm].idxmax()) for arm in ("relu", "arelu")}
    return best, runs.pivot(index="seed", columns=["activation", axis], values=SCORE)


def lead_at(table: pd.DataFrame, rates: dict[str, float], chance: float) -> pd.Series:
    """AReLU less ReLU at these rates, of the seeds in which both learned."""
    levels = {arm: learned(table[arm, rate], chance) for arm, rate in rates.items()}
    return (levels["arelu"] - levels["relu"]).dropna()


def missing(expected: Iterable[str], text: str) -> list[str]:
    return [said for said in expected if said not in text]


def test_the_table_of_one_epoch():
    """Means of the trainings that learned, of all where none did, beside the published means."""
    runs = pd.read_csv(RESULTS / "mnist_first_epoch_runs.csv")
    printed = pd.read_csv(PUBLISHED / "mnist_first_epoch_mean.csv")
    printed = printed.set_index(["activation", "optimizer", "lr"])["value"]
    rows = [line for line in FINDINGS.read_text().splitlines() if re.match(r"\| `\w+`(:[^|]*)? \| \d+\.\d", line)]
    checked = 0
    for row in rows:
        head, *cells = [cell.strip() for cell in row.strip("|").split("|")]
        arm = head.split("`")[1]
        for cell, (optimizer, lr) in zip(cells, (("sgd", 1e-4), ("sgd", 1e-3), ("adam", 1e-4)), strict=True):
            own = runs[(runs["activation"] == arm) & (runs["optimizer"] == optimizer) & (runs["lr"] == lr)]
            own = own.set_index("seed")[SCORE]
            level = learned(own, 10)
            number, *rest = cell.split(", ")
            said = rest[0].partition(" (")[0] if rest else ""
            failed = own.max() <= 20 + 1e-9 or (level.size == own.size and own.median() < 20)
            assert float(number.split(" (")[0]) == pytest.approx(level.mean(), abs=0.051), (arm, lr)
            if said:
                assert said == ("none learned" if failed else f"{level.size} of {own.size}"), (arm, lr)
            if (arm, optimizer, lr) in printed:
                assert f"({printed[arm, optimizer, lr]:.1f})" in cell
            checked += 1
    assert checked == 15


def test_what_is_said_of_one_epoch():
    """AReLU, ReLU, AReLU that learns nothing, and ReLU with its gain, at SGD 1e-4."""
    table = scores("mnist_first_epoch", optimizer="sgd", lr=1e-4)
    adds = (table["arelu"] - table["arelu_frozen"]).dropna()
    readme = words(README)
    said = [f"AReLU {table['arelu'].mean():.1f} %, ReLU {table['relu'].mean():.1f} %"]
    said += [f"learns nothing ({table['arelu_frozen'].mean():.1f})", f"same gain has {table['relu_gain'].mean():.1f}."]
    assert missing(said, readme) == []
    assert max(abs(end) for end in stats.t.interval(0.90, len(adds) - 1, adds.mean(), stats.sem(adds))) < 1
    controls = ("arelu_frozen", "relu_gain", "arelu_unit", "identity")
    low, high = stats.t.interval(1 - 0.05 / len(controls), len(adds) - 1, adds.mean(), stats.sem(adds))
    assert f"{adds.mean():+.2f} points [{low:+.2f}, {high:+.2f}], corrected over four controls" in words(FINDINGS)


def test_what_is_said_of_all_columns_of_the_first_epoch():
    """ReLU and AReLU at the rate of the four that validates best, by optimizer; SGD 1e-5; how many arms there are."""
    runs = pd.read_csv(RESULTS / "mnist_first_epoch_runs.csv")
    assert len(runs) == 23 * 8 * 5
    assert runs["commit"].nunique() == 1
    text = words(FINDINGS)
    for optimizer, rate in (("sgd", 1e-2), ("adam", 1e-2)):
        own = runs[runs["optimizer"] == optimizer]
        valid = own.pivot(index="seed", columns=["activation", "lr"], values="validation/accuracy").mean()
        assert {float(valid[arm].idxmax()) for arm in ("relu", "arelu")} == {rate}
        table = own[own["lr"] == rate].pivot(index="seed", columns="activation", values=SCORE)
        said = difference(table["arelu"] - table["relu"], 2).replace(" [", " points [", 1)
        assert said in text, (optimizer, said)
    smallest = runs[(runs["optimizer"] == "sgd") & (runs["lr"] == 1e-5)].groupby("activation")[SCORE].mean()
    assert smallest.max() < 20  # twice what guessing gets


def test_what_is_said_of_twenty_epochs():
    """One seed, by the paper's procedure, beside the published means."""
    runs = pd.read_csv(RESULTS / "mnist_curves_runs.csv")
    printed = pd.read_csv(PUBLISHED / "mnist_20_epochs_mean.csv").set_index(["activation", "optimizer", "lr"])["value"]
    ours = runs.set_index(["activation", "lr"])["paper/best_epoch_test/accuracy"].round(9)
    assert runs["seed"].nunique() == 1
    small = {arm: f"{ours[arm, 1e-5]:.1f}" for arm in ("arelu", "arelu_frozen", "relu_gain", "arelu_unit", "relu")}
    arelu, relu = (f"{printed[arm, 'sgd', 1e-5]:.1f}" for arm in ("arelu", "relu"))
    said = [
        f"AReLU reaches {small['arelu']} % (published {arelu}) and ReLU {small['relu']} ({relu})",
        f"learns nothing reaches {small['arelu_frozen']} as well, ReLU times the same gain {small['relu_gain']}, "
        f"and AReLU without its gain stays at {small['arelu_unit']}",
        "{:.1f}, {:.1f}, {:.1f} and {:.1f} %, ReLU".format(
            *(ours[arm, 1e-4] for arm in ("arelu", "arelu_frozen", "relu_gain", "arelu_unit"))
        ),
        f"ReLU {ours['relu', 1e-4]:.1f} ({printed['relu', 'sgd', 1e-4]:.1f})",
    ]
    assert missing(said, words(FINDINGS)) == []
    said = f"AReLU has {small['arelu']}, published {arelu}; learning nothing {small['arelu_frozen']}; "
    assert said + f"ReLU times the gain {small['relu_gain']}; ReLU {small['relu']}." in words(README)


@pytest.mark.parametrize(
    ("name", "axis", "chance", "digits"),
    [("glyphs_rates", "inner_lr", 20, 1), ("inner_rates", "inner_lr", 20, 1), ("learning_rates", "lr", 10, 2)],
)
def test_the_lead_at_a_small_rate_and_at_own_rates(name, axis, chance, digits):
    """A row of the table: lead at the smallest rate, at own rates, and the change from one to the other."""
    rates, table = own_rates(name, axis)
    small = min(rate for _, rate in table.columns)
    there, own = lead_at(table, dict.fromkeys(rates, small), chance), lead_at(table, rates, chance)
    change = (there - own).dropna()
    low, high = stats.t.interval(0.95, len(change) - 1, change.mean(), stats.sem(change))
    (row,) = [line for line in FINDINGS.read_text().splitlines() if line.startswith(f"| [`{name}`]")]
    row = row.replace("−", "-").replace("*", "").replace(" points", "")
    said = [difference(there, 1), difference(own, digits), f"{change.mean():.1f} [{low:.1f}, {high:.1f}]"]
    assert missing(said, row) == []
    p = stats.ttest_1samp(change, 0).pvalue
    assert "p < 0.001" in row if p < 0.0005 else f"p = {p:.3f}" in row


def test_what_the_lead_shrinks_by():
    """README's `19 to 41 points, to 0.5 in classification`: over the three sweeps."""
    shrinks, left = [], {}
    for name, axis, chance in SWEEPS:
        rates, table = own_rates(name, axis)
        small = min(rate for _, rate in table.columns)
        own = lead_at(table, rates, chance)
        shrinks.append((lead_at(table, dict.fromkeys(rates, small), chance) - own).dropna().mean())
        left[name] = own
    text = words(README)
    low, high, rest = np.floor(min(shrinks)), max(shrinks), left["learning_rates"].mean()
    assert f"shrinks by {low:.0f} to {high:.0f} points, to {rest:.1f} in classification" in text
    assert f"at each arm's own rate {rest:.1f} points of it are left" in text
    for name in ("glyphs_rates", "inner_rates"):  # none that is detectable
        assert stats.ttest_1samp(left[name], 0).pvalue > 0.05


def test_the_first_sentence_of_gain_controls():
    table = scores("gain_controls")
    lead = difference((table["arelu"] - table["relu"]).dropna(), 2)
    mean, ends = lead.split(" ", 1)
    low, high = ends.strip("[]").split(", ")
    assert f"{mean} points, 95 % interval {low} to {high}" in words(README)


def test_what_is_said_of_maml_on_mnist():
    """Levels of the trainings that learned, and how many did."""
    one, five = scores("maml_mnist", shots=1), scores("maml_mnist", shots=5)
    level = {arm: learned(one[arm], 20) for arm in one}
    both = (level["arelu"] - level["relu"]).dropna()
    said = [
        f"AReLU learned in {len(level['arelu'])} of {len(one)} ({level['arelu'].mean():.1f} %)",
        f"ReLU in {len(level['relu'])} of {len(one)} ({level['relu'].mean():.1f})",
        difference(both, 1).replace(" [", " points [", 1),
        f"slopes fixed ({level['arelu_frozen'].mean():.1f}) and ReLU with its gain ({level['relu_gain'].mean():.1f})",
        f"5-shot: AReLU {five['arelu'].mean():.1f}, ReLU {five['relu'].mean():.1f}",
        difference(five["arelu"] - five["relu"], 1).replace(" [", " points [", 1),
    ]
    assert missing(said, words(FINDINGS)) == []


def test_the_readme_has_the_published_measure_of_maml_beside_the_published():
    """The best training batch: AReLU less ReLU, ours of 20 seeds without a bound, and as printed."""
    best = scores("maml_mnist_clip", "paper/best_batch_accuracy", episode_clip="none").mean()
    printed = pd.read_csv(PUBLISHED / "maml_mnist.csv")
    printed = printed[printed["shots"] == 1].set_index("activation")["value"]
    apart = [table["arelu"] - table["relu"] for table in (best, printed)]
    assert f"by the published measure {apart[0]:.1f} ({apart[1]:.1f})" in words(README)


def test_what_is_said_of_transfer_at_full_length():
    """One seed, beside the published; 5,099 of SVHN's 26,032 test images show a one, the most frequent digit."""
    runs = pd.read_csv(RESULTS / "transfer_mnist_to_svhn_runs.csv")
    assert (runs["seed"].nunique(), runs["commit"].nunique(), set(runs["pretrain_epochs"])) == (1, 1, {5})
    ours = runs.set_index("activation").round(9)
    printed = pd.read_csv(PUBLISHED / "transfer_mnist_to_svhn.csv")
    printed = printed[printed["pretrain_epochs"].isin((5, np.nan))].set_index(["activation", "metric"])["value"]
    tuned, scratch, untuned = (f"test/{name}" for name in ("finetune_100", "no_pretrain", "no_finetune"))
    assert ours.loc["relu", scratch] == pytest.approx(100 * 5099 / 26032)

    def pair(arm: str, metric: str) -> tuple[str, str]:
        return f"{ours.loc[arm, metric]:.1f}", f"{printed[arm, metric]:.1f}"

    said = [
        "AReLU ends at {} % (published {}), ReLU at {} ({})".format(*pair("arelu", tuned), *pair("relu", tuned)),
        "bring AReLU to {} % ({}), and ReLU to {} ({})".format(*pair("arelu", scratch), *pair("relu", scratch)),
        f"networks have {ours.loc['arelu', untuned]:.1f} and {ours.loc['relu', untuned]:.1f} % on SVHN "
        f"({printed['arelu', untuned]:.1f} and {printed['relu', untuned]:.1f})",
    ]
    assert missing(said, words(FINDINGS)) == []


def test_what_is_said_of_transfer():
    table = scores("transfer_mnist_to_svhn_caption", "test/finetune_5")
    said = difference(table["arelu"] - table["relu"], 1).replace(" [", " points [", 1)
    assert said in words(FINDINGS)


def test_what_is_said_of_adapting():
    """Omniglot, five shots, less logistic regression on frozen features: AReLU's numbers, norms, adapters."""
    draws = pd.read_csv(RESULTS / "adapt_omniglot_draws.csv")
    draws = draws[draws["shots"] == 5]
    score = draws.pivot(index="draw", columns="method", values="outside") * 100
    moved = draws.groupby("method")["parameters_moved"].first()
    findings, readme = words(FINDINGS), words(README)
    for method in ("activation", "norm", "lora"):
        apart = score[method] - score["linear"]
        assert difference(apart, 1) in findings.replace(" points [", " ["), method
        if method != "norm":
            assert f"{apart.mean():+.1f}" in readme
        assert f"{moved[method]:,}" in findings
    assert f"AReLU's {moved['activation']} numbers" in readme
    inner = pd.read_csv(RESULTS / "glyphs_adapt_runs.csv")
    best = inner.pivot(index="seed", columns=["adapt", "inner_lr"], values="validation/accuracy").mean()
    tested = inner.pivot(index="seed", columns=["adapt", "inner_lr"], values=SCORE)
    own = {arm: tested[arm, float(best[arm].idxmax())] for arm in ("head", "head+activation")}
    assert difference(own["head+activation"] - own["head"], 1).replace(" [", " points [", 1) in findings
