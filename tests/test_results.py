# ruff: noqa: RUF001
"""The pages of docs/results say what their runs say: tables worked out again with pandas, scipy and statsmodels."""

import io
import itertools
import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower
from statsmodels.stats.proportion import proportion_confint
from statsmodels.stats.weightstats import ttost_paired

from arelu_meta.reporting.table import numbers_frame
from tests import repeated_runs
from tests.shipped_results import PAGES, PUBLISHED, RESULTS, Shipped, page_text, report_of

Table = list[dict[str, str]]
NODES, WEIGHTS = np.polynomial.legendre.leggauss(400)  # of an integral over [-1, 1]
HALF = 0.0051  # of the last digit shown, and of what is lost on the way to it


def tables(page: str) -> Iterator[tuple[str, Table]]:
    """Title and rows of every table above the figures."""
    for part in page.partition("\n## Figures")[0].split("\n## ")[1:]:
        title, _, text = part.partition("\n")
        lines = [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("| ")]
        if lines:
            yield title, [dict(zip(lines[0], [cell.strip() for cell in row], strict=True)) for row in lines[1:]]


def numbers(cell: str) -> list[float]:
    """`+1.50 [−0.30, +3.30] (cut)` as three numbers; nothing for a dash or a word."""
    return [float(found.replace("−", "-")) for found in re.findall(r"[+−]?\d+\.?\d*", cell)]


def learned(values: pd.Series, chance: float) -> pd.Series:
    """Results that are neither at chance nor in the lower of two groups; all that there are where none is left."""
    finite = values.dropna()
    above = finite[finite > min(2 * chance, 0.8 * chance + 20)]
    ordered = sorted(above)
    if len(ordered) > 1:
        _, cut = max((high - low, high) for low, high in itertools.pairwise(ordered))
        low, high = [x for x in ordered if x < cut], [x for x in ordered if x >= cut]
        if max(low) - chance < (float(np.median(high)) - chance) / 2:
            above = above[above >= cut]
    return above if len(above) else finite


class Runs:
    """The shipped runs of a page, asked arm by arm at the settings of a table."""

    def __init__(self, shipped: Shipped, title: str) -> None:
        self.shipped = shipped
        self.setting = dict(re.findall(r"(\w+) = ([\w.e-]+)(?=[,;]|$)", title.partition(", n = ")[0]))
        self.setting.pop("n", None)

    def all(self, arm: str, **own: str) -> pd.Series:
        rows = self.shipped.runs
        rows = rows[rows["activation"] == arm]
        for axis, value in {**self.setting, **own}.items():
            rows = rows[[value in (str(one), f"{one:g}" if isinstance(one, float) else "") for one in rows[axis]]]
        return rows.set_index("seed")[self.shipped.metric]

    def level(self, arm: str, **own: str) -> pd.Series:
        return learned(self.all(arm, **own), self.shipped.chance)


def own_setting(row: dict[str, str]) -> dict[str, str]:
    """What an arm chose, from the columns `best lr` and their like."""
    return {
        head.removeprefix("best "): cell.split(" ")[0]
        for head, cell in row.items()
        if re.fullmatch(r"best \w*lr", head)
    }


def check_difference(row: dict[str, str], heading: str, pair: pd.Series, family: int, margin: float) -> None:
    """Mean, simultaneous interval, corrected p, permutation p, and what is called equivalent."""
    if len(pair) < 2 or pair.std() < 1e-9:
        assert row["verdict"] in ("not tested", "identical", "undecided: trainings fail")
        assert (row[heading] == "identical") == (len(pair) > 1 and (pair.abs() < 1e-9).all())
        return
    test = stats.ttest_1samp(pair, 0)
    interval = test.confidence_interval(1 - 0.05 / family)
    bounds = np.clip([interval.low, interval.high], -100, 100)
    assert numbers(row[heading]) == pytest.approx([pair.mean(), *bounds], abs=HALF)
    p = min(family * test.pvalue, 1)
    shown = row["p"].replace(" \\*", "").replace("&lt; ", "")
    assert p < 0.001 if "&lt;" in row["p"] else float(shown) == pytest.approx(p, abs=0.0051 if p >= 0.1 else 0.000051)
    flipped = (np.arange(2 ** len(pair))[:, None] >> np.arange(len(pair))) & 1  # (2^n, n): which signs are turned
    flips = np.mean(np.abs((1 - 2 * flipped) @ pair.to_numpy()) >= abs(pair.sum()) - 1e-9)
    drawn = 4 * np.sqrt(flips * (1 - flips) / 100_000) if len(pair) > 14 else 0.0  # beyond, patterns are drawn
    rounded = pytest.approx(flips, abs=drawn + (0.0051 if flips >= 0.1 else 0.000051))
    assert flips < 0.001 if "&lt;" in row["p perm."] else float(row["p perm."]) == rounded
    verdict = row["verdict"]
    assert row["p"].endswith("\\*") == (verdict == "different")
    if verdict != "undecided: trainings fail":
        equal = family * ttost_paired(pair.to_numpy(), 0 * pair.to_numpy(), -margin, margin)[0]
        assert verdict == ("different" if p < 0.05 else "equivalent" if equal < 0.05 else "undecided")


def check_main(shipped: Shipped, title: str, rows: Table) -> int:
    runs = Runs(shipped, title)
    values = {row["activation"]: runs.level(row["activation"], **own_setting(row)) for row in rows}
    pairs = {name: (own - values["relu"]).dropna() for name, own in values.items() if name != "relu"}
    family = max(sum(len(pair) > 1 and pair.abs().max() > 1e-9 for name, pair in pairs.items() if name != "arelu"), 1)
    for row in rows:
        name, own = row["activation"], values[row["activation"]]
        assert int(row["n"]) == len(own)
        if "learned" in row:
            everything = runs.all(name, **own_setting(row))
            count = int(row["learned"].split(" ")[0])
            assert row["learned"] == f"{count} of {len(everything)}"
            assert count in (len(own), 0)
        if len(own) > 1:
            low, high = (
                stats.t.interval(0.95, len(own) - 1, own.mean(), stats.sem(own)) if own.std() else [own.mean()] * 2
            )
            shown = next(cell for head, cell in row.items() if head.startswith("mean"))
            assert numbers(shown) == pytest.approx([own.mean(), *np.clip([low, high], 0, 100)], abs=HALF)
            assert shown.endswith("(cut)") == (low < 0 or high > 100)
            assert float(row["sd"]) == pytest.approx(own.std(), abs=HALF)
        if name != "relu" and len(own):
            heading = "to relu (points)"
            check_difference(row, heading, pairs[name], 1 if name == "arelu" else family, shipped.margin)
    return len(rows)


def check_speed(shipped: Shipped, title: str, rows: Table) -> int:
    """Another measure of the trainings that learned, or of those that reached a level: means and differences."""
    runs = Runs(shipped, title)
    other = Runs(replace(shipped, metric=title.partition(",")[0]), title)
    values = {
        row["activation"]: other.all(row["activation"])[runs.level(row["activation"]).index].dropna() for row in rows
    }
    heading = next(head for head in rows[0] if head.startswith("to relu"))
    for row in rows:
        own = values[row["activation"]]
        assert int(row["n"]) == len(own)
        shown = numbers(next(cell for head, cell in row.items() if head.startswith("mean")))
        assert shown == pytest.approx(
            [own.mean(), *stats.t.interval(0.95, len(own) - 1, own.mean(), stats.sem(own))], abs=HALF
        )
        assert float(row["sd"]) == pytest.approx(own.std(), abs=HALF)
        if row["activation"] != "relu":
            pair = (own - values["relu"]).dropna()
            family = 1 if row["activation"] == "arelu" else len(rows) - 2
            interval = stats.ttest_1samp(pair, 0).confidence_interval(1 - 0.05 / family)
            assert numbers(row[heading]) == pytest.approx([pair.mean(), interval.low, interval.high], abs=HALF)
    return len(rows)


def power(size: float, n: int, alpha: float) -> float:
    """How often a paired t test of n finds a true difference of so many standard deviations.

    The mean, over the spread s of a sample, whose square times the degrees of freedom is chi-squared, of the normal
    tails beyond t * s. SciPy's noncentral t, and statsmodels' power by it, are NaN for large sizes and small alpha.
    """
    spread = np.sqrt(stats.chi2.ppf((NODES + 1) / 2, n - 1) / (n - 1))
    limit = stats.t.isf(alpha / 2, n - 1) * spread
    found = stats.norm.sf(limit - size * np.sqrt(n)) + stats.norm.cdf(-limit - size * np.sqrt(n))
    return float((WEIGHTS / 2 * found).sum())


def test_power_is_that_of_statsmodels_where_it_has_one():
    for n, alpha in ((5, 0.05), (8, 0.05 / 4), (20, 0.05 / 14)):
        assert power(1.1, n, alpha) == pytest.approx(TTestPower().power(1.1, n, alpha), abs=1e-4)


def check_beyond(shipped: Shipped, title: str, rows: Table, chosen: dict[str, dict[str, str]]) -> int:
    runs = Runs(shipped, title)
    for row in rows:
        own = chosen[row["activation"]]
        everything = runs.all(row["activation"], **own)
        other = runs.all("relu", **chosen["relu"])
        level = runs.level(row["activation"], **own)
        assert float(row["median (%)"]) == pytest.approx(everything.median(), abs=HALF)
        more = row["further seeds"]
        if more not in ("–", "0"):
            pair = (level - runs.level("relu", **chosen["relu"])).dropna()
            rest = sum(other not in ("relu", "arelu") for other in chosen)
            for family in [1] if row["activation"] == "arelu" else range(1, rest + 1):
                seeds = len(pair) + int(more)
                fewer, enough = (power(shipped.margin / pair.std(), n, 0.05 / family) for n in (seeds - 1, seeds))
                if fewer < 0.8 <= enough:
                    break
            else:
                pytest.fail(f"{row['activation']}: {more} further seeds do not give 80 % power")
        middle = stats.trim_mean(everything.dropna(), 0.25)
        assert float(row["interquartile mean (%)"]) == pytest.approx(middle, abs=HALF)
        assert float(row["best run (%)"]) == pytest.approx(everything.max(), abs=HALF)
        count = round(numbers(row["learned (%)"])[0] / 100 * len(everything))
        assert count in (len(level), 0)
        ends = proportion_confint(count, len(everything), method="beta")
        assert numbers(row["learned (%)"])[1:] == pytest.approx([100 * end for end in ends], abs=0.51)
        if row["activation"] != "relu":
            seeds = (everything - other).dropna().pipe(lambda apart: apart[apart.abs() > 1e-9]).index
            wins = int((everything[seeds] > other[seeds]).sum())
            ends = proportion_confint(wins, len(seeds), method="beta")
            expected = [100 * wins / len(seeds), *(100 * end for end in ends)]
            assert numbers(row["ahead of relu (%)"]) == pytest.approx(expected, abs=0.51)
    return len(rows)


def check_change(shipped: Shipped, title: str, rows: Table, chosen: dict[str, dict[str, str]]) -> int:
    """The advantage in a shared setting less that at own ones; the smallest rate by itself, the others together."""
    runs = Runs(shipped, title.partition("their own")[2])
    matched = runs.level("arelu", **chosen["arelu"]) - runs.level("relu", **chosen["relu"])
    changes = []
    for row in rows:
        there = Runs(shipped, row["shared setting"])
        advantage = there.level("arelu") - there.level("relu")
        changes.append((row, advantage, (advantage - matched).dropna()))
    rates = [float(row["shared setting"].rpartition("= ")[2]) for row in rows]
    tested = [len(change) > 1 and change.std() > 1e-9 for *_, change in changes]
    family = max(sum(one for one, rate in zip(tested, rates, strict=True) if rate > min(rates)), 1)
    for (row, advantage, change), rate, varies in zip(changes, rates, tested, strict=True):
        assert int(row["n"]) == len(change)
        assert numbers(row["advantage there (points)"]) == pytest.approx([advantage[change.index].mean()], abs=HALF)
        assert numbers(row["at own settings (points)"]) == pytest.approx([matched[change.index].mean()], abs=HALF)
        if varies:
            count = 1 if rate == min(rates) else family
            test = stats.ttest_1samp(change, 0)
            ends = np.clip(test.confidence_interval(1 - 0.05 / count), -200, 200)
            assert numbers(row["change (points)"]) == pytest.approx([change.mean(), *ends], abs=HALF)
            p = min(count * test.pvalue, 1)
            assert p < 0.001 if "&lt;" in row["p"] else numbers(row["p"]) == pytest.approx([p], abs=0.0051)
            assert row["p"].endswith("\\*") == (row["verdict"] == "different")
    return len(rows)


def check_choice(shipped: Shipped, title: str, rows: Table, chosen: dict[str, dict[str, str]]) -> int:
    """Each seed at the rate that the others choose; the decades within two points of the best on validation."""
    table, axis = shipped.runs, shipped.axes[-1]
    for other, value in Runs(shipped, title).setting.items():
        table = table[table[other].astype(str) == value]
    left_out, tied = {}, set()
    for name, own in table.groupby("activation"):
        scores = own.pivot(index="seed", columns=axis, values=str(shipped.validation_metric))
        results = own.pivot(index="seed", columns=axis, values=shipped.metric)
        for seed in scores.index:  # which of several rates that are equally good is chosen, nothing says
            others = scores.drop(seed).mean(skipna=False)
            if (others >= others.max() - 1e-9).sum() > 1:
                assert others.max() < 2 * shipped.chance  # constant answers: the share of one class
                tied.add(name)
        best = {seed: scores.drop(seed).mean(skipna=False).idxmax() for seed in scores.index}
        left_out[name] = pd.Series({seed: results.at[seed, rate] for seed, rate in best.items()}).dropna()
        means = scores.mean(skipna=False)
        good, at = list(means >= means.max() - 2), list(means.index).index(means.idxmax())
        low, high = at, at
        while low > 0 and good[low - 1]:
            low -= 1
        while high < len(good) - 1 and good[high + 1]:
            high += 1
        (row,) = [row for row in rows if row["activation"] == name]
        decades = np.log10(means.index[high] / means.index[low])
        assert numbers(row["good decades"]) == pytest.approx([decades], abs=0.051)
        assert float(chosen[name][axis]) == means.idxmax()
    for row in rows:
        if row["activation"] in tied:
            continue
        own = left_out[row["activation"]]
        shown = [(row["seed left out (%)"], own, 0)]
        if row["activation"] != "relu":
            shown.append((row["left out, to relu (points)"], (own - left_out["relu"]).dropna(), -100))
        for cell, values, lowest in shown:
            ends = np.clip(stats.t.interval(0.95, len(values) - 1, values.mean(), stats.sem(values)), lowest, 100)
            assert numbers(cell) == pytest.approx([values.mean(), *ends], abs=HALF)
    return len(rows)


def check_further(shipped: Shipped, title: str, rows: Table) -> int:
    """Other metrics of all runs, whether they learned or not."""
    for row in rows:
        for metric in set(shipped.other_metrics) & set(row):
            table = shipped.runs[shipped.runs["activation"] == row["activation"]]
            for axis, value in Runs(shipped, title).setting.items():
                table = table[table[axis].astype(str) == value]
            values = table[metric].dropna()
            ends = np.clip(stats.t.interval(0.95, len(values) - 1, values.mean(), stats.sem(values)), 0, 100)
            assert numbers(row[metric]) == pytest.approx([values.mean(), *ends], abs=HALF)
    return len(rows)


def check_improvement(shipped: Shipped, title: str, rows: Table) -> int:
    """arelu less the best of the others: with five published learnable ones, all others are not."""
    learnable = ("apl", "comb_paper", "pau", "prelu", "slaf_paper")
    for row in rows:
        runs = Runs(shipped, row.get("setting", title))
        arms = set(shipped.runs["activation"]) - {"arelu", *shipped.controls}
        group = {arm for arm in arms if (arm in learnable) == (row["over the best"] == "learnable")}
        means = {arm: runs.all(arm).mean() for arm in group}
        best = max(means, key=lambda arm: means[arm])
        assert row["which is"] == best
        assert numbers(row["mean (points)"]) == pytest.approx([runs.all("arelu").mean() - means[best]], abs=HALF)
        lead = runs.all("arelu").max() - max(runs.all(arm).max() for arm in group)
        assert numbers(row["best run (points)"]) == pytest.approx([lead], abs=HALF)
        for metric, heading in (("test/accuracy", "published mean"), ("test/accuracy_best_run", "published best run")):
            figures = pd.concat([pd.read_csv(PUBLISHED / f"{name}.csv", dtype=str) for name in shipped.published])
            figures = figures[figures["metric"] == metric]
            for axis, value in runs.setting.items():
                same = [one == value or (axis == "lr" and float(one) == float(value)) for one in figures[axis]]
                figures = figures[same]
            values = figures.set_index("activation")["value"].astype(float)
            others = [
                arm
                for arm in values.index.drop("arelu", errors="ignore")
                if (arm in learnable) == (row["over the best"] == "learnable")
            ]
            if heading in row:
                assert numbers(row[heading]) == pytest.approx([values["arelu"] - values[others].max()], abs=HALF)
    return len(rows)


@pytest.mark.parametrize("shipped", PAGES, ids=lambda shipped: shipped.name)
def test_every_table_is_what_the_runs_say(shipped: Shipped):
    checked, chosen = 0, {}
    for title, rows in tables(shipped.page.read_text(encoding="utf-8")):
        if title.startswith(f"{shipped.metric}, "):
            checked += check_main(shipped, title, rows)
            if "best" in title or not shipped.validation_metric:
                chosen = {row["activation"]: own_setting(row) for row in rows}
        elif title.startswith("beyond the mean"):
            checked += check_beyond(shipped, title, rows, chosen)
        elif title.startswith("arelu over relu"):
            checked += check_change(shipped, title, rows, chosen)
        elif title.startswith("the choice of a setting"):
            checked += check_choice(shipped, title, rows, chosen)
        elif title.startswith("further measures"):
            checked += check_further(shipped, title, rows)
        elif title.startswith("improvement of arelu"):
            checked += check_improvement(shipped, title, rows)
        elif title.startswith(("test/accuracy_area, ", "test/steps_to_")):
            checked += check_speed(shipped, title, rows)
        elif title.startswith("arelu against its controls"):
            runs = Runs(shipped, title)
            values = {name: runs.level(name, **chosen[name]) for name in ("arelu", *(row["control"] for row in rows))}
            pairs = [(values["arelu"] - values[row["control"]]).dropna() for row in rows]
            for row, pair in zip(rows, pairs, strict=True):
                assert int(row["n"]) == len(pair)
                check_difference(row, "arelu less control (points)", pair, len(rows), shipped.margin)
            checked += len(rows)
        else:
            pytest.fail(f"nobody works out {title!r} again")
    arms = shipped.runs["activation"].nunique()
    assert checked >= 2 * arms - 1 + len(shipped.controls)


@pytest.mark.parametrize("shipped", PAGES, ids=lambda shipped: shipped.name)
def test_the_page_is_the_one_that_its_runs_give(shipped: Shipped):
    """Verdicts and notes: nothing was edited by hand."""
    assert page_text(shipped) == shipped.page.read_text(encoding="utf-8")


@pytest.mark.parametrize("shipped", PAGES, ids=lambda shipped: shipped.name)
def test_the_table_in_numbers_is_that_of_the_page(shipped: Shipped):
    """table.csv has every number of every arm with all its digits."""
    table = pd.read_csv(shipped.page.with_suffix(".csv"))
    pd.testing.assert_frame_equal(
        table,
        pd.read_csv(io.StringIO(numbers_frame(report_of(shipped).analysis).to_csv())).drop(columns="Unnamed: 0"),
        rtol=1e-9,
    )


ADAPTED = sorted(RESULTS.glob("adapt_*_draws.csv"))


@pytest.mark.parametrize("path", ADAPTED, ids=lambda path: path.stem.removesuffix("_draws"))
def test_pages_of_adapt_are_what_the_draws_say(path):
    """Every row of every table: mean, interval, paired difference, p by statsmodels, what moved and is stored."""
    draws = pd.read_csv(path)
    page = path.with_name(path.stem.removesuffix("_draws") + ".md").read_text(encoding="utf-8")
    parts = [part for part in page.split("\n## ")[1:] if part.partition("\n")[0].endswith(" shots")]
    assert [int(part.partition(" ")[0]) for part in parts] == sorted(draws["shots"].unique())
    for part in parts:
        runs = draws[draws["shots"] == int(part.partition(" ")[0])]
        score = runs.pivot(index="draw", columns="method", values="outside") * 100
        assert len(score) == 10
        blocks = [block for block in part.split("\n\n") if block.startswith("| method")]
        for block, baseline in zip(blocks, ("linear", "activation"), strict=True):
            lines = [line[2:-2].split(" | ") for line in block.replace("|  |", "| |").splitlines()]
            rows = [dict(zip(lines[0], [cell.strip() for cell in row], strict=False)) for row in lines[2:]]
            rows = [row for row in rows if row["method"] in score]
            assert {row["method"] for row in rows} | {baseline} == set(score)
            others = [row for row in rows if row["method"] != baseline]
            pairs = [score[row["method"]] - score[baseline] for row in others]
            corrected = multipletests([stats.ttest_1samp(pair, 0).pvalue for pair in pairs], method="holm")[1]
            for row, pair, p in zip(others, pairs, corrected, strict=True):
                if "±" not in row[f"less {baseline}, points"]:  # identical, or the same in every draw
                    assert pair.std() < 1e-9
                    continue
                ends = stats.t.interval(0.95, 9, pair.mean(), stats.sem(pair))
                shown = [float(cell) for cell in row[f"less {baseline}, points"].split(" ± ")]
                assert shown == pytest.approx([pair.mean(), (ends[1] - ends[0]) / 2], abs=HALF)
                assert float(row["p (Holm)"]) == pytest.approx(p, rel=0.006)
            for row in rows if baseline == "linear" else ():
                own = runs[runs["method"] == row["method"]]
                shown = [float(number) for number in re.findall(r"[\d.]+", row["test %"])]
                low, high = stats.t.interval(0.95, 9, own["outside"].mean() * 100, stats.sem(own["outside"] * 100))
                ends = [(high - low) / 2] if "±" in row["test %"] else np.clip([low, high], 0, 100)
                assert shown == pytest.approx([own["outside"].mean() * 100, *ends], abs=HALF)
                assert float(row["inside %"]) == pytest.approx(own["inside"].mean() * 100, abs=HALF)
                assert int(row["parameters moved"]) == own["parameters_moved"].iloc[0]
                assert int(row["bytes stored"]) == own["bytes_stored"].iloc[0]


def test_what_is_said_of_maml_on_20_fresh_seeds_is_what_the_runs_say():
    """Paired t tests and Clopper and Pearson's interval by scipy; findings has the figures, the page sentences."""
    runs = pd.read_csv(RESULTS / "maml_mnist_clip_runs.csv")
    assert (len(runs), runs["seed"].nunique(), runs["commit"].nunique()) == (200, 20, 1)
    table = runs.pivot(index="seed", columns=["activation", "episode_clip"], values="test/accuracy")
    best = runs.groupby(["activation", "episode_clip"])["paper/best_batch_accuracy"].mean()
    collapsed = runs.groupby("activation")["train/collapsed"].sum()
    assert collapsed.drop("relu_gain").sum() == 0
    none_of_20 = 100 * stats.binomtest(0, 20).proportion_ci(method="exact").high
    said = [f"0 to {none_of_20:.1f} %"]
    for bound in ("none", "25"):
        lead = stats.ttest_1samp(table["arelu", bound] - table["relu", bound], 0)
        low, high = lead.confidence_interval()
        apart = (table["arelu", bound] - table["relu", bound]).mean()
        said.append(f"{apart:+.2f} points [{low:+.2f}, {high:+.2f}]")
        said += [f"{table[arm, bound].mean():.1f}" for arm in ("arelu", "arelu_frozen", "arelu_unit", "relu")]
        said += [f"{best[arm, bound]:.1f}" for arm in ("arelu", "relu")]
    for arm in ("arelu", "relu"):
        gained = table[arm, "25"] - table[arm, "none"]
        low, high = stats.ttest_1samp(gained, 0).confidence_interval()
        said.append(f"{gained.mean():+.2f} points [{low:+.2f}, {high:+.2f}]")
    steps = runs[runs["episode_clip"] == "25"].groupby("activation")["test/steps_to_60"].agg(["mean", "count"])
    arelu, gain, relu = (f"{steps['mean'][arm]:.2f}" for arm in ("arelu", "relu_gain", "relu"))
    said.append(f"after {arelu} of the five inner steps, ReLU times the gain after {gain}, and ReLU after {relu}")
    said.append(f"in the {steps['count']['relu']} of 20 trainings that reach it")
    findings = " ".join((RESULTS.parent / "findings.md").read_text(encoding="utf-8").split())
    assert [words for words in said if words not in findings] == []
    page = (RESULTS / "maml_mnist_clip.md").read_text(encoding="utf-8").replace("\u2212", "-")
    for sentence in (
        "Without gain it is worse; without learning it is equivalent",
        "Without learning, or without shape and learning, or without gain, it is worse.",
        "| arelu_frozen | learning | 20 | +1.02 [+0.27, +1.77] |",
        "| relu_gain | shape and learning | 19 | +3.09 [+0.38, +5.80] |",
    ):
        assert sentence in page
    for interval in ("+1.02 points [+0.27, +1.77]", "+3.09 points [+0.38, +5.80]"):
        assert interval in findings


def test_what_moves_when_a_comparison_is_repeated():
    """The page says what its tables of runs say; the pair of the same settings at 76b833a worked out by hand."""
    text = (RESULTS / "repeats.md").read_text(encoding="utf-8")
    assert repeated_runs.page() == text, "python -m tests.repeated_runs"
    place = ["activation", "optimizer", "lr", "seed"]
    paths = ("repeats/mnist_first_epoch_76b833a.csv", "mnist_first_epoch_runs.csv")
    first, again = (pd.read_csv(RESULTS / path).set_index(place)["test/accuracy"] for path in paths)
    apart = (again - first).dropna().abs()
    (row,) = [line for line in text.splitlines() if "76b833a" in line and "`mnist_first_epoch`" in line]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[2:5] == [str(len(apart)), str((apart < 1e-9).sum()), f"{apart.median():.2f}"]
    assert cells[5].startswith(f"{apart.max():.2f} ({apart.idxmax()[0]}, adam, 0.01, seed {apart.idxmax()[3]}")
