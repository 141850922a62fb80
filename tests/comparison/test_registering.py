"""The model that validated best, in the registry."""

from dataclasses import replace

import pytest
from mlflow import MlflowClient

from arelu_meta.comparison.parent_run import ParentRun
from arelu_meta.comparison.registering import register_best
from arelu_meta.errors import InputError, RunError
from tests.reporting.sweeps import sweep
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = MLFLOW_WARNINGS


def test_the_best_by_validation_is_the_candidate(store_uri: str):
    """The best by test is another; a second call is a second version, and the alias moves to it."""
    client = MlflowClient(store_uri)
    findings = sweep({"relu": 66.0, "arelu": 80.0}, seeds=[0])
    run_id = client.create_run("0").info.run_id
    model = client.create_logged_model("0", "model", source_run_id=run_id)
    client.finalize_logged_model(model.model_id, "READY")
    runs = findings.runs.assign(**{"validation/accuracy": [90.0, 85.0], "run_id": [run_id, "another"]})
    findings, parent = replace(findings, runs=runs), ParentRun(client, "0", "parent")
    for version in (1, 2):
        assert register_best(findings, parent, "digits_adapter", "No difference.") == "models:/digits_adapter@candidate"
        made = client.get_model_version_by_alias("digits_adapter", "candidate")
        assert (int(made.version), made.run_id, made.source) == (version, run_id, f"models:/{model.model_id}")
    assert made.description.startswith(
        "Best of comparison simulated by validation/accuracy, 90: activation = relu, seed = 0."
    )
    with pytest.raises(RunError, match="MLflow does not register 'a/b'"):
        register_best(findings, parent, "a/b", "")
    with pytest.raises(RunError, match="run another, the best by validation/loss, has no model to register"):
        register_best(
            replace(
                findings,
                runs=runs.rename(columns={"validation/accuracy": "validation/loss"}),
                validation_metric="validation/loss",
            ),
            parent,
            "x",
            "",
        )
    with pytest.raises(InputError, match="has no validation metric"):
        register_best(replace(findings, validation_metric=None), parent, "x", "")
