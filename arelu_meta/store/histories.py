"""What many runs of the store logged, asked for together: one by one, a thousand runs would take a minute."""

import gc
import math
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Metric, Run, ViewType
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

from arelu_meta.errors import InputError, first_line
from arelu_meta.store.connection import quiet
from arelu_meta.store.database import database_rows, is_database

AT_ONCE = 8  # requests to a server
RUNS_IN_A_QUERY = 500
POINTS = (
    "SELECT run_uuid, value, timestamp, step, is_nan FROM metrics WHERE key = :key AND run_uuid IN :runs "
    "ORDER BY run_uuid, timestamp, step, value"
)
PAGE = 1000  # runs in a request


def run_pages(
    client: MlflowClient,
    experiment_ids: Sequence[str],
    condition: str = "",
    *,
    view: int = ViewType.ACTIVE_ONLY,
    size: int = PAGE,
    pages: int | None = None,
) -> Iterator[Run]:
    """Runs that fulfil a condition, the newest first, read page by page as they are asked for.

    Raises:
        InputError: MLflow does not understand the condition.
    """
    token, read = None, 0
    while experiment_ids and (read == 0 or (token and read != pages)):
        try:
            with quiet():
                page = client.search_runs(list(experiment_ids), condition, view, size, page_token=token)
        except MlflowException as error:
            raise InputError(f"MLflow refuses the condition {condition!r}: {first_line(error)}") from error
        yield from page
        token, read = page.token, read + 1


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Leave new objects alone for a while: MLflow makes millions of ten thousand runs, and none of them is garbage.

    Looking through them again and again takes as long as reading them.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def metric_points(client: MlflowClient, run_ids: Sequence[str], metric: str) -> dict[str, list[Metric]]:
    """Give all that each run logged of a metric, in the order of steps and times.

    MLflow's client asks run by run, which a server is asked for several at once. Behind it a database can answer for
    many runs.
    """
    found: dict[str, list[Metric]] = {run_id: [] for run_id in run_ids}
    if is_database(client):
        for start in range(0, len(run_ids), RUNS_IN_A_QUERY):
            values = {"key": metric, "runs": list(run_ids[start : start + RUNS_IN_A_QUERY])}
            for run_id, value, time, step, is_nan in database_rows(client, POINTS, values, several=["runs"]):
                found[run_id].append(Metric(metric, math.nan if is_nan else value, time, step, run_id=run_id))
    else:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            answers = pool.map(lambda run_id: client.get_metric_history(run_id, metric), run_ids)
            found = dict(zip(run_ids, answers, strict=True))
    return {run_id: sorted(own, key=lambda one: (one.step, one.timestamp)) for run_id, own in found.items()}


def histories(client: MlflowClient, run_ids: Sequence[str], metric: str) -> dict[str, dict[int, float]]:
    """Give a metric of each run: value by step; of a step that a resumed run repeated, the last."""
    points = metric_points(client, run_ids, metric)
    return {run_id: {one.step: one.value for one in own} for run_id, own in points.items()}


def text_artifacts(client: MlflowClient, runs: Sequence[Run], path: str) -> dict[str, str]:
    """Read a text artifact of runs, by their id; those without it, or whose files were moved, are left out."""

    def read(run: Run) -> str | None:
        try:
            repository = get_artifact_repository(run.info.artifact_uri, tracking_uri=client.tracking_uri)
            if isinstance(repository, LocalArtifactRepository):  # which would copy it first
                return Path(repository.download_artifacts(path)).read_text()
            with tempfile.TemporaryDirectory() as folder:
                return Path(repository.download_artifacts(path, folder)).read_text()
        except (MlflowException, OSError):
            return None

    with quiet(), ThreadPoolExecutor(AT_ONCE) as pool:
        texts = list(pool.map(read, runs))
    return {run.info.run_id: text for run, text in zip(runs, texts, strict=True) if text is not None}
