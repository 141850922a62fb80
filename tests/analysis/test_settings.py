import math
from dataclasses import replace

import pandas as pd
import pytest

from arelu_meta.analysis.settings import (
    checked_runs,
    choose_setting,
    decades_from,
    published_values,
    rows_by_setting,
    same_value,
    tuned_axes,
    value_text,
)
from arelu_meta.errors import InputError
from tests.reporting.sweeps import sweep


def test_learning_rates_are_tuned_unless_said_otherwise():
    findings = sweep({"relu": 1.0}, axes=("activation", "shots", "training.lr", "inner_lr", "colour"))
    assert tuned_axes(findings) == ("training.lr", "inner_lr")
    assert tuned_axes(replace(findings, tuned=("colour",))) == ("colour",)
    assert tuned_axes(replace(findings, tuned=())) == ()


def test_settings_in_order_of_appearance():
    runs = pd.DataFrame({"lr": [0.1, 0.01, 0.1], "n": [1, 2, 3]})
    assert [(setting, rows["n"].tolist()) for setting, rows in rows_by_setting(runs, ("lr",))] == [
        ((("lr", 0.1),), [1, 3]),
        ((("lr", 0.01),), [2]),
    ]
    assert [setting for setting, _ in rows_by_setting(runs, ())] == [()]


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (0.0001, "1e-4", True),
        (5, "5", True),
        (5, 5.0, True),
        ("sgd", "sgd", True),
        ("sgd", 0.1, False),
        (None, 1, False),
    ],
)
def test_same(one: object, other: object, equal: bool):
    assert same_value(one, other) is equal


@pytest.mark.parametrize(("value", "written"), [(0.0001, "0.0001"), (1e-5, "1e-05"), (5, "5"), (float("nan"), "none")])
def test_text(value: object, written: str):
    assert value_text(value) == written


def test_refuses_what_it_cannot_analyse():
    findings = sweep()
    with pytest.raises(InputError, match="unknown column 'test/acuracy'; did you mean 'test/accuracy'"):
        checked_runs(replace(findings, metric="test/acuracy"))
    with pytest.raises(InputError, match="unknown axis 'seed'"):
        checked_runs(replace(findings, arm="seed"))
    doubled = pd.concat([findings.runs, findings.runs.iloc[:1]])
    with pytest.raises(InputError, match=r"two runs of one cell \(activation = relu, seed = 0\)"):
        checked_runs(replace(findings, runs=doubled))


TABLE = pd.DataFrame({"activation": ["relu", "arelu"], "lr": ["1e-4", None], "value": [1.0, 2.0]})


def test_rows_of_a_cell():
    assert published_values(TABLE, {"activation": "relu", "lr": 0.0001}) == {("", "", ""): 1.0}
    assert published_values(TABLE, {"activation": "relu", "lr": 0.1}) == {}
    assert published_values(TABLE, {"activation": "arelu", "lr": 0.1, "shots": 5}) == {("", "", ""): 2.0}


def test_the_first_value_of_each_source_counts():
    rows = pd.DataFrame(
        {
            "activation": "relu",
            "metric": ["test/accuracy", "test/accuracy", None],
            "source": ["table 4", "table 4", "log"],
            "value": [1.0, 2.0, 3.0],
        }
    )
    assert published_values(rows, {"activation": "relu"}) == {
        ("test/accuracy", "", "table 4"): 1.0,
        ("", "", "log"): 3.0,
    }


def test_nothing_published():
    assert published_values(None, {"activation": "relu"}) == {}
    assert published_values(TABLE.iloc[:0], {"activation": "relu"}) == {}


def test_an_axis_that_a_file_leaves_empty_fits_any_value():
    as_read = TABLE.assign(lr=["1e-4", ""])
    assert published_values(as_read, {"activation": "arelu", "lr": 0.1}) == {("", "", ""): 2.0}


def rows(*cells: tuple[float, int, float]) -> pd.DataFrame:
    return pd.DataFrame(cells, columns=["lr", "seed", "validation/accuracy"]).assign(activation="arelu")


FINDINGS = sweep({"relu": 50.0}, axes=("activation", "lr"))


def test_chosen_by_the_mean_over_seeds():
    """0.1: 90 and 50, mean 70; 0.01: 75 and 75."""
    choice = choose_setting(FINDINGS, rows((0.1, 0, 90), (0.1, 1, 50), (0.01, 0, 75), (0.01, 1, 75)), ("lr",))
    assert choice.setting == (("lr", 0.01),)
    assert (choice.validation, choice.candidates, choice.at_edge) == (75.0, 2, ("lr",))


def test_a_loss_is_better_when_lower():
    table = rows((0.1, 0, 0.9), (0.01, 0, 0.2), (0.001, 0, 0.5)).rename(
        columns={"validation/accuracy": "validation/loss"}
    )
    choice = choose_setting(replace(FINDINGS, validation_metric="validation/loss"), table, ("lr",))
    assert choice.setting == (("lr", 0.01),)
    assert choice.at_edge == ()


def test_what_is_judged_does_not_turn_the_choice_around():
    """Judged by a loss, of which less is better; chosen by an accuracy, of which more is."""
    judged = replace(FINDINGS, metric="train/loss", higher_is_better=False)
    assert choose_setting(judged, rows((0.1, 0, 90), (0.01, 0, 20)), ("lr",)).setting == (("lr", 0.1),)


def test_a_setting_in_which_a_seed_diverged_comes_last():
    table = rows((0.1, 0, 99), (0.1, 1, math.nan), (0.01, 0, 60), (0.01, 1, 60))
    assert choose_setting(FINDINGS, table, ("lr",)).setting == (("lr", 0.01),)
    assert choose_setting(FINDINGS, table[table["lr"] != 0.01], ("lr",)).setting == (("lr", 0.1),)


def test_settings_are_compared_on_the_seeds_they_share():
    """Seed 2 was run at 0.01 alone: more seeds make no setting better."""
    table = rows((0.1, 0, 60), (0.1, 1, 58), (0.01, 0, 20), (0.01, 1, 22), (0.01, 2, 99))
    choice = choose_setting(FINDINGS, table, ("lr",))
    assert (choice.setting, choice.validation, choice.uneven) == ((("lr", 0.1),), 59.0, True)
    assert not choose_setting(FINDINGS, table[table["seed"] < 2], ("lr",)).uneven
    apart = choose_setting(FINDINGS, rows((0.1, 0, 60), (0.01, 1, 70)), ("lr",))  # none shared: each by its own
    assert (apart.setting, apart.validation) == ((("lr", 0.01),), 70.0)


def test_nothing_to_choose_by():
    found = choose_setting(FINDINGS, rows((0.1, 0, math.nan), (0.01, 0, math.nan)), ("lr",))
    assert math.isnan(dict(found.setting)["lr"])
    assert (found.candidates, len(found.rows), found.at_edge) == (2, 1, ())


@pytest.mark.parametrize(
    ("one", "other", "decades"), [(0.001, 0.1, -2.0), (0.3, 0.03, 1.0), (0.0, 0.1, math.nan), ("a", 1, math.nan)]
)
def test_decades(one: object, other: object, decades: float):
    assert decades_from((("lr", one),), (("lr", other),), "lr") == pytest.approx(decades, nan_ok=True)
    assert math.isnan(decades_from((), (), "lr"))
