"""What every kind of run has around it: data, device, processes, a folder with the last checkpoint, an MLflow run."""

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

import torch
from mlflow.utils.mlflow_tags import MLFLOW_RUN_NOTE

from arelu_meta import data, kernels
from arelu_meta.console import progress
from arelu_meta.data import splits
from arelu_meta.data.files.image_cache import keep_decoded
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.inputs import Inputs, fit_images, inputs_of
from arelu_meta.data.readers.omniglot import omniglot_standard
from arelu_meta.data.splits import Split
from arelu_meta.errors import InputError
from arelu_meta.kinds.command import repeating_command
from arelu_meta.kinds.execution import Execution
from arelu_meta.kinds.few_shot.spec import EpisodeInputSection
from arelu_meta.kinds.results import Result
from arelu_meta.kinds.sections import DataSection, ImageShapeSection, InputSection, Spec
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
    digest = _data_digest(datasets, split)
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


def _data_digest(datasets: Mapping[str, ImageSet], split: Split) -> str:
    """Digest of all images of a run and of how they are divided."""
    content = [f"{context}:{images.digest}" for context, images in sorted(datasets.items())]
    return hashlib.sha256("\n".join([*content, split.digest]).encode()).hexdigest()


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


def load_split(
    section: DataSection,
    *,
    root: str | None = None,
    shape: InputSection | EpisodeInputSection | None = None,
    train_on_validation: bool = False,
    prepare: Callable[[ImageSet], ImageSet] | None = None,
    real_targets: bool = False,
    bar: progress.Bar = progress.silent,
    side: int = 32,
) -> Split:
    """Read the images, bring them to a shape, and divide them as the spec says; `prepare` resizes them where given.

    `side` is what files of different sizes are resampled to where the spec names no size.
    """
    options = reader_options(section, 0 if shape is None else shape.image_size, side)
    images = data.load(section.dataset, root=root, **options)
    check_classes(images)
    if images.targets is not None and not real_targets:
        remedy = "python -m arelu_meta.maml --task sinusoid is a regression"
        raise InputError(f"{images.name} has real targets, and this kind of run has no use for them; {remedy}")
    if shape is not None:
        size = 0 if prepare else shape.image_size
        images = fit_images(images, channels=shape.channels, image_size=size, resize=shape.resize)
        images = keep_decoded({"all": images}, bar)["all"]
    if prepare is not None:
        images = prepare(images)
    split = divide(images, section)
    if train_on_validation:
        split = splits.joined(images, split)
    if section.limit_train is not None or section.limit_test is not None:
        limits = {"train": section.limit_train, "test": section.limit_test}
        split = splits.limit(images, split, **limits, seed=section.split_seed)
    if len(split.test) < 2:
        raise InputError(f"{len(split.test)} test image of {section.dataset} gives no interval; at least 2 are needed")
    return split if shape is None else with_pixels(split, shape.normalise)


def check_classes(images: ImageSet) -> None:
    """Refuse a set of one class, whose images have no other answer."""
    if images.targets is None and images.masks is None and len(images.class_names) < 2:
        raise InputError(
            f"{images.name} has one class, {images.class_names[0]!r}; two are needed at least, each in its own folder"
        )


def reader_options(section: DataSection, image_size: int, side: int = 32) -> dict[str, Any]:
    """Options of the set's reader: the size at which torchvision's sets, and files of different sizes, are read."""
    options: dict[str, Any] = {}
    if image_size and section.dataset.startswith(data.TORCHVISION):
        options["image_size"] = image_size
    return {**options, **folder_options(section.dataset, image_size or side), **section.dataset_options}


def folder_options(dataset: str, side: int) -> dict[str, Any]:
    """Options of the reader where a set is a folder: what its files become where they differ in size."""
    is_folder = data.is_path(dataset) and os.path.isdir(os.path.expanduser(dataset))
    return {"mixed_size": side} if is_folder else {}


def inputs_of_run(
    images: ImageSet, shape: ImageShapeSection, section: DataSection | None = None, crop_pct: float = 1.0
) -> Inputs:
    """What a network takes that was trained on these images, and how a run of these sections makes them of files."""
    read_size = images.provenance.read_size
    if section is not None and section.dataset.startswith(data.TORCHVISION):
        read_size = int(reader_options(section, shape.image_size).get("image_size", 0))
    return replace(inputs_of(images, resize=shape.resize, read_size=read_size), crop_pct=crop_pct)


def divide(images: ImageSet, section: DataSection) -> Split:
    """Divide images as the spec says."""
    method = section.split
    if method == "auto":
        method = "published" if {"train", "test"} <= set(images.subsets) else "by_image"
    if method == "by_image":
        return splits.by_image(images, validation=section.validation, test=section.test, seed=section.split_seed)
    if method == "by_class":
        return splits.by_class(
            images,
            validation_classes=section.validation_classes,
            test_classes=section.test_classes,
            seed=section.split_seed,
        )
    if method == "by_group":
        return splits.by_group(images, validation=section.validation, test=section.test, seed=section.split_seed)
    if method == "published":
        return splits.published(images, validation=section.validation, seed=section.split_seed)
    return omniglot_standard(images)


def with_pixels(split: Split, normalise: bool | Literal["standardise", "weights", "unit", "none"]) -> Split:
    """Give pixels as networks are to see them: standardised (also True), in [0, 1] (also False), or 0 to 255."""
    if normalise in (True, "standardise", "weights"):  # the last are put in place with the network
        return split
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    if normalise == "none" and not split.train.is_vectors:  # (x / 255 - 0) / (1 / 255) = x
        mean, std = (0.0,) * split.train.channels, (1 / 255,) * split.train.channels
    return replace(split, **{part: replace(getattr(split, part), mean=mean, std=std) for part in splits.SUBSETS})
