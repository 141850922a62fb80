"""Logged models, copied from one MLflow store to another with files, parameters, tags and links."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import LoggedModel, LoggedModelStatus, Metric

from arelu_meta.store.copied_files import Sizes, artifacts_at, copy_files

ORIGIN = "sync.origin"
"""Tag of a copied run, model or version: the id of the first of them, in the store where it was made."""
DESCRIPTION = "MLmodel"  # the file of a model that names it
ENDED = (LoggedModelStatus.READY, LoggedModelStatus.FAILED)
PAGE = 100  # models in a request
Point = tuple[str, float | str, int, int]


def model_pages(client: MlflowClient, experiment_ids: Sequence[str], condition: str = "") -> Iterator[LoggedModel]:
    """Models of experiments, read page by page."""
    token = None
    while experiment_ids:
        page = client.search_logged_models(list(experiment_ids), condition or None, max_results=PAGE, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def origin_of(model: LoggedModel) -> str:
    """The id that the model has in the store where it was made."""
    return str((model.tags or {}).get(ORIGIN, model.model_id))


def point(metric: Metric) -> Point:
    """What makes a point of a metric one and the same; a value that is no number equals itself."""
    return metric.key, metric.value if metric.value == metric.value else "nan", metric.timestamp, metric.step


class ModelCopies:
    """The models of one store, and their copies in another.

    Attributes:
        copies: the copy of each model, or the model itself where it was made there, by `origin_of`
        made: models that were copied
    """

    def __init__(self, source: MlflowClient, target: MlflowClient, place: Path) -> None:
        self.source, self.target, self._place = source, target, place
        self.copies: dict[str, LoggedModel] = {}
        self.made = 0

    def find(self, experiment_ids: Sequence[str]) -> None:
        """Look for copies, and for models that were made there."""
        self.copies = {origin_of(model): model for model in model_pages(self.target, experiment_ids)}

    def id_of(self, model: LoggedModel) -> str | None:
        """The id of its copy; None where there is none."""
        copy = self.copies.get(origin_of(model))
        return None if copy is None else str(copy.model_id)

    def copy(self, model: LoggedModel, experiment_id: str, run_id: str | None) -> Sizes:
        """Copy a model, or what its copy does not have yet.

        Args:
            model: of the source
            experiment_id: the experiment of the target that takes it
            run_id: the copy of the run that made it

        Returns:
            The sizes of the files that were copied.
        """
        copy = self.copies.get(origin_of(model))
        if copy is not None and ORIGIN not in (copy.tags or {}):
            return {}  # it was made there
        tags = {**(model.tags or {}), ORIGIN: origin_of(model)}
        if copy is None:
            copy = self.target.create_logged_model(
                experiment_id, model.name, run_id, tags, model.params or {}, model.model_type
            )
            self.copies[origin_of(model)] = copy
        elif changed := {key: value for key, value in tags.items() if (copy.tags or {}).get(key) != value}:
            self.target.set_logged_model_tags(copy.model_id, changed)
        copied: Sizes = {}
        if copy.status not in ENDED:
            copied = self._copy_files(model, copy)
            if model.status in ENDED:
                self.copies[origin_of(model)] = self.target.finalize_logged_model(copy.model_id, model.status)
            self.made += 1
        return copied

    def _copy_files(self, model: LoggedModel, copy: LoggedModel) -> Sizes:
        """Copy the files; the one that describes the model names the copy and its run."""

        def renamed(text: str) -> str:
            text = text.replace(model.artifact_location, copy.artifact_location)
            text = text.replace(model.model_id, copy.model_id)
            if model.source_run_id and copy.source_run_id:
                text = text.replace(model.source_run_id, copy.source_run_id)
            return text

        return copy_files(
            artifacts_at(self.source, model.artifact_location),
            artifacts_at(self.target, copy.artifact_location),
            self._place / copy.model_id,
            changed={DESCRIPTION: renamed},
        )

    def missing_links(self, models: Sequence[LoggedModel], run_id: str, copied_run_id: str) -> list[Metric]:
        """Metrics of a run that belong to models, which the copies of the models do not have yet."""
        missing = []
        for model in models:
            linked = [metric for metric in model.metrics or () if metric.run_id == run_id]
            copy = self.copies.get(origin_of(model))
            if not linked or copy is None or ORIGIN not in (copy.tags or {}):
                continue
            there = {point(metric) for metric in self.target.get_logged_model(copy.model_id).metrics or ()}
            missing += [
                Metric(
                    *(metric.key, metric.value, metric.timestamp, metric.step),
                    model_id=copy.model_id,
                    dataset_name=metric.dataset_name,
                    dataset_digest=metric.dataset_digest,
                    run_id=copied_run_id,
                )
                for metric in linked
                if point(metric) not in there
            ]
        return missing
