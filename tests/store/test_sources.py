"""What may name a trained network, told without torch and MLflow."""

from pathlib import Path

import pytest

from arelu_meta.errors import InputError
from arelu_meta.store.sources import check_given, check_source

RUN = "0123456789abcdef" * 2
NO_STORE = "there is no MLflow store sqlite:///mlflow.db here; go to the folder of the run, or set MLFLOW_TRACKING_URI"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", ["deadbeef", RUN[1:], RUN.upper(), ""])
def test_what_has_no_form_of_a_name(name: str):
    with pytest.raises(InputError, match=r"no folder, MLflow run or model URI: .*; check the spelling \(run ids"):
        check_source(name)


@pytest.mark.parametrize("name", [RUN, f"runs:/{RUN}/model", "models:/birds/1"])
def test_a_name_of_a_store_that_is_not_there(name: str, monkeypatch: pytest.MonkeyPatch):
    check_source(name)
    with pytest.raises(InputError, match=NO_STORE):
        check_given(name)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")  # whether a server has it, only that says
    check_given(name)


def test_what_needs_no_store_here(monkeypatch: pytest.MonkeyPatch):
    Path(RUN).mkdir()
    for name in (RUN, ".", "s3://bucket/model"):
        check_given(name)
    monkeypatch.setenv("MLFLOW_REGISTRY_URI", "http://127.0.0.1:9")
    check_given("models:/birds/1")
