"""The record of one run: what it logs goes to its journal, and from there to the MLflow store."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import torch
from mlflow.data.code_dataset_source import CodeDatasetSource
from mlflow.data.meta_dataset import MetaDataset
from mlflow.tracking.context.registry import resolve_tags

from arelu_meta.console.progress import say
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.inputs import Inputs
from arelu_meta.data.splits import Split
from arelu_meta.store import models
from arelu_meta.store.connection import is_server
from arelu_meta.store.graphs import KeptGraph
from arelu_meta.store.grid_images import FOLDER, TAG, grid_images
from arelu_meta.store.journal import Journal
from arelu_meta.store.sending import FLUSH, Sender
from arelu_meta.store.sources import store_uri

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PATIENCE = 5.0  # seconds that a run waits at its end for a store that takes nothing
KILLED_PATIENCE, KILLED_PATIENCE_SERVER = 0.6, 0.3  # the same for one that was interrupted


class Tracker:
    """One run, recorded in its journal, from which it goes to the store; whatever run MLflow itself has active.

    Metrics are written in batches: one by one they would cost more than training steps.

    Attributes:
        experiment_id: the MLflow experiment; empty where the store was not asked
        uri: address of the store
    """

    def __init__(
        self, journal: Journal, sender: Sender | None, *, experiment_id: str, repeated: set[tuple[str, int]]
    ) -> None:
        self.experiment_id, self.uri = experiment_id, store_uri()
        self._journal, self._sender = journal, sender
        self._repeated = repeated  # points after the checkpoint that the run was resumed from: the journal has them
        self._pending: list[tuple[str, float, int, int]] = []

    @property
    def run_id(self) -> str:
        """The run in the store; the id of the journal while the store has none."""
        return self._journal.run_id or self._journal.id

    @property
    def journal_id(self) -> str:
        """The id of the journal, which is there before the store has the run."""
        return self._journal.id

    @property
    def position(self) -> dict[str, Any]:
        """What a checkpoint has to know to go on with this record."""
        return {"run_id": self._journal.run_id, "journal": self._journal.id, "journal_entries": self._journal.count}

    def log_metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        """Collect metric values of a step; they are written by `flush`.

        What a resumed run measures again stays as it was first recorded: a speed would be another, and there twice.
        """
        now = int(time.time() * 1000)
        for name, value in values.items():
            if (name, step) in self._repeated:
                self._repeated.remove((name, step))
            else:
                self._pending.append((name, float(value), now, step))

    def flush(self) -> None:
        """Write the metrics collected so far."""
        if self._pending:
            points, self._pending = self._pending, []
            self._write("metrics", points=points)

    def set_tags(self, values: Mapping[str, str]) -> None:
        """Set tags."""
        self._write("tags", values={name: str(value) for name, value in values.items()})

    def set_experiment_tags(self, values: Mapping[str, str]) -> None:
        """Set tags of the experiment, such as a saved view; where the store refuses them, the run does without."""
        self._write("experiment_tags", values=dict(values))

    def log_child(self, name: str, *, metrics: Mapping[str, float], tags: Mapping[str, str]) -> None:
        """Store a finished run below this one, unless it is there already: a resumed run records again."""
        self._write("child", name=name, metrics=dict(metrics), tags=resolve_tags(dict(tags)))

    def log_params(self, values: Mapping[str, Any]) -> None:
        """Log parameters, which stay as they are."""
        self._write("params", values={name: str(value) for name, value in values.items()})

    def log_dataset(self, images: ImageSet, context: str) -> None:
        """Log a data set as an input of the run, by name and content digest."""
        source = CodeDatasetSource(
            tags={"source": images.provenance.source, "verified": str(images.provenance.verified)}
        )
        described = MetaDataset(  # type: ignore[abstract]  # `profile` is optional in fact
            source, name=images.name, digest=images.digest[:32]
        )
        values = {key: value for key, value in described.to_dict().items() if value is not None}
        self._write("dataset", dataset=values, context=context)

    def log_split(self, split: Split) -> None:
        """Store which images train, validate and test, as `split.json`."""
        with self._artifact("split.json") as path:
            split.write(path)

    def log_figure(self, figure: "Figure", path: str, step: int | None = None) -> None:
        """Store a figure as an artifact, a PNG; with a step also for the image grid of the UI, named like its file."""
        with self._artifact(path) as file:
            figure.savefig(file)
            drawn = file.read_bytes()  # not drawn again for the grid: drawing takes longer than all the rest of this
        if step is not None:
            for name, image in grid_images(drawn, PurePosixPath(path).stem, step):
                with self._artifact(f"{FOLDER}/{name}") as file:
                    image.save(file)
            self.set_tags(TAG)

    def log_dict(self, content: dict[str, Any], path: str) -> None:
        """Store plain values as a JSON artifact."""
        with self._artifact(path) as file:
            file.write_text(json.dumps(content, indent=2), encoding="utf-8")

    def log_text(self, content: str, path: str) -> None:
        """Store a text artifact."""
        with self._artifact(path) as file:
            file.write_text(content, encoding="utf-8")

    def log_network(
        self,
        network: torch.nn.Module,
        images: ImageSet,
        inputs: Inputs | None = None,
        write_more: Callable[[Path], None] | None = None,
        kept: KeptGraph | None = None,
    ) -> None:
        """Store a network as the run's model; `images` are what it takes, two at least, `inputs` how others are fitted.

        Without `inputs`, images of another size are resampled. `write_more` is given the folder of the model's files.
        `kept` has the traced graph of a network like it, or keeps it.
        """
        folder = self._journal.file("network")
        models.save_network(folder, network, images, inputs, write_more, kept)
        self._write("model", folder=folder.relative_to(self._journal.path).as_posix())

    def log_few_shot_model(self, folder: Path) -> None:
        """Store the folder that `FewShotModel.save` wrote as the run's model."""
        saved = self._journal.file("few_shot")
        models.save_few_shot_model(saved, folder)
        self._write("model", folder=saved.relative_to(self._journal.path).as_posix())

    def end(self, status: str) -> None:
        """Write how the run ended, and wait for the store to take it, with all of the run.

        A store that does not answer is not waited for: the journal is kept, to be sent later, which a line says.
        """
        if status == "KILLED":
            self._pending.clear()  # a resumed run measures them again
        complete = False
        try:
            self.flush()
            self._write("end", status=status)
        finally:
            try:
                if self._sender is not None:
                    killed = KILLED_PATIENCE_SERVER if is_server() else KILLED_PATIENCE
                    at_once = status == "KILLED"
                    complete = self._sender.leave(killed if at_once else PATIENCE, at_once=at_once)
            except KeyboardInterrupt as interruption:  # the run itself is over: nobody has to wait for its record
                if type(interruption) is not KeyboardInterrupt:
                    raise
            finally:
                if complete and status == "FINISHED":
                    self._journal.remove()
                self._journal.release()
            if not complete:
                say(f"run {self.run_id} is not yet in the MLflow store; {FLUSH} sends it from {self._journal.path}")

    @contextmanager
    def _artifact(self, path: str) -> Iterator[Path]:
        """Give a file to write; then it is an artifact of that path."""
        folder, _, name = path.rpartition("/")
        file = self._journal.file(name)
        yield file
        self._write("artifact", file=file.relative_to(self._journal.path).as_posix(), folder=folder)

    def _write(self, kind: str, **content: Any) -> None:
        try:
            self._journal.append(kind, **content)
        finally:
            if self._sender is not None:
                self._sender.wake()


class NoTracker(Tracker):
    """Logs nothing: for all processes of a distributed run but the first."""

    run_id = journal_id = ""
    position: Mapping[str, Any] = {}  # type: ignore[assignment]

    def __init__(self) -> None:
        self.experiment_id = self.uri = ""

    def _ignore(self, *_args: Any, **_kwargs: Any) -> None:
        """Do nothing."""

    log_metrics = flush = set_tags = set_experiment_tags = log_child = log_params = end = _ignore
    log_dataset = log_split = log_figure = log_dict = log_text = log_network = log_few_shot_model = _ignore
