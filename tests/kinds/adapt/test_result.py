"""The report of an adaptation, from answers made up by hand."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ttest_rel
from torch import nn

from arelu_meta.kinds.adapt.choosing import Choice
from arelu_meta.kinds.adapt.result import AdaptResult, DrawOutcome
from arelu_meta.kinds.adapt.spec import AdaptSpec


def outcome(wrong: dict[str, int], selected: str) -> DrawOutcome:
    """Ten images of two classes, of which each method gets so many wrong."""
    labels = np.arange(10) % 2
    answers = {name: np.where(np.arange(10) < count, 1 - labels, labels) for name, count in wrong.items()}
    choices = {name: Choice(name, 1, 0.9 if name == selected else 0.5, 0.3, 1.0) for name in wrong}
    return DrawOutcome(labels, answers, answers[selected], choices, {"knn": (0, 340), "linear": (0, 100)})


def result(draws: list[DrawOutcome], *, held_out: bool = True) -> AdaptResult:
    data = {"dataset": "digits", "shots": 5, "draws": len(draws)}
    return AdaptResult(
        spec=AdaptSpec(task="t", data=data, methods={"method": list(draws[0].answers)}),
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
    """Linear is right in 9 of 10, with Wilson's interval, (0.9 + z^2 / 20 -+ ...) / (1 + z^2 / 10) for z = 1.96."""
    z, n, share = 1.959964, 10, 0.9
    middle, half = share + z**2 / (2 * n), z * (share * (1 - share) / n + z**2 / (4 * n**2)) ** 0.5
    low, high = ((middle + sign * half) / (1 + z**2 / n) for sign in (-1, 1))
    found = result([outcome({"knn": 4, "linear": 1}, "linear")])
    assert found.test.mean == pytest.approx(0.9)
    expected = f"test accuracy  90.00 % ({100 * low:.2f} to {100 * high:.2f}), n = 10, 95 % interval over images"
    assert expected in found.report()
    assert "linear (C = 1), by 5-fold cross-validation" in found.report()
    assert "8 of each image; 3 computed, 17 from the cache" in found.report()
    (header, rows), *others = found.tables()
    assert rows[0] == ["knn", "1", "50.00", "60.00 (31.27 to 83.18)", "0", "340"]
    assert rows[-1][:3] == ["chosen inside", "linear", "90.00"]
    assert not others
    assert all(len(row) == len(header) for row in rows)
    assert found.differences() == {}


def test_one_test_image():
    """One right of one: Wilson's interval is 1 / (1 + z^2) = 0.2065 to 1."""
    drawn = outcome({"knn": 4, "linear": 0}, "linear")
    one = replace(drawn, labels=drawn.labels[:1], answers={"knn": drawn.answers["knn"][:1], "linear": drawn.labels[:1]})
    found = result([replace(one, selected=drawn.labels[:1])])
    assert "test accuracy  100.00 % (20.65 to 100.00), n = 1, 95 % interval over images" in found.report()


def test_draws_are_paired():
    """Linear is 3, 1 and 2 images of ten ahead: 20 points, deviation 10, t(0.975, 2) = 4.3027 / sqrt(3)."""
    pairs = [(4, 1), (3, 2), (4, 2)]
    found = result([outcome({"knn": knn, "linear": linear}, "linear") for knn, linear in pairs])
    pair = found.differences()["knn"]
    assert pair.estimate.mean == pytest.approx(-0.2)
    assert pair.estimate.half_width == pytest.approx(0.2484, abs=1e-4)
    assert "-20.00 ± 24.84" in found.report()
    assert found.test.mean == pytest.approx((0.9 + 0.8 + 0.8) / 3)
    assert "less linear, points" in found.report()
    assert "| chosen inside | linear 3 | 90.00 |" in found.markdown()
    assert "| knn | 1 | 50.00 | 63.33 ± 14.34 | 0 | 340 | -20.00 ± 24.84 | 0.0742 |" in found.markdown()
    chosen = found.csv().splitlines()
    assert chosen[1:3] == ["0,knn,1,0.500000,0.600000,0,0,340", "0,linear,1,0.900000,0.900000,1,0,100"]


def test_several_differences_are_corrected_by_holm():
    """Of two p the smaller is doubled, the larger stays, or is as large: p of scipy's paired t test."""
    wrong = {"prototypes": (5, 6, 4), "knn": (4, 3, 4), "linear": (1, 2, 2)}
    found = result([outcome({name: wrong[name][draw] for name in wrong}, "linear") for draw in range(3)])
    small, large = (ttest_rel(wrong[name], wrong["linear"]).pvalue for name in ("prototypes", "knn"))
    assert small < large
    (_, rows), *_ = found.tables()
    assert [row[-1] for row in rows[:2]] == [f"{2 * small:.3g}", f"{max(2 * small, large):.3g}"]


def test_an_interval_ends_where_nothing_can_be():
    """Right in 10, 10 and 8 of ten: mean 0.9333, deviation 0.1155, t(0.975, 2) / sqrt(3) = 2.4842: 0.6465 to 1.2202."""
    found = result([outcome({"knn": 4, "linear": linear}, "linear") for linear in (0, 0, 2)])
    assert (found.test.low, found.test.high) == (pytest.approx(0.6465, abs=1e-4), 1.0)
    assert "test accuracy  93.33 % (64.65 to 100.00), n = 3" in found.report()


def test_equal_draws_have_no_interval():
    found = result([outcome({"knn": 2, "linear": 1}, "linear")] * 3)
    assert "-10.00 in every draw" in found.report()
    same = result([outcome({"knn": 1, "linear": 1}, "linear")] * 3)
    assert "identical" in same.report()


def test_cross_validation_is_not_called_a_test():
    found = result([outcome({"knn": 4, "linear": 1}, "linear")], held_out=False)
    assert found.final == "cross_validation"
    assert found.headline.startswith("cross-validated accuracy 90.00 %")
    assert not any("test" in head for head in found.tables()[0][0])
