"""MLflow tracking of a run: parameters, tags, metrics in batches, figures, the model; and an honest end state."""

import platform
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from mlflow import MlflowClient
from mlflow.data.code_dataset_source import CodeDatasetSource
from mlflow.data.meta_dataset import MetaDataset
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunStatus, RunTag
from mlflow.tracking.context.registry import resolve_tags
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT, MLFLOW_PARENT_RUN_ID

from arelu_meta import __version__
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.inputs import Inputs
from arelu_meta.data.splits import Split
from arelu_meta.errors import DivergedError
from arelu_meta.runtime.machine import processor_name
from arelu_meta.runtime.signals import hold_signals
from arelu_meta.store import models
from arelu_meta.store.connection import DIVERGED, RunSpec, open_store, run_status, store_uri

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FLUSH_METRICS = 500


class Tracker:
    """One run in the store, whatever run MLflow itself has active.

    Metrics go in batches: one by one they would cost more than training steps.
    """

    def __init__(self, client: MlflowClient, run_id: str, experiment_id: str, uri: str) -> None:
        self.run_id, self.experiment_id, self.uri = run_id, experiment_id, uri
        self._client = client
        self._pending: list[Metric] = []

    def log_metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        """Collect metric values of a step; they are sent by `flush`."""
        now = int(time.time() * 1000)
        self._pending.extend(Metric(name, value, now, step) for name, value in values.items())

    @hold_signals()
    def flush(self) -> None:
        """Send the metrics collected so far."""
        for start in range(0, len(self._pending), FLUSH_METRICS):
            self._client.log_batch(self.run_id, metrics=self._pending[start : start + FLUSH_METRICS])
        self._pending.clear()

    @hold_signals()
    def set_tags(self, values: Mapping[str, str]) -> None:
        """Set tags."""
        self._client.log_batch(self.run_id, tags=[RunTag(name, value) for name, value in values.items()])

    @hold_signals()
    def log_child(self, name: str, *, metrics: Mapping[str, float], tags: Mapping[str, str]) -> None:
        """Store a finished run below this one, unless it is there already: a resumed run records again."""
        below = f"tags.`{MLFLOW_PARENT_RUN_ID}` = '{self.run_id}' AND attributes.run_name = '{name}'"
        if self._client.search_runs([self.experiment_id], below, max_results=1):
            return
        own = resolve_tags({**tags, MLFLOW_PARENT_RUN_ID: self.run_id})
        child = Tracker(self._client, "", self.experiment_id, self.uri)
        child.run_id = self._client.create_run(self.experiment_id, tags=own, run_name=name).info.run_id
        child.log_metrics(metrics)
        child.flush()
        self._client.set_terminated(child.run_id)

    @hold_signals()
    def log_params(self, values: Mapping[str, Any]) -> None:
        """Log parameters, which stay as they are."""
        self._client.log_batch(self.run_id, params=[Param(name, str(value)) for name, value in values.items()])

    @hold_signals()
    def log_dataset(self, images: ImageSet, context: str) -> None:
        """Log a data set as an input of the run, by name and content digest."""
        source = CodeDatasetSource(
            tags={"source": images.provenance.source, "verified": str(images.provenance.verified)}
        )
        described = MetaDataset(  # type: ignore[abstract]  # `profile` is optional in fact
            source, name=images.name, digest=images.digest[:32]
        )
        dataset = Dataset(**{key: value for key, value in described.to_dict().items() if value is not None})
        self._client.log_inputs(self.run_id, [DatasetInput(dataset, [InputTag(MLFLOW_DATASET_CONTEXT, context)])])

    @hold_signals()
    def log_split(self, split: Split) -> None:
        """Store which images train, validate and test, as `split.json`."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "split.json"
            split.write(path)
            self._client.log_artifact(self.run_id, str(path))

    def log_figure(self, figure: "Figure", path: str) -> None:
        """Store a figure as an artifact."""
        self._client.log_figure(self.run_id, figure, path)

    @hold_signals()
    def log_dict(self, content: dict[str, Any], path: str) -> None:
        """Store plain values as a JSON artifact."""
        self._client.log_dict(self.run_id, content, path)

    @hold_signals()
    def log_text(self, content: str, path: str) -> None:
        """Store a text artifact."""
        self._client.log_text(self.run_id, content, path)

    @hold_signals()
    def log_network(
        self,
        network: torch.nn.Module,
        images: ImageSet,
        inputs: Inputs | None = None,
        write_more: Callable[[Path], None] | None = None,
    ) -> None:
        """Store a network as the run's model; `images` are what it takes, two at least, `inputs` how others are fitted.

        Without `inputs`, images of another size are resampled. `write_more` is given the folder of the model's files.
        """
        models.log_network(self._client, self.run_id, network, images, inputs, write_more)

    @hold_signals()
    def log_few_shot_model(self, folder: Path) -> None:
        """Store the folder that `FewShotModel.save` wrote as the run's model."""
        models.log_few_shot_model(self._client, self.run_id, folder)


class NoTracker(Tracker):
    """Logs nothing: for all processes of a distributed run but the first."""

    def __init__(self) -> None:
        self.run_id = self.experiment_id = self.uri = ""

    def _ignore(self, *_args: Any, **_kwargs: Any) -> None:
        """Do nothing."""

    log_metrics = flush = set_tags = log_child = log_params = _ignore
    log_dataset = log_split = log_figure = log_dict = log_text = log_network = log_few_shot_model = _ignore


@contextmanager
def track(
    spec: RunSpec, *, experiment: str, name: str, tags: Mapping[str, str], resumed_run: str | None = None
) -> Iterator[Tracker]:
    """Open the run of a spec with its settings as parameters, and `spec.json`; see `open_run`."""
    common = {
        "spec_hash": spec.identity,
        "arelu_meta": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "git_commit": _git_commit(),
        "machine": processor_name(),
    }
    # The summary is no part of the identity: edited meanwhile, it would be another value of a fixed parameter.
    settings = {key: value for key, value in spec.flat().items() if value not in ({}, "") and key != "summary"}
    with open_run(
        experiment,
        name=name,
        tags={**common, **tags},
        params=settings,
        artifacts={"spec.json": spec.model_dump(mode="json")},
        resumed_run=resumed_run,
    ) as tracker:
        yield tracker


@contextmanager
def open_run(
    experiment: str,
    *,
    name: str,
    tags: Mapping[str, str],
    params: Mapping[str, Any] | None = None,
    artifacts: Mapping[str, dict[str, Any]] | None = None,
    resumed_run: str | None = None,
) -> Iterator[Tracker]:
    """Open a run, or a resumed one again, and close it as FINISHED, FAILED (an error) or KILLED (an interruption)."""
    client, experiment_id = open_store(experiment)
    tracker: Tracker | None = None
    status = RunStatus.FAILED
    try:
        with hold_signals():
            run_id = resumed_run if resumed_run and run_status(client, resumed_run) else None
            if run_id is None:
                run_id = client.create_run(experiment_id, tags=resolve_tags(dict(tags)), run_name=name).info.run_id
                tracker = Tracker(client, run_id, experiment_id, store_uri())
            else:
                tracker = Tracker(client, run_id, experiment_id, store_uri())
                client.update_run(run_id, RunStatus.to_string(RunStatus.RUNNING), name)
                tracker.set_tags(tags)
                if DIVERGED in client.get_run(run_id).data.tags:  # it may end otherwise now
                    client.delete_tag(run_id, DIVERGED)
            if params:
                tracker.log_params(params)
            for path, content in (artifacts or {}).items():
                tracker.log_dict(content, path)
        yield tracker
        status = RunStatus.FINISHED
    except DivergedError as error:
        if tracker is not None:
            tracker.set_tags({DIVERGED: str(error)})
        raise
    except KeyboardInterrupt:
        status = RunStatus.KILLED
        if tracker is not None:
            tracker._pending.clear()  # a resumed run will log them again
        raise
    finally:
        if tracker is not None:
            with hold_signals():
                try:
                    tracker.flush()
                finally:
                    client.set_terminated(tracker.run_id, RunStatus.to_string(status))


def _git_commit() -> str:
    """The commit of the checkout the package is run from, or `none` for an installed one."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return "none"
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return "none"
