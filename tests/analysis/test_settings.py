from dataclasses import replace

import pandas as pd
import pytest

from arelu_meta.analysis.settings import checked_runs, same, settings, text, tuned_axes
from arelu_meta.errors import InputError
from tests.reporting.sweeps import sweep


def test_learning_rates_are_tuned_unless_said_otherwise():
    findings = sweep({"relu": 1.0}, axes=("activation", "shots", "training.lr", "inner_lr", "colour"))
    assert tuned_axes(findings) == ("training.lr", "inner_lr")
    assert tuned_axes(replace(findings, tuned=("colour",))) == ("colour",)
    assert tuned_axes(replace(findings, tuned=())) == ()


def test_settings_in_order_of_appearance():
    runs = pd.DataFrame({"lr": [0.1, 0.01, 0.1], "n": [1, 2, 3]})
    assert [(setting, rows["n"].tolist()) for setting, rows in settings(runs, ("lr",))] == [
        ((("lr", 0.1),), [1, 3]),
        ((("lr", 0.01),), [2]),
    ]
    assert [setting for setting, _ in settings(runs, ())] == [()]


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
    assert same(one, other) is equal


@pytest.mark.parametrize(("value", "written"), [(0.0001, "0.0001"), (1e-5, "1e-05"), (5, "5"), (float("nan"), "none")])
def test_text(value: object, written: str):
    assert text(value) == written


def test_refuses_what_it_cannot_analyse():
    findings = sweep()
    with pytest.raises(InputError, match="unknown column 'test/acuracy'; did you mean 'test/accuracy'"):
        checked_runs(replace(findings, metric="test/acuracy"))
    with pytest.raises(InputError, match="unknown axis 'seed'"):
        checked_runs(replace(findings, arm="seed"))
    doubled = pd.concat([findings.runs, findings.runs.iloc[:1]])
    with pytest.raises(InputError, match=r"two runs of one cell \(activation = relu, seed = 0\)"):
        checked_runs(replace(findings, runs=doubled))
