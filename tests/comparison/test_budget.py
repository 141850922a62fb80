import pytest

from arelu_meta.comparison.budget import check_axes, check_budget, scaled, scaled_metric, share
from arelu_meta.errors import InputError


def test_lengths_and_schedule_are_scaled_rounding_up():
    """0.1 of 25 epochs are 2.5, so 3; of the milestones 10 and 20: 1 and 2; of 1 epoch: 1."""
    values = {"training": {"epochs": 25, "milestones": (10, 20), "warmup_epochs": 1, "lr": 0.1}, "seed": 5}
    given = scaled(values, 0.1)
    assert given == {"training": {"epochs": 3, "milestones": [1, 2], "warmup_epochs": 1, "lr": 0.1}, "seed": 5}
    assert values["training"]["epochs"] == 25
    assert share(values, given) == 3 / 25


def test_zero_and_absence_stay():
    training = {"iterations": 100, "halve_lr_every": None, "freeze_epochs": 0, "milestones": ()}
    assert scaled({"training": training}, 0.5)["training"] == {
        "iterations": 50,
        "halve_lr_every": None,
        "freeze_epochs": 0,
        "milestones": [],
    }


def test_no_float_dust():
    """0.07 * 100 is 7.000000000000001 in floating point; the budget is 7 iterations, not 8."""
    assert scaled({"training": {"iterations": 100}}, 0.07)["training"]["iterations"] == 7


def test_transfer():
    values = {"pretraining": {"pretrain_epochs": 20}, "training": {"epochs": 20}, "report_epochs": (5, 10, 20)}
    assert scaled(values, 0.1) == {
        "pretraining": {"pretrain_epochs": 2},
        "training": {"epochs": 2},
        "report_epochs": [1, 2],
    }
    assert scaled_metric("test/finetune_20", 0.1) == "test/finetune_2"
    assert scaled_metric("test/finetune_20", 1.0) == "test/finetune_20"


def test_the_whole_is_left_alone():
    values = {"training": {"iterations": 100}}
    assert scaled(values, 1.0) is values


def test_a_length_that_is_an_axis_is_not_scaled():
    """2 of 4 epochs would stand in tables as 4."""
    with pytest.raises(InputError, match=r"would scale training.epochs, which is an axis .*: --only epochs=..."):
        check_axes(["network.activation", "training.epochs"], 0.5)
    check_axes(["network.activation", "training.epochs"], 1.0)
    check_axes(["network.activation", "training.lr"], 0.5)


@pytest.mark.parametrize("budget", [0.0, -0.5, 1.5, float("nan")])
def test_what_is_no_share(budget: float):
    with pytest.raises(InputError, match="must be above 0 and at most 1"):
        check_budget(budget)
