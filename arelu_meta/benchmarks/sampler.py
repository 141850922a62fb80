"""Drawing 32 episodes of 5-way 1-shot, with their pixels: ours beside learn2learn's Taskset on the same images."""

import gc
import os
from pathlib import Path

import torch

from arelu_meta.benchmarks.images import mnist_or_digits
from arelu_meta.benchmarks.report import BenchReport, Row
from arelu_meta.benchmarks.timing import interleaved
from arelu_meta.data.episodes import EpisodeSampler
from arelu_meta.data.learn2learn_bridge import taskset
from arelu_meta.errors import InputError

TASKS, WAYS, SHOTS, QUERIES = 32, 5, 1, 1


def bench_sampler(root: str | None = None) -> BenchReport:
    """Compare on MNIST where it is at hand, on the bundled digits otherwise."""
    random = torch.Generator().manual_seed(0)
    mnist_or_digits(root)  # once for the libraries that reading it loads, which are not the images' memory
    before = _resident()
    split = mnist_or_digits(root)
    train = split.train
    sampler = EpisodeSampler(train, ways=WAYS, shots=SHOTS, queries=QUERIES)
    sampler.sample(TASKS, random)
    held, at_rest = _resident() - before, sum(part.images.nbytes for part in (train, split.validation, split.test))
    theirs = taskset(train, ways=WAYS, images_per_class=SHOTS + QUERIES)
    _check_equal_work(sampler, theirs.sample()[0])
    ours_timing = interleaved({"ours": lambda: sampler.sample(TASKS, random)}, repeats=7, calls=50)
    turns = interleaved(
        {"ours": lambda: sampler.sample(TASKS, random), "learn2learn": lambda: [theirs.sample() for _ in range(TASKS)]},
        repeats=5,
    )
    ours = min(ours_timing[0].minimum, turns[0].minimum)
    peer = turns[1].minimum
    rows = [
        Row("arelu_meta", ours, 1.0, f"holds {held / 2**20:.0f} MB for {at_rest / 2**20:.0f} MB of images"),
        Row("learn2learn Taskset", peer, peer / ours, "one image at a time"),
    ]
    return BenchReport(f"{TASKS} episodes, {WAYS}-way {SHOTS}-shot, {QUERIES} query, {train.name}", rows)


def _check_equal_work(sampler: EpisodeSampler, task: torch.Tensor) -> None:
    """Both must hand over as many pixels, normalised alike."""
    ours = sampler.sample(1, torch.Generator().manual_seed(0))
    pixels = ours.support_x.numel() + ours.query_x.numel()
    if task.numel() != pixels or task.dtype != ours.support_x.dtype:
        raise InputError(f"the two do not do the same work: {task.numel()} and {pixels} numbers per episode")


def _resident() -> int:
    """Memory this process holds now, in bytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
