import math
from dataclasses import replace

import pandas as pd
import pytest

from arelu_meta.analysis.matching import choose, decades_from
from tests.reporting.sweeps import sweep


def rows(*cells: tuple[float, int, float]) -> pd.DataFrame:
    return pd.DataFrame(cells, columns=["lr", "seed", "validation/accuracy"]).assign(activation="arelu")


FINDINGS = sweep({"relu": 50.0}, axes=("activation", "lr"))


def test_chosen_by_the_mean_over_seeds():
    """0.1: 90 and 50, mean 70; 0.01: 75 and 75."""
    choice = choose(FINDINGS, rows((0.1, 0, 90), (0.1, 1, 50), (0.01, 0, 75), (0.01, 1, 75)), ("lr",))
    assert choice.setting == (("lr", 0.01),)
    assert (choice.validation, choice.candidates, choice.at_edge) == (75.0, 2, ("lr",))


def test_a_loss_is_better_when_lower():
    table = rows((0.1, 0, 0.9), (0.01, 0, 0.2), (0.001, 0, 0.5)).rename(
        columns={"validation/accuracy": "validation/loss"}
    )
    choice = choose(replace(FINDINGS, validation_metric="validation/loss"), table, ("lr",))
    assert choice.setting == (("lr", 0.01),)
    assert choice.at_edge == ()


def test_what_is_judged_does_not_turn_the_choice_around():
    """Judged by a loss, of which less is better; chosen by an accuracy, of which more is."""
    judged = replace(FINDINGS, metric="train/loss", higher_is_better=False)
    assert choose(judged, rows((0.1, 0, 90), (0.01, 0, 20)), ("lr",)).setting == (("lr", 0.1),)


def test_a_setting_in_which_a_seed_diverged_comes_last():
    table = rows((0.1, 0, 99), (0.1, 1, math.nan), (0.01, 0, 60), (0.01, 1, 60))
    assert choose(FINDINGS, table, ("lr",)).setting == (("lr", 0.01),)
    assert choose(FINDINGS, table[table["lr"] != 0.01], ("lr",)).setting == (("lr", 0.1),)


def test_settings_are_compared_on_the_seeds_they_share():
    """Seed 2 was run at 0.01 alone: more seeds make no setting better."""
    table = rows((0.1, 0, 60), (0.1, 1, 58), (0.01, 0, 20), (0.01, 1, 22), (0.01, 2, 99))
    choice = choose(FINDINGS, table, ("lr",))
    assert (choice.setting, choice.validation, choice.uneven) == ((("lr", 0.1),), 59.0, True)
    assert not choose(FINDINGS, table[table["seed"] < 2], ("lr",)).uneven
    apart = choose(FINDINGS, rows((0.1, 0, 60), (0.01, 1, 70)), ("lr",))  # none shared: each by its own
    assert (apart.setting, apart.validation) == ((("lr", 0.01),), 70.0)


def test_nothing_to_choose_by():
    found = choose(FINDINGS, rows((0.1, 0, math.nan), (0.01, 0, math.nan)), ("lr",))
    assert math.isnan(dict(found.setting)["lr"])
    assert (found.candidates, len(found.rows), found.at_edge) == (2, 1, ())


@pytest.mark.parametrize(
    ("one", "other", "decades"), [(0.001, 0.1, -2.0), (0.3, 0.03, 1.0), (0.0, 0.1, math.nan), ("a", 1, math.nan)]
)
def test_decades(one: object, other: object, decades: float):
    assert decades_from((("lr", one),), (("lr", other),), "lr") == pytest.approx(decades, nan_ok=True)
    assert math.isnan(decades_from((), (), "lr"))
