"""The report of an adaptation, from answers made up by hand."""

import numpy as np
import pytest
from torch import nn

from arelu_meta.kinds.adapt.choosing import Choice
from arelu_meta.kinds.adapt.result import AdaptResult, DrawOutcome
from arelu_meta.kinds.adapt.spec import AdaptSpec


def outcome(wrong: dict[str, int], selected: str) -> DrawOutcome:
    """Ten images of two classes, of which each method gets so many wrong."""
    labels = np.arange(10) % 2
    answers = {name: np.where(np.arange(10) < count, 1 - labels, labels) for name, count in wrong.items()}
    choices = {name: Choice(name, 1, 0.9 if name == selected else 0.5, 0.3, 1.0) for name in wrong}
    return DrawOutcome(labels, answers, answers[selected], choices)


def result(draws: list[DrawOutcome], *, held_out: bool = True) -> AdaptResult:
    data = {"dataset": "digits", "shots": 5, "draws": len(draws)}
    return AdaptResult(
        spec=AdaptSpec(task="t", data=data, methods={"method": ["knn", "linear"]}),
        network=nn.Identity(),
        verified=True,
        run_id="0" * 32,
        experiment_id="1",
        tracking_uri="sqlite:///mlflow.db",
        class_names=("a", "b"),
        held_out=held_out,
        draws=draws,
        choice=draws[0].choices["linear"],
        support_size=10,
        feature_count=8,
        computed=(3, 20),
        seconds=1.0,
    )


def test_one_draw():
    """Linear is right in 9 of 10, with a half-width of t(0.975, 9) * sqrt(0.09 * 10 / 9 / 10) = 2.2622 * 0.1."""
    found = result([outcome({"knn": 4, "linear": 1}, "linear")])
    assert found.test.mean == pytest.approx(0.9)
    assert "test accuracy  90.00 % ± 22.62 (n = 10), 95 % interval over images" in found.report()
    assert "linear (C = 1), by 5-fold cross-validation" in found.report()
    assert "8 of each image; 3 computed, 17 from the cache" in found.report()
    assert found.table().splitlines()[1].split() == ["knn", "1", "50.00", "60.00"]
    assert found.differences() == {}


def test_draws_are_paired():
    """Linear is 3, 1 and 2 images of ten ahead: 20 points, deviation 10, t(0.975, 2) = 4.3027 / sqrt(3)."""
    pairs = [(4, 1), (3, 2), (4, 2)]
    found = result([outcome({"knn": knn, "linear": linear}, "linear") for knn, linear in pairs])
    pair = found.differences()["linear"]
    assert pair.estimate.mean == pytest.approx(0.2)
    assert pair.estimate.half_width == pytest.approx(0.2484, abs=1e-4)
    assert "+20.00 ± 24.84" in found.table()
    assert found.test.mean == pytest.approx((0.9 + 0.8 + 0.8) / 3)
    assert "less knn, points" in found.table()


def test_cross_validation_is_not_called_a_test():
    found = result([outcome({"knn": 4, "linear": 1}, "linear")], held_out=False)
    assert found.final == "cross_validation"
    assert found.headline.startswith("cross-validated accuracy 90.00 %")
    assert "test" not in found.table()
