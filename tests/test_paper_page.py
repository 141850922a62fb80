"""docs/paper.md says what the published figures, the shipped runs and the lists of the package say."""

import re

import pandas as pd
import pytest
from scipy import stats

from arelu_meta.comparison.cells import expand, parse_only
from arelu_meta.comparison.experiment import read_experiment
from arelu_meta.console import catalog
from arelu_meta.paper.campaign import STEPS
from tests.paper_page import PAGE, page
from tests.published_cells import BUDGETS, PUBLISHED, RESULTS, TABLES

TEXT = PAGE.read_text(encoding="utf-8")


def rows(title: str) -> list[list[str]]:
    """Cells of the table below a heading, without its header."""
    part = re.split(rf"^##+ {re.escape(title)}$", TEXT, flags=re.M)[1]
    part = re.split(r"^##+ ", part, flags=re.M)[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip()[1:-1].split(" |")] for line in lines]


def test_nothing_was_edited_by_hand():
    assert page() == TEXT, "python -m tests.paper_page"


def test_all_820_published_cells_are_counted_once():
    """Eight tables of the paper and the two figures of its text; gain_controls.csv repeats two of them."""
    files = {path.stem for path in PUBLISHED.glob("*.csv")} - {"gain_controls"}
    assert {table.published for table in TABLES} == files
    assert sum(len(pd.read_csv(PUBLISHED / f"{name}.csv")) for name in files) == 820
    header, *counted, total = rows("How much of it is measured")
    assert header[2:-1] == list(BUDGETS)
    numbers = [[int(cell) for cell in row[1:]] for row in counted]
    assert [int(cell) for cell in total[1:]] == [sum(column) for column in zip(*numbers, strict=True)]
    assert all(row[0] == sum(row[1:]) for row in numbers)
    assert int(total[1]) == 820
    beside = re.search(r"\*\*(\d+) of the 820 published cells have ours beside them", TEXT)
    assert beside is not None
    assert int(beside[1]) == 820 - int(total[-1])
    shown = len(re.findall(r"\d+\.\d \(\d+\.\d\)", TEXT))
    assert shown == int(beside[1])


@pytest.mark.parametrize(
    ("label", "take", "runs", "metric"),
    [
        ("mnist-1st-mean", "mean", "mnist_first_epoch", "test/accuracy"),
        ("mnist-1st-best", "max", "mnist_first_epoch", "test/accuracy"),
        ("mnist-20-mean", "mean", "mnist_curves", "paper/best_epoch_test/accuracy"),
    ],
)
def test_mnist_beside_the_published(label, take, runs, metric):
    """Worked out with one join: our runs by activation, optimizer and rate."""
    axes = ["activation", "optimizer", "lr"]
    own = pd.read_csv(RESULTS / f"{runs}_runs.csv")
    found_runs = own.groupby(axes)[metric].agg([take, "count"])
    if take == "max":  # of one run there is no best
        found_runs = found_runs[found_runs["count"] > 1]
    ours, counts = found_runs[take], found_runs["count"]
    table = {"1st": "mnist_first_epoch", "20": "mnist_20_epochs"}[label.split("-")[1]]
    printed = pd.read_csv(PUBLISHED / f"{table}_{label.split('-')[2]}.csv").set_index(axes)["value"]
    both = (
        pd.concat({"ours": ours, "printed": printed}, axis=1).dropna().round(9)
    )  # 87.65 is 87.6 or 87.7 by its last bit
    header, *found = rows(label)
    texts = {
        (row[0].strip("`"), column): cell for row in found for column, cell in zip(header[1:], row[1:], strict=True)
    }
    expected = {
        (arm, f"{optimizer}, lr {lr:g}"): f"{row['ours']:.1f} ({row['printed']:.1f})"
        + " \\*" * int(counts[arm, optimizer, lr] == 1)
        for (arm, optimizer, lr), row in both.iterrows()
    }
    assert {place: text for place, text in texts.items() if "(" in text} == expected
    apart = (both["ours"] - both["printed"]).abs()
    words = f"{(apart <= 2).sum()} of {len(both)} cells within 2 points of the published, "
    words += f"median distance {apart.median():.1f}"
    assert words in {row[0].strip("`"): row[-1] for row in rows("Tables")[1:]}[label]


def test_meta_learning_beside_the_published():
    runs = pd.read_csv(RESULTS / "maml_mnist_runs.csv")
    means = runs.groupby(["activation", "shots"])["paper/best_batch_accuracy"].mean()
    printed = pd.read_csv(PUBLISHED / "maml_mnist.csv").set_index(["activation", "shots"])["value"]
    found = {row[0].strip("`"): row[1:] for row in rows("meta")[1:]}
    for arm, cells in found.items():
        assert cells == [f"{means[arm, shots]:.1f} ({printed[arm, shots]:.1f})" for shots in (1, 5)]
    assert len(found) == 12


def test_a_figure_of_little_training_says_so():
    """The overlays are of seed 0, whose Dice on the test patient stands beside them."""
    runs = pd.read_csv(RESULTS / "segmentation_sample_runs.csv")
    dice = runs[runs["seed"] == 0].set_index("activation")["test/dice"]
    (row,) = [row for row in rows("Figures") if row[0] == "`seg_overlays`"]
    assert f"(Dice {dice['relu']:.0f} and {dice['arelu']:.0f} %)" in row[3]


def test_a_claim_is_judged_by_its_own_runs():
    """At SGD 1e-4: the difference by scipy's paired test, and its interval on either side of zero or not."""
    runs = pd.read_csv(RESULTS / "mnist_first_epoch_runs.csv")
    runs = runs[(runs["optimizer"] == "sgd") & (runs["lr"] == 1e-4)]
    score = runs.pivot(index="seed", columns="activation", values="test/accuracy")
    claims = {row[0]: row for row in rows("Claims")[1:]}
    for claim, arm, other in (
        ("AReLU learns faster at small learning rates", "arelu", "relu"),
        ("because its attention is learned", "arelu", "arelu_frozen"),
    ):
        test = stats.ttest_rel(score[arm], score[other])
        low, high = test.confidence_interval(0.95)
        mean = (score[arm] - score[other]).mean()
        assert f"SGD 1e-4 {mean:+.1f} points [{low:+.1f}, {high:+.1f}], n = {len(score)}" in claims[claim][2]
        inside = max(map(abs, test.confidence_interval(0.90))) < 1
        assert ("equivalent within 1" in claims[claim][3]) == inside
        assert ("ahead" in claims[claim][3]) == (low > 0 and not inside)


def test_every_command_of_the_page_is_of_a_known_experiment_and_value():
    """Expanded as `compare` would; step names are the campaign's."""
    commands = re.findall(r"`(?:python -m arelu_meta\.)?compare ([^`]+)`", TEXT)
    assert len(commands) >= len(STEPS)
    for command in commands:
        name, *words = command.split()
        assert name in catalog.names("experiment")
        only = words[words.index("--only") + 1 :] if "--only" in words else []
        only = [word for word in only if "=" in word]
        assert expand(read_experiment(name), only=parse_only(only), seeds=[0])
    for steps in re.findall(r"`python -m arelu_meta\.paper run ([a-z_ ]+)`", TEXT):
        assert set(steps.split()) <= {step.name for step in STEPS}
