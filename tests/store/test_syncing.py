"""Stores that are copied, copied again and copied back hold the same, once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import LoggedModel
from mlflow.entities.model_registry import ModelVersion
from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

from arelu_meta.errors import InputError, RunError
from arelu_meta.store import syncing
from arelu_meta.store.addresses import global_tracking_uri
from arelu_meta.store.syncing import sync
from tests.store import stored


@pytest.fixture
def cluster(tmp_path: Path, new_store: Path, monkeypatch: pytest.MonkeyPatch) -> MlflowClient:
    """A store of four runs, one of them below another, one failed, one deleted; artifacts and models."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARELU_META_CACHE", str(tmp_path / "cache"))
    client = stored.client_of(tmp_path / "cluster", new_store)
    digits = stored.experiment(client, "digits", tmp_path / "cluster")
    parent = stored.run(client, digits, tmp_path, 0)
    failed, deleted = (stored.run(client, digits, tmp_path, number, parent=parent) for number in (1, 2))
    client.set_terminated(failed, "FAILED", 9_000)
    client.delete_run(deleted)
    stored.run(client, stored.experiment(client, "other", tmp_path / "cluster"), tmp_path, 3)
    return client


@pytest.fixture
def server(tmp_path: Path, new_store: Path) -> MlflowClient:
    """An empty store."""
    return stored.client_of(tmp_path / "server", new_store)


def copy(source: MlflowClient, target: MlflowClient, **options: Any) -> syncing.Synced:
    done = sync(source.tracking_uri, target.tracking_uri, **options)
    assert done.failed == []
    return done


def test_everything_is_copied_once(cluster: MlflowClient, server: MlflowClient):
    done = copy(cluster, server)
    assert (done.copied.runs, done.models) == (4, 4)
    # 5 + 2 + 1 points of each run; note and empty file, MLmodel and weights.
    assert (done.copied.points, done.copied.files) == (4 * 8, 4 * 4)
    assert stored.described(server) == stored.described(cluster)
    tags = server.get_experiment_by_name("digits").tags
    assert tags["mlflow.note.content"] == "what digits is about"
    again = copy(cluster, server)
    assert (again.copied.runs, again.copied.updated, again.unchanged) == (0, 0, 4)
    assert (again.copied.points, again.copied.files, again.models) == (0, 0, 0)


def test_back_and_around_come_no_second_copies(
    cluster: MlflowClient, server: MlflowClient, tmp_path: Path, new_store: Path
):
    copy(cluster, server)
    before = stored.described(cluster)
    back = copy(server, cluster)
    assert (back.copied.runs, back.copied.updated, back.there, back.models) == (0, 0, 4, 0)
    assert stored.described(cluster) == before
    third = stored.client_of(tmp_path / "third", new_store)
    assert copy(server, third).copied.runs == 4
    around = copy(third, cluster)
    assert (around.copied.runs, around.there) == (0, 4)
    assert copy(cluster, third).there == 4  # they came by the server
    assert stored.described(third) == before == stored.described(cluster)


def test_what_is_new_there_comes_back(cluster: MlflowClient, server: MlflowClient, tmp_path: Path):
    copy(cluster, server)
    stored.run(server, server.get_experiment_by_name("digits").experiment_id, tmp_path, 9)
    assert copy(server, cluster).copied.runs == 1
    assert copy(server, cluster).copied.runs == 0
    assert copy(cluster, server).copied.runs == 0
    assert stored.described(cluster) == stored.described(server)


def test_what_has_changed_is_brought(cluster: MlflowClient, server: MlflowClient):
    """A run that goes on, one that gets an artifact and a tag later, one that is deleted; a description."""
    digits = cluster.get_experiment_by_name("digits").experiment_id
    running = cluster.create_run(digits, run_name="running").info.run_id
    cluster.log_metric(running, "loss", 1.0, 7, 0)
    copy(cluster, server)
    cluster.log_metric(running, "loss", 0.5, 8, 1)
    cluster.set_terminated(running, "FINISHED", 9)
    first, *_ = cluster.search_runs([digits], "attributes.run_name = 'run 0'")
    cluster.log_text(first.info.run_id, "later", "later.txt")
    cluster.set_tag(first.info.run_id, "mlflow.note.content", "the verdict")
    other, *_ = cluster.search_runs([cluster.get_experiment_by_name("other").experiment_id])
    cluster.delete_run(other.info.run_id)
    cluster.set_experiment_tag(digits, "mlflow.note.content", "a new description")
    done = copy(cluster, server)
    assert (done.copied.runs, done.copied.updated, done.copied.points, done.copied.files) == (0, 3, 1, 1)
    assert stored.described(server) == stored.described(cluster)
    assert server.get_experiment_by_name("digits").tags["mlflow.note.content"] == "a new description"


def test_what_was_changed_there_stays(cluster: MlflowClient, server: MlflowClient):
    copy(cluster, server)
    there = server.get_experiment_by_name("other")
    server.set_experiment_tag(there.experiment_id, "mlflow.note.content", "as we see it")
    (run,) = server.search_runs([there.experiment_id])
    server.delete_run(run.info.run_id)
    cluster.set_experiment_tag(cluster.get_experiment_by_name("other").experiment_id, "mlflow.note.content", "new")
    assert copy(cluster, server).copied.updated == 0
    assert server.get_experiment_by_name("other").tags["mlflow.note.content"] == "as we see it"
    assert server.search_runs([there.experiment_id]) == []


CALLS = ("create_run", "log_batch", "log_inputs", "log_outputs", "create_logged_model", "set_terminated")


def test_a_sync_that_breaks_off_goes_on(
    tmp_path: Path, new_store: Path, server: MlflowClient, monkeypatch: pytest.MonkeyPatch
):
    """Broken off before its first call that writes, then before its second, and so on, until it comes to its end."""
    monkeypatch.setenv("ARELU_META_CACHE", str(tmp_path / "cache"))
    source = stored.client_of(tmp_path / "source", new_store)
    stored.run(source, stored.experiment(source, "digits", tmp_path / "source"), tmp_path)
    left = 0

    def cut(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
            return method(*arguments, **options)

        return call

    with monkeypatch.context() as patch:
        for name in CALLS:
            patch.setattr(MlflowClient, name, cut(getattr(MlflowClient, name)))
        patch.setattr(LocalArtifactRepository, "log_artifacts", cut(LocalArtifactRepository.log_artifacts))
        broken = 0
        while True:
            left = broken
            try:
                copy(source, server)
                break
            except KeyboardInterrupt:
                broken += 1
    assert broken > len(CALLS)  # each was the one that did not come
    assert stored.described(server) == stored.described(source)


def test_one_experiment(cluster: MlflowClient, server: MlflowClient):
    assert copy(cluster, server, experiments=["other"]).copied.runs == 1
    assert server.get_experiment_by_name("digits") is None
    with pytest.raises(InputError, match=r"unknown experiment 'digit'; did you mean 'digits'\?"):
        copy(cluster, server, experiments=["digit"])


def test_a_dry_run_writes_nothing(cluster: MlflowClient, server: MlflowClient, tmp_path: Path):
    new = tmp_path / "new.db"
    assert sync(cluster.tracking_uri, str(new), dry_run=True).copied.runs == 4
    assert not new.exists()
    assert copy(cluster, server, dry_run=True).copied.runs == 4
    assert server.search_experiments(filter_string="name = 'digits'") == []
    copy(cluster, server)
    assert copy(cluster, server, dry_run=True).unchanged == 4


@pytest.mark.usefixtures("cluster")
def test_wrong_stores_are_refused(tmp_path: Path):
    place = tmp_path / "cluster" / "mlflow.db"
    with pytest.raises(InputError, match="to be copied to itself"):
        sync(str(place), f"sqlite:///{tmp_path}/cluster/../cluster/mlflow.db")
    with pytest.raises(InputError, match=r"there is no MLflow store .*nowhere\.db; check the path"):
        sync("nowhere.db", str(place))
    with pytest.raises(InputError, match=r"no server answers at 127\.0\.0\.1:9") as error:
        sync(str(place), "http://me:secret@127.0.0.1:9")
    assert "secret" not in str(error.value)
    assert not Path("nowhere.db").exists()


def test_one_sync_at_a_time(cluster: MlflowClient, server: MlflowClient):
    with syncing._locked(server.tracking_uri), pytest.raises(RunError, match="another process copies to"):
        copy(cluster, server)


def test_files_that_cannot_be_read_are_named(cluster: MlflowClient, server: MlflowClient):
    """MLflow fetches no file of this name. The run is not called complete: it is tried again."""
    (run,) = cluster.search_runs([cluster.get_experiment_by_name("other").experiment_id])
    strange = Path(run.info.artifact_uri.removeprefix("file://")) / "#1.txt"
    strange.write_text("strange")
    (line,) = sync(cluster.tracking_uri, server.tracking_uri).failed
    assert run.info.run_id in line
    assert "File #1.txt" in line
    strange.unlink()
    assert copy(cluster, server).copied.updated == 1
    assert stored.described(server) == stored.described(cluster)


def add_version(client: MlflowClient, model: LoggedModel) -> ModelVersion:
    """MLflow looks for the model in the store that is set for all of the process."""
    with global_tracking_uri(client.tracking_uri):
        source = f"models:/{model.model_id}"
        return client.create_model_version("classifier", source, model.source_run_id, model_id=model.model_id)


def test_registered_models_and_aliases(cluster: MlflowClient, server: MlflowClient):
    """Numbers may differ there; an alias that was set there stays, and is named."""
    digits = cluster.get_experiment_by_name("digits").experiment_id
    models = cluster.search_logged_models([digits])
    cluster.create_registered_model("classifier", {"team": "a"}, "for digits")
    for model in models[:2]:
        add_version(cluster, model)
    cluster.set_registered_model_alias("classifier", "candidate", "2")
    assert copy(cluster, server).versions == 2
    copied = server.get_model_version_by_alias("classifier", "candidate")
    copied_model = server.get_logged_model(copied.source.removeprefix("models:/"))
    origin = models[1]
    assert copied_model.tags["sync.origin"] == origin.model_id
    assert server.get_run(copied.run_id).data.tags["sync.origin"] == origin.source_run_id
    assert server.get_registered_model("classifier").description == "for digits"
    cluster.set_registered_model_alias("classifier", "candidate", "1")
    assert copy(cluster, server).versions == 0
    assert server.get_model_version_by_alias("classifier", "candidate").version in (1, "1")
    own = add_version(server, copied_model)
    server.set_registered_model_alias("classifier", "candidate", own.version)
    (note,) = copy(cluster, server).notes
    assert note == f"alias candidate of classifier: it points to version {own.version}, which was made there"
    assert copy(server, cluster).versions == 1
