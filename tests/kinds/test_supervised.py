import pytest
from scipy import integrate

from arelu_meta.kinds import run
from tests.supervised_runs import classify_spec, no_model
from tests.tiny_runs import MLFLOW_WARNINGS, metric_history

__all__ = ["no_model"]  # a fixture


@MLFLOW_WARNINGS
@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(("lr", "patience"), [(0.02, None), (1e-12, 2)])
def test_speed_is_logged_by_epoch(store_uri: str, lr: float, patience: int | None):
    """What learns nothing stops after three of six epochs; what is kept stays where it is."""
    result = run(classify_spec(training={"lr": lr, "epochs": 6, "patience": patience}))
    history = metric_history(store_uri, result.run_id)
    scores = [score for _, score in history["validation/accuracy"]]
    assert (len(scores) < 6) == (patience is not None)
    whole = [*scores, *[max(scores)] * (6 - len(scores))]
    assert history["validation/accuracy_area"] == [(6, pytest.approx(integrate.trapezoid(whole) / 5))]
    reached = {level for level in (50, 60, 70, 80, 90, 95, 99) if max(scores) >= level / 100}
    assert {name for name in history if "epochs_to" in name} == {f"validation/epochs_to_{level}" for level in reached}
