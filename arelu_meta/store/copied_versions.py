"""Registered models, copied from one MLflow store to another: versions of models that are there, and aliases."""

from collections.abc import Callable, Iterator
from typing import Any

from mlflow import MlflowClient
from mlflow.entities.model_registry import ModelVersion, RegisteredModel

from arelu_meta.store.addresses import global_tracking_uri
from arelu_meta.store.copied_models import ORIGIN

PAGE = 100


def _all(search: Callable[..., Any], condition: str | None = None) -> Iterator[Any]:
    """What a search of the registry finds, page by page."""
    token: str | None = ""
    while token is not None:
        page = search(filter_string=condition, max_results=PAGE, page_token=token or None)
        yield from page
        token = page.token or None


def _origin(version: ModelVersion) -> str:
    """What tells a version from all others, in whatever store."""
    return str(version.tags.get(ORIGIN, f"{version.name}/{version.version}/{version.creation_timestamp}"))


def _model_id(version: ModelVersion) -> str:
    """The logged model that a version is of, which stores in a database keep in its source alone."""
    return str(version.model_id or (version.source or "").removeprefix("models:/"))


class VersionCopies:
    """Registered models of one store, and their copies in another.

    Attributes:
        made: versions that were copied
        left: a line for each version or alias that was not
    """

    def __init__(self, source: MlflowClient, target: MlflowClient) -> None:
        self.source, self.target = source, target
        self.made = 0
        self.left: list[str] = []

    def copy_all(self, models: dict[str, str], runs: dict[str, str], *, whole: bool) -> None:
        """Copy versions whose model was copied, with their aliases.

        Args:
            models: id of each model of the source, and of its copy
            runs: id of each run of the source, and of its copy
            whole: the whole store is copied: say which versions are left
        """
        known = {one.name: one for one in _all(self.target.search_registered_models)}
        for registered in _all(self.source.search_registered_models):
            versions = {str(one.version): one for one in self._versions(self.source, registered.name)}
            copied = [one for one in versions.values() if _model_id(one) in models]
            self.left += [
                f"version {one.version} of {registered.name}: it is no logged model of an experiment that is copied"
                for one in versions.values()
                if whole and _model_id(one) not in models
            ]
            if copied:
                self._copy(registered, known.get(registered.name), copied, models, runs)

    def _versions(self, client: MlflowClient, name: str) -> list[ModelVersion]:
        """All versions of a name, the first first; a search gives no aliases, so they are not looked for here."""
        quoted = name.replace("'", "''")
        return sorted(_all(client.search_model_versions, f"name = '{quoted}'"), key=lambda one: int(one.version))

    def _copy(
        self,
        registered: RegisteredModel,
        there: RegisteredModel | None,
        versions: list[ModelVersion],
        models: dict[str, str],
        runs: dict[str, str],
    ) -> None:
        name = registered.name
        if there is None:
            there = self.target.create_registered_model(name, registered.tags, registered.description)
        known = {_origin(one): one for one in self._versions(self.target, name)}
        numbers: dict[str, str] = {}
        for version in versions:
            copy = known.get(_origin(version))
            if copy is None:
                with global_tracking_uri(self.target.tracking_uri):
                    copy = self.target.create_model_version(
                        name,
                        f"models:/{models[_model_id(version)]}",
                        runs.get(version.run_id or ""),
                        {**version.tags, ORIGIN: _origin(version)},
                        description=version.description,
                        model_id=models[_model_id(version)],
                    )
                known[_origin(version)] = copy
                self.made += 1
            numbers[str(version.version)] = str(copy.version)
        copies = {str(one.version) for one in known.values() if ORIGIN in one.tags}
        self._point_aliases(registered, there, numbers, copies)

    def _point_aliases(
        self, registered: RegisteredModel, there: RegisteredModel, numbers: dict[str, str], copies: set[str]
    ) -> None:
        """Have aliases point to the copies; one that points to a version made there is left."""
        for alias, version in (registered.aliases or {}).items():
            wanted, now = numbers.get(str(version)), (there.aliases or {}).get(alias)
            if wanted is None or (now is not None and str(now) == wanted):
                continue
            if now is not None and str(now) not in copies:
                self.left.append(
                    f"alias {alias} of {registered.name}: it points to version {now}, which was made there"
                )
            else:
                self.target.set_registered_model_alias(registered.name, alias, wanted)
