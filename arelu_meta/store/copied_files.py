"""Artifacts, copied from one MLflow store to another: those that are missing there, or have another size."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from mlflow import MlflowClient
from mlflow.store.artifact.artifact_repo import ArtifactRepository
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

Sizes = dict[str, int]


def artifacts_at(client: MlflowClient, uri: str) -> ArtifactRepository:
    """Give the artifacts at the address that a run or a model of a store names."""
    return get_artifact_repository(uri, tracking_uri=client.tracking_uri)


def file_sizes(artifacts: ArtifactRepository) -> Sizes:
    """Give the sizes of all files, by path."""
    found: Sizes = {}
    folders: list[str | None] = [None]
    while folders:
        for entry in artifacts.list_artifacts(folders.pop()) or ():
            if entry.is_dir:
                folders.append(entry.path)
            else:
                found[entry.path] = int(entry.file_size or 0)
    return found


def copy_files(
    source: ArtifactRepository,
    target: ArtifactRepository,
    place: Path,
    *,
    changed: Mapping[str, Callable[[str], str]] | None = None,
) -> Sizes:
    """Copy the files that the target does not have; one that was not written to its end has another size.

    Args:
        source: what is copied
        target: what takes it
        place: an empty folder, for the time of the copy
        changed: what to make of the text of some files, by path

    Returns:
        The sizes of the files that were copied.
    """
    changed = changed or {}
    there = file_sizes(target)
    wanted = [path for path, size in file_sizes(source).items() if path in changed or there.get(path) != size]
    copied: Sizes = {}
    for path in wanted:
        file = place / path
        file.parent.mkdir(parents=True, exist_ok=True)
        source.download_artifacts(path, str(place))
        if path in changed:
            file.write_text(changed[path](file.read_text(encoding="utf-8")), encoding="utf-8")
        if there.get(path) == file.stat().st_size:
            file.unlink()
        else:
            copied[path] = file.stat().st_size
    if copied:
        target.log_artifacts(str(place))
    shutil.rmtree(place, ignore_errors=True)
    return copied
