"""Stores with a bit of everything, made by plain MLflow calls, and what a copy of them must hold."""

from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import (
    Dataset,
    DatasetInput,
    InputTag,
    LoggedModelOutput,
    LoggedModelStatus,
    Metric,
    Param,
    RunTag,
    ViewType,
)

DATASET = Dataset("digits", "0123abcd", "code", '{"tags": {}}', '{"fields": 1}', "ten")


def client_of(path: Path, new_store: Path | None = None) -> MlflowClient:
    """Give the store in a folder, copied from an empty one where it is given."""
    path.mkdir(parents=True, exist_ok=True)
    if new_store is not None:
        (path / "mlflow.db").write_bytes(new_store.read_bytes())
    uri = f"sqlite:///{path / 'mlflow.db'}"
    return MlflowClient(uri, registry_uri=uri)


def experiment(client: MlflowClient, name: str, place: Path) -> str:
    """Make an experiment with a description."""
    made = client.create_experiment(name, (place / "mlruns" / name).as_uri())
    client.set_experiment_tag(made, "mlflow.note.content", f"what {name} is about")
    return str(made)


def run(client: MlflowClient, experiment_id: str, place: Path, number: int = 0, *, parent: str = "") -> str:
    """Make a finished run with parameters, points, a data set, artifacts and a model with linked metrics."""
    tags = {"spec_hash": f"{number:08x}", **({"mlflow.parentRunId": parent} if parent else {})}
    run_id = str(client.create_run(experiment_id, 1_000 + number, tags, f"run {number}").info.run_id)
    points = [Metric("train/loss", 1.0 / (step + 1 + number), 2_000 + step, step) for step in range(5)]
    points += [Metric("diverged", float("nan"), 3_000, 0), Metric("huge", float("inf"), 3_000, 0)]
    params = [Param(f"p{index}", f"{index + number}") for index in range(120)]
    client.log_batch(run_id, points, params[:90], [RunTag("note", "a 'quoted' note")])
    client.log_batch(run_id, params=params[90:])
    client.log_inputs(run_id, [DatasetInput(DATASET, [InputTag("mlflow.data.context", "train")])])
    model = client.create_logged_model(experiment_id, "model", run_id, {"kind": "tiny"}, {"depth": "3"}, "classifier")
    files = place / f"files{number}"
    (files / "data").mkdir(parents=True)
    (files / "MLmodel").write_text(
        f"artifact_path: {model.artifact_location}\nmodel_id: {model.model_id}\nrun_id: {run_id}\n"
    )
    (files / "data" / "weights.bin").write_bytes(bytes([number % 256]) * 50)
    client.log_model_artifacts(model.model_id, str(files))
    client.log_outputs(run_id, [LoggedModelOutput(model.model_id, 4)])
    client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
    linked = {"model_id": model.model_id, "run_id": run_id, "dataset_name": "digits", "dataset_digest": "0123abcd"}
    client.log_batch(run_id, [Metric("test/accuracy", number / 100, 4_000, 4, **linked)])
    client.log_text(run_id, f"hello {number}", "notes/a b/note 1.txt")
    client.log_text(run_id, "", "empty.txt")
    client.set_terminated(run_id, "FINISHED", 5_000 + number)
    return run_id


def described(client: MlflowClient) -> list[dict[str, Any]]:
    """Tell what a store holds, in words that are the same in its copy: ids are left out, names stand for them."""
    names: dict[str, str] = {}
    found = []
    for one in client.search_experiments():
        runs = list(client.search_runs([one.experiment_id], run_view_type=ViewType.ALL, max_results=1000))
        names |= {each.info.run_id: each.info.run_name for each in runs}
    for one in client.search_experiments():
        for each in client.search_runs([one.experiment_id], run_view_type=ViewType.ALL, max_results=1000):
            found.append({"experiment": one.name, **_described(client, each.info.run_id, names)})
    return sorted(found, key=lambda each: (each["experiment"], each["name"]))


def _described(client: MlflowClient, run_id: str, names: dict[str, str]) -> dict[str, Any]:
    whole = client.get_run(run_id)
    tags = {key: value for key, value in whole.data.tags.items() if not key.startswith("sync.")}
    tags["mlflow.parentRunId"] = names.get(tags.get("mlflow.parentRunId", ""), "")
    histories = [client.get_metric_history(run_id, key) for key in whole.data.metrics]
    info = whole.info
    models = client.search_logged_models([info.experiment_id], f"source_run_id = '{run_id}'")
    return {
        "name": info.run_name,
        "info": (info.status, info.start_time, info.end_time, info.lifecycle_stage, info.user_id),
        "tags": tags,
        "params": whole.data.params,
        "points": sorted((p.key, repr(p.value), p.timestamp, p.step) for history in histories for p in history),
        "datasets": [
            (d.dataset.to_dictionary(), [(t.key, t.value) for t in d.tags]) for d in whole.inputs.dataset_inputs
        ],
        "outputs": [one.step for one in whole.outputs.model_outputs],
        "files": _files(Path(info.artifact_uri.removeprefix("file://"))),
        "models": [_model(model, run_id) for model in models],
    }


def _model(model: Any, run_id: str) -> dict[str, Any]:
    place = Path(model.artifact_location.removeprefix("file://"))
    files = {
        path: text.replace(model.model_id, "MODEL").replace(run_id, "RUN").replace(str(place.parents[2]), "PLACE")
        for path, text in _files(place).items()
    }
    linked = [
        (m.key, m.value, m.step, m.timestamp, m.dataset_name, m.dataset_digest, m.run_id == run_id)
        for m in model.metrics
    ]
    tags = {key: value for key, value in model.tags.items() if not key.startswith("sync.")}
    return {
        "about": (model.name, model.model_type, str(model.status), tags, model.params),
        "files": files,
        "metrics": linked,
    }


def _files(folder: Path) -> dict[str, str]:
    return {str(one.relative_to(folder)): one.read_text() for one in sorted(folder.rglob("*")) if one.is_file()}
