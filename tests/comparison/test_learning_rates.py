"""The learning-rate view: the grid, the choice and the shift, by hand; and whole runs of a tiny network."""

import math

import pytest
from mlflow import MlflowClient

from arelu_meta.comparison.learning_rates import Point, best_rates, cells, csv, means, rates, sweep, table
from arelu_meta.errors import DivergedError, InputError
from arelu_meta.kinds.execution import Execution
from tests.supervised_runs import finetune_spec, no_model
from tests.tiny_runs import MLFLOW_WARNINGS

__all__ = ["no_model"]  # a fixture


def points(arm, validation, test=None, seed=0):
    """One point per decade from 0.001 on."""
    test = test or validation
    return [Point(arm, 0.001 * 10**i, seed, v, t) for i, (v, t) in enumerate(zip(validation, test, strict=True))]


def test_rates():
    assert rates("1e-5:1e-1") == [1e-5, 1e-4, 1e-3, 1e-2, 1e-1]
    assert rates("0.002:0.2") == [0.002, 0.02, 0.2]
    assert rates("0.1:1:4") == [0.1, 0.177828, 0.316228, 0.562341, 1.0]


@pytest.mark.parametrize("text", ["1e-3", "1:0.1", "0:1", "a:b", "1e-3:1:0", "1e-3:1:2:3", "-1:1", "nan:1", "1e-3:inf"])
def test_wrong_rates(text):
    with pytest.raises(InputError, match="give LOW:HIGH or LOW:HIGH:PER_DECADE"):
        rates(text)


def test_the_rate_is_chosen_on_validation_and_the_shift_is_in_decades():
    """relu is best at 0.1 on validation (its test would say 0.01), arelu at 0.01: one decade below."""
    both = points("relu", [0.1, 0.6, 0.9, 0.2], [0.1, 0.95, 0.8, 0.2])
    both += points("arelu", [0.5, 0.905, 0.9, math.nan], [0.5, 0.7, 0.8, math.nan])
    relu, arelu = best_rates(both)
    assert (relu.lr, relu.validation, relu.test, relu.near, relu.at_edge) == (0.1, 0.9, 0.8, (0.1, 0.1), False)
    assert (arelu.lr, arelu.test, arelu.near) == (0.01, 0.7, (0.01, 0.1))  # 0.9 is within a point of 0.905
    text = table(both)
    row = next(line.split() for line in text.splitlines() if line.split()[:2] == ["arelu", "0.01"])
    assert row == ["arelu", "0.01", "-1.00", "0.01", "to", "0.1", "90.50", "70.00"]
    assert "diverged" in text
    assert "edge" not in text


def test_seeds_are_averaged_and_a_lost_one_spoils_its_rate():
    """0.6 and 0.8 make 0.7 at 0.001; at 0.01 one of two ran away, however good the other is."""
    both = points("relu", [0.6, 0.5]) + points("relu", [0.8, math.nan], seed=1)
    assert means(both, "validation")["relu"][0] == (0.001, pytest.approx(0.7))
    (best,) = best_rates(both)
    assert (best.lr, best.validation, best.at_edge) == (0.001, pytest.approx(0.7), True)
    assert "edge: the best rate is the last one tried; widen --lr-sweep" in table(both)
    assert csv(both).splitlines()[1] == "relu,0.001,0,0.600000,0.600000"


def test_an_arm_that_diverges_everywhere():
    assert best_rates(points("slaf", [math.nan, math.nan])) == []
    assert "every run diverged" in table(points("slaf", [math.nan, math.nan]))


def test_cells_differ_in_arm_rate_and_seed_alone():
    spec = finetune_spec()
    made = cells(spec, ["own", "arelu", "own"], [0.1, 1.0], [0, 3])
    named = [(cell.network.activation, cell.training.lr, cell.seed) for cell in made]
    assert named == [(arm, lr, seed) for arm in ("own", "arelu") for lr in (0.1, 1.0) for seed in (0, 3)]
    assert len({cell.identity for cell in made}) == 8
    assert all(cell.data == spec.data and cell.input == spec.input for cell in made)
    with pytest.raises(InputError, match="unknown activation 'arleu'"):
        cells(spec, ["arleu"], [0.1], [0])
    with pytest.raises(InputError, match="use --protocol sound"):
        cells(finetune_spec(evaluation={"protocol": "paper"}), ["own"], [0.1], [0])


@MLFLOW_WARNINGS
@pytest.mark.usefixtures("no_model")
def test_finished_runs_are_taken_from_the_store(store_uri, monkeypatch):
    specs = cells(finetune_spec(training={"epochs": 1}), ["own"], [0.01, 0.1], [0])
    seen = []
    first = sweep(specs[:1], Execution(), lambda point, found: seen.append((point.lr, found)))
    again = sweep(specs, Execution(), lambda point, found: seen.append((point.lr, found)))
    assert seen == [(0.01, False), (0.01, True), (0.1, False)]
    assert again[0] == first[0]
    client = MlflowClient(store_uri)
    assert len(client.search_runs([client.get_experiment_by_name("arelu_meta").experiment_id])) == 2

    def lost(*_args, **_options):
        raise DivergedError("the training loss is nan")

    monkeypatch.setattr("arelu_meta.comparison.learning_rates.run", lost)
    (point,) = sweep(cells(finetune_spec(), ["own"], [9.0], [0]), Execution(), lambda *_: None)
    assert math.isnan(point.validation)


def test_no_rate_above_the_highest():
    assert rates("1e-4:5e-2") == [1e-4, 1e-3, 1e-2]
    with pytest.raises(InputError, match="--lr-sweep 1e-3:3e-3 has one rate; widen it, or give more per decade"):
        rates("1e-3:3e-3")
