"""What every kind of run has around it: data, device, processes, a folder with the last checkpoint, an MLflow run."""

import hashlib
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from mlflow.utils.mlflow_tags import MLFLOW_RUN_NOTE

from arelu_meta import kernels
from arelu_meta.console import progress
from arelu_meta.data import splits
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.splits import Split
from arelu_meta.errors import InputError
from arelu_meta.kinds.command import repeating_command
from arelu_meta.kinds.execution import Execution
from arelu_meta.kinds.results import Result
from arelu_meta.kinds.sections import Spec
from arelu_meta.reading import following_links, skipping_broken
from arelu_meta.runtime import processes
from arelu_meta.runtime.hardware import (
    bounding_images,
    free_memory,
    keep_freed_memory,
    numerics,
    resolve_device,
    threads,
    usable_cores,
)
from arelu_meta.runtime.waiting import threads_are_given, waiting_policy
from arelu_meta.store.connection import has_finished
from arelu_meta.store.journal import Journal
from arelu_meta.store.run_folder import RunFolder
from arelu_meta.store.settling import settle_runs
from arelu_meta.store.tracker import NoTracker, Tracker
from arelu_meta.store.tracking import track

DEVICE_SHARE = 0.5  # of the free memory of a device, for images; network and feature maps have the rest
ResultT = TypeVar("ResultT", bound=Result)


@dataclass(frozen=True)
class Session:
    """An open run: where it is tracked, what it was resumed from, and how it shows its progress."""

    tracker: Tracker
    checkpoint: dict[str, Any] | None
    bar: progress.Bar
    _folder: RunFolder
    _data: str = ""
    _command: str = ""
    _start: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Time since the run began, with the time up to the checkpoint of a run that was resumed."""
        before = self.checkpoint.get("seconds", 0.0) if self.checkpoint else 0.0
        return float(before) + time.monotonic() - self._start

    def described(self, result: ResultT) -> ResultT:
        """Describe the run where its page is read, by its result and the command that repeats it; gives the result."""
        report = result.report()
        self.tracker.set_tags({MLFLOW_RUN_NOTE: f"```\n{report[:6000]}\n```\n\n{self._command}".rstrip()[:8000]})
        return result

    def save(self, state: Mapping[str, Any]) -> None:
        """Record the metrics so far, then replace the checkpoint.

        In this order none is lost: a run killed between the two measures points again that its journal has already,
        which stay as they were first recorded.
        """
        if processes.rank() == 0:
            self.tracker.flush()
            own = {"seconds": self.seconds, "data": self._data, "threads": torch.get_num_threads()}
            self._folder.save({**state, **own, **self.tracker.position})


@contextmanager
def machine(execution: Execution) -> Iterator[torch.device]:
    """Choose device and threads, and join the other processes where there are any; in the end all is as before."""
    device = resolve_device(execution.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)  # what names no GPU, such as a message between processes, is on this one
    links = following_links(execution.follow_links)
    digits = numerics(
        tf32=execution.tf32, cudnn_benchmark=execution.cudnn_benchmark, deterministic=execution.deterministic
    )
    broken, images = skipping_broken(execution.skip_broken), bounding_images(execution.image_memory)
    group = processes.process_group(device)
    with keep_freed_memory(), threads(execution.threads), digits, links, broken, images, group:
        yield device


def to_device(split: Split, device: torch.device, execution: Execution) -> Split:
    """Move images to the device where they fit there beside the network, or as the execution says.

    Otherwise they stay in host memory or in their file, and batches are copied ahead (`data.rows`).
    """
    parts = {part: getattr(split, part) for part in splits.SUBSETS}
    fits = sum(part.images.nbytes for part in parts.values()) <= DEVICE_SHARE * free_memory(device)
    keep = execution.keep if execution.keep != "auto" else "device" if fits else "cpu"
    if keep == "device":
        return replace(split, **{name: part.to(device) for name, part in parts.items()})
    return replace(split, **{name: part.kept_in_host_memory().to(device) for name, part in parts.items()})


@contextmanager
def open_session(
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
    if processes.rank() == 0 and not execution.offline:
        settle_runs(execution.experiment)  # first: where the store cannot be used, no folder is to be left either
    folder = RunFolder(spec)
    folder.create()
    content = [f"{context}:{images.digest}" for context, images in sorted(datasets.items())]
    digest = hashlib.sha256("\n".join([*content, split.digest]).encode()).hexdigest()  # and of how they are divided
    with folder.locked() if processes.rank() == 0 else nullcontext():
        checkpoint = _checkpoint(folder, execution, digest) if execution.resume else None
        if checkpoint is not None and not threads_are_given(execution.threads):  # another number rounds otherwise
            torch.set_num_threads(min(checkpoint.get("threads", torch.get_num_threads()), usable_cores()))
        if processes.rank() > 0:
            yield Session(NoTracker(), checkpoint, progress.silent, folder)
            return
        tags = _run_tags(spec, execution, tags, datasets, split)
        with track(
            spec,
            experiment=execution.experiment,
            name=name,
            tags=tags,
            resumed=checkpoint,
            offline=execution.offline,
        ) as tracker:
            for context, images in datasets.items():
                tracker.log_dataset(images, context=context)
            tracker.log_split(split)
            yield Session(tracker, checkpoint, bar, folder, digest, tags.get(MLFLOW_RUN_NOTE, ""))


def _checkpoint(folder: RunFolder, execution: Execution, digest: str) -> dict[str, Any] | None:
    """Read the checkpoint to go on from; None where there is none, or its run has finished.

    A finished run starts anew: resumed, it would be tested and recorded a second time.

    Raises:
        InputError: it was trained on other images.
    """
    checkpoint = folder.load()
    finished = processes.rank() == 0 and checkpoint is not None and _has_finished(checkpoint, folder, execution)
    if processes.broadcast(float(finished)) or checkpoint is None:
        return None
    if checkpoint.get("data", digest) != digest:
        raise InputError(
            f"the images are not those that the checkpoint in {folder.path} was trained on; "
            "put them back, or start anew without `resume`"
        )
    return checkpoint


def _run_tags(
    spec: Spec, execution: Execution, tags: Mapping[str, str], datasets: Mapping[str, ImageSet], split: Split
) -> dict[str, str]:
    """All tags of a run: what it is, what it was given, and how it is carried out."""
    settings, command = spec.flat(), repeating_command(spec)
    return {
        **tags,
        **({MLFLOW_RUN_NOTE: f"To repeat it:\n\n```\n{command}\n```"} if command else {}),
        "kernels": str(kernels.GENERATION),
        "split_digest": split.digest,
        "split_sizes": " ".join(f"{part}={len(split.indices[part])}" for part in splits.SUBSETS),
        "held_out": split.held_out,
        "kind": str(settings["kind"]),
        "protocol": str(settings["protocol"]),
        "processes": str(processes.world_size()),
        "waiting": waiting_policy(),
        "data_verified": str(all(images.provenance.verified for images in datasets.values())),
        **execution.run_tags(
            threads=torch.get_num_threads(),
            processes=processes.world_size(),
            precision=str(settings.get("precision", "fp32")),
        ),
        **execution.tags,
    }


def _has_finished(checkpoint: Mapping[str, Any], folder: RunFolder, execution: Execution) -> bool:
    """Tell whether the run of a checkpoint is over: its journal says so where there is one, or the store."""
    journal = folder.path / "journal" / str(checkpoint.get("journal", ""))
    if checkpoint.get("journal") and journal.exists():
        return Journal.open(journal).status == "FINISHED"
    return folder.was_sent(checkpoint) if execution.offline else has_finished(checkpoint["run_id"])
