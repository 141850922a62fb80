"""What every kind of run has around it: a device, processes, a folder with the last checkpoint, a run in MLflow."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from arelu_meta.console import progress
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.splits import Split
from arelu_meta.kinds.execution import Execution
from arelu_meta.kinds.sections import Spec
from arelu_meta.runtime import processes
from arelu_meta.runtime.hardware import keep_freed_memory, resolve_device, threads
from arelu_meta.store.connection import has_finished, open_store
from arelu_meta.store.run_folder import RunFolder
from arelu_meta.store.tracking import NoTracker, Tracker, track


@dataclass(frozen=True)
class Session:
    """An open run: where it is tracked, what it was resumed from, and how it shows its progress."""

    tracker: Tracker
    checkpoint: dict[str, Any] | None
    bar: progress.Bar
    _folder: RunFolder

    def save(self, state: Mapping[str, Any]) -> None:
        """Send the metrics so far and replace the checkpoint; both at once, so that a resumed run repeats no metric."""
        if processes.rank() == 0:
            self.tracker.flush()
            self._folder.save({**state, "run_id": self.tracker.run_id})


@contextmanager
def machine(execution: Execution) -> Iterator[torch.device]:
    """Choose device and threads, settle the allocator, and join the other processes where there are any."""
    device = resolve_device(execution.device)
    with keep_freed_memory(), threads(execution.threads), processes.process_group(device):
        yield device


@contextmanager
def session(
    spec: Spec,
    execution: Execution,
    bar: progress.Bar,
    *,
    name: str,
    tags: Mapping[str, str],
    datasets: Mapping[str, ImageSet],
    split: Split,
) -> Iterator[Session]:
    """Open the run's folder and its MLflow run; to be entered when all that wrong input can break has been built."""
    if processes.rank() == 0:
        open_store(execution.experiment)  # first: where it cannot be used, no folder is to be left either
    folder = RunFolder(spec)
    folder.create()
    checkpoint = _unfinished(folder.load()) if execution.resume else None
    if processes.rank() > 0:
        yield Session(NoTracker(), checkpoint, progress.silent, folder)
        return
    tags = {
        **tags,
        "split_digest": split.digest,
        "held_out": split.held_out,
        "kind": str(spec.flat()["kind"]),
        "protocol": str(spec.flat()["protocol"]),
        "processes": str(processes.world_size()),
        "data_verified": str(all(images.provenance.verified for images in datasets.values())),
        **execution.tags,
    }
    resumed = checkpoint["run_id"] if checkpoint else None
    with track(spec, experiment=execution.experiment, name=name, tags=tags, resumed_run=resumed) as tracker:
        for context, images in datasets.items():
            tracker.log_dataset(images, context=context)
        tracker.log_split(split)
        yield Session(tracker, checkpoint, bar, folder)


def _unfinished(checkpoint: dict[str, Any] | None) -> dict[str, Any] | None:
    """Start anew where the run has finished: resumed, it would be tested and recorded a second time."""
    over = processes.rank() == 0 and checkpoint is not None and has_finished(checkpoint["run_id"])
    return None if processes.of_first(float(over)) else checkpoint
