"""MLflow tracking of a run: parameters, tags, metrics in batches, figures, the model; and an honest end state."""

import copy
import logging
import platform
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlflow
import numpy as np
import torch
from mlflow import MlflowClient
from mlflow.entities import Metric, RunStatus
from mlflow.exceptions import MlflowException
from safetensors.torch import save_file

from arelu_meta import __version__
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.inputs import inputs_of
from arelu_meta.data.splits import Split
from arelu_meta.errors import DivergedError, InputError, first_line
from arelu_meta.runtime.signals import hold_signals
from arelu_meta.store.connection import DIVERGED, RunSpec, open_store, run_status, store_uri

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FLUSH_METRICS = 500
WEIGHTS_FILE = "weights.safetensors"
FEW_SHOT_LOADER = "arelu_meta.kinds.few_shot.model"  # weights and a spec: no pickle


class Tracker:
    """One run in the store. Metrics go in batches: one by one they would cost more than training steps."""

    def __init__(self, client: MlflowClient, run_id: str, experiment_id: str, uri: str) -> None:
        self.run_id, self.experiment_id, self.uri = run_id, experiment_id, uri
        self._client = client
        self._pending: list[Metric] = []

    def log_metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        """Note metric values of a step; they are sent by `flush`."""
        now = int(time.time() * 1000)
        self._pending.extend(Metric(name, value, now, step) for name, value in values.items())

    @hold_signals()
    def flush(self) -> None:
        """Send what is noted."""
        for start in range(0, len(self._pending), FLUSH_METRICS):
            self._client.log_batch(self.run_id, metrics=self._pending[start : start + FLUSH_METRICS])
        self._pending.clear()

    def discard(self) -> None:
        """Forget what is noted: a resumed run will note it again."""
        self._pending.clear()

    @hold_signals()
    def set_tags(self, values: Mapping[str, str]) -> None:
        """Set tags."""
        for name, value in values.items():
            self._client.set_tag(self.run_id, name, value)

    @hold_signals()
    def log_dataset(self, images: ImageSet, context: str) -> None:
        """Record a data set as an input of the run, by name and content digest."""
        from mlflow.data.code_dataset_source import CodeDatasetSource
        from mlflow.data.meta_dataset import MetaDataset

        source = CodeDatasetSource(
            tags={"source": images.provenance.source, "verified": str(images.provenance.verified)}
        )
        entity = MetaDataset(  # type: ignore[abstract]  # `profile` is optional in fact
            source, name=images.name, digest=images.digest[:32]
        )
        mlflow.log_input(entity, context=context)

    @hold_signals()
    def log_split(self, split: Split) -> None:
        """Store which images train, validate and test."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "split.json"
            split.write(path)
            mlflow.log_artifact(str(path))

    def log_figure(self, figure: "Figure", path: str) -> None:
        """Store a figure as an artifact."""
        mlflow.log_figure(figure, path)

    @hold_signals()
    def log_dict(self, content: Any, path: str) -> None:
        """Store plain values as a JSON artifact."""
        mlflow.log_dict(content, path)

    @hold_signals()
    def log_text(self, content: str, path: str) -> None:
        """Store a text artifact."""
        mlflow.log_text(content, path)

    @hold_signals()
    def log_network(self, network: torch.nn.Module, images: ImageSet) -> None:
        """Store a network as an MLflow model with its signature, and its weights as plain tensors beside it.

        `images` are what it was made for, two at least.
        """
        with quiet():  # the import alone warns
            import mlflow.pytorch
            from mlflow.models import ModelSignature
            from mlflow.types import Schema, TensorSpec

        network = copy.deepcopy(network).cpu().eval()
        example = images.pixels(torch.arange(2, device=images.device)).cpu()
        with torch.no_grad():
            output = network(example)
        inputs, outputs = (
            Schema([TensorSpec(tensor.numpy().dtype, (-1, *tensor.shape[1:]))]) for tensor in (example, output)
        )
        with quiet(), tempfile.TemporaryDirectory() as folder:
            weights = Path(folder) / WEIGHTS_FILE
            save_weights(network, weights, images)
            mlflow.pytorch.log_model(
                network,
                name="model",
                extra_files=[str(weights)],
                signature=ModelSignature(inputs=inputs, outputs=outputs),
                input_example=example.numpy(),
                serialization_format="pt2",  # a traced graph: loading it runs no code of the file's
                pip_requirements=[f"arelu-meta=={__version__}", f"torch=={torch.__version__.partition('+')[0]}"],
            )

    @hold_signals()
    def log_few_shot_model(self, folder: Path, *, channels: int, image_size: tuple[int, int]) -> None:
        """Store a few-shot model: an MLflow model that takes support and query and answers with probabilities."""
        with quiet():  # the import alone warns
            import mlflow.pyfunc
            from mlflow.models import ModelSignature
            from mlflow.types import Schema, TensorSpec

        image = (-1, channels, *image_size)
        inputs = Schema(
            [
                TensorSpec(np.dtype("float32"), image, "support_x"),
                TensorSpec(np.dtype("int64"), (-1,), "support_y"),
                TensorSpec(np.dtype("float32"), image, "query_x"),
            ]
        )
        outputs = Schema([TensorSpec(np.dtype("float32"), (-1, -1))])
        with quiet():
            mlflow.pyfunc.log_model(
                name="model",
                loader_module=FEW_SHOT_LOADER,
                data_path=str(folder),
                signature=ModelSignature(inputs=inputs, outputs=outputs),
                # Given, because MLflow would start a process to find out.
                pip_requirements=[f"arelu-meta=={__version__}", f"torch=={torch.__version__.partition('+')[0]}"],
            )


def save_weights(network: torch.nn.Module, path: Path, images: ImageSet) -> None:
    """Write a network's tensors as safetensors, with what images it takes and its classes in the header."""
    state = {name: value.detach().cpu().contiguous().clone() for name, value in network.state_dict().items()}
    save_file(state, path, metadata=inputs_of(images).metadata(images.class_names))


class NoTracker(Tracker):
    """Stands in where a run is not to be tracked: in all processes of a distributed run but the first."""

    def __init__(self) -> None:
        self.run_id = self.experiment_id = self.uri = ""

    def log_metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        """Do nothing."""

    def flush(self) -> None:
        """Do nothing."""


def download_model(uri: str) -> Path:
    """Fetch a stored model and give its folder."""
    mlflow.set_tracking_uri(store_uri())
    try:
        return Path(mlflow.artifacts.download_artifacts(artifact_uri=uri))
    except (MlflowException, OSError) as error:
        raise InputError(f"cannot fetch {uri}: {first_line(error)}") from error


def few_shot_data(folder: Path) -> Path:
    """Give the folder inside a stored few-shot model that holds what the run saved."""
    flavour = mlflow.models.Model.load(folder).flavors.get("python_function", {})
    if flavour.get("loader_module") != FEW_SHOT_LOADER:
        raise InputError(
            f"{folder} is an MLflow model, but not a few-shot model of arelu_meta; name another run or URI"
        )
    return folder / str(flavour["data"])


@contextmanager
def track(
    spec: RunSpec, *, experiment: str, name: str, tags: Mapping[str, str], resumed_run: str | None = None
) -> Iterator[Tracker]:
    """Open a run, or a resumed one again, and close it as FINISHED, FAILED (an error) or KILLED (an interruption)."""
    client, experiment_id = open_store(experiment)
    common = {
        "spec_hash": spec.identity,
        "arelu_meta": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "git_commit": _git_commit(),
    }
    tracker: Tracker | None = None
    run_id = resumed_run if resumed_run and run_status(client, resumed_run) else None
    status = RunStatus.FAILED
    try:
        with hold_signals():
            run = mlflow.start_run(run_id, experiment_id, name, tags={**common, **tags})
            tracker = Tracker(client, run.info.run_id, experiment_id, store_uri())
            if DIVERGED in run.data.tags:  # a resumed run starts with a clean name
                client.delete_tag(run.info.run_id, DIVERGED)
            # The summary is no part of the identity: edited meanwhile, it would be another value of a fixed parameter.
            settings = {key: value for key, value in spec.flat().items() if value not in ({}, "") and key != "summary"}
            mlflow.log_params(settings)
            tracker.log_dict(spec.model_dump(mode="json"), "spec.json")
        yield tracker
        status = RunStatus.FINISHED
    except DivergedError as error:
        if tracker is not None:
            tracker.set_tags({DIVERGED: str(error)})
        raise
    except KeyboardInterrupt:
        status = RunStatus.KILLED
        if tracker is not None:
            tracker.discard()
        raise
    finally:
        if tracker is not None:
            with hold_signals():
                try:
                    tracker.flush()
                finally:
                    mlflow.end_run(RunStatus.to_string(status))


@contextmanager
def quiet() -> Iterator[None]:
    """MLflow warns about choices of its own; none of it is the user's doing."""
    logger = logging.getLogger("mlflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


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
