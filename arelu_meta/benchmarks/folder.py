"""A folder of photographs that is larger than the memory it may take, beside ImageFolder and a DataLoader.

Both read the same JPEG files and hand over the same batches: a random resized crop, mirrored or not, normalised. The
first epoch of ours decodes all files to the cache folder and then passes over them; the second only passes over them.
"""

import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from io import BytesIO
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from arelu_meta import data
from arelu_meta.benchmarks.memory import peak_memory
from arelu_meta.benchmarks.report import BenchReport, Row
from arelu_meta.data.augment import standard
from arelu_meta.data.batches import Batches
from arelu_meta.data.files.image_cache import keep_decoded
from arelu_meta.errors import InputError
from arelu_meta.runtime.hardware import bounding_images, keep_freed_memory

COUNT, CLASSES, SIDE, BATCH = 20_000, 10, 224, 64
DISTINCT = 500  # photographs; the files are copies of these, which cost as much to decode
BOUND = 512  # MiB of decoded images in memory; 20,000 of them are 2,871
WORKERS = 2
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def write_photographs(folder: Path, count: int) -> None:
    """Write JPEG files of soft colours with noise, about 17 kB each, in folders of classes."""
    random, written = np.random.default_rng(0), list[bytes]()
    for _ in range(min(DISTINCT, count)):
        small = Image.fromarray(random.integers(0, 256, (28, 28, 3), dtype=np.uint8))
        soft = np.asarray(small.resize((SIDE, SIDE), Image.Resampling.BICUBIC), dtype=np.float32)
        noisy = (soft + random.normal(0, 8, soft.shape)).clip(0, 255).astype(np.uint8)
        file = BytesIO()
        Image.fromarray(noisy).save(file, "JPEG", quality=85)
        written.append(file.getvalue())
    for label in range(CLASSES):
        (folder / f"class_{label}").mkdir(parents=True)
    for number in range(count):
        (folder / f"class_{number % CLASSES}" / f"{number:06}.jpg").write_bytes(written[number % len(written)])


def bench_folder(_root: str | None = None, count: int = COUNT, repeats: int = 2) -> Iterator[BenchReport]:
    """Measure first and second epochs in turns, each time from a new cache folder and with new workers.

    Raises:
        InputError: fewer images than one for each class.
    """
    if count < CLASSES:
        raise InputError(f"`count` is {count}; the folder has {CLASSES} classes, so give as many images at least")
    bound = min(BOUND, max(1, count * 3 * SIDE**2 >> 22))  # less than the images take, however few they are
    ours, theirs, peaks = list[tuple[float, float]](), list[tuple[float, float]](), list[int]()
    with tempfile.TemporaryDirectory(prefix="bench-folder-") as temporary:
        photographs = Path(temporary) / "photographs"
        write_photographs(photographs, count)
        for turn in range(repeats):
            with get_context("spawn").Pool(1) as pool:
                arguments = (str(photographs), str(Path(temporary) / f"cache{turn}"), bound)
                *seconds, peak = pool.apply(_pass_over_cache, arguments)
            ours.append((seconds[0], seconds[1]))
            peaks.append(peak)
            theirs.append(_pass_with_workers(photographs, count))
    for epoch, name in enumerate(("first", "second")):
        times, others = ([each[epoch] for each in side] for side in (ours, theirs))
        note = f"{count / min(times):,.0f} images/s, {max(peaks) / 2**20:.0f} MB above the start, bound {bound} MiB"
        rows = [
            Row("arelu_meta", min(times), 1.0, note),
            Row(
                f"ImageFolder, DataLoader({WORKERS} workers)",
                min(others),
                min(others) / min(times),
                f"{count / min(others):,.0f} images/s, minimum of {repeats}",
            ),
        ]
        yield BenchReport(f"{name} epoch over {count:,} JPEG files of {SIDE}x{SIDE}: decode, crop, normalise", rows)


def _pass_over_cache(folder: str, cache: str, mebibytes: int) -> tuple[float, float, int]:
    """Seconds of the first and the second epoch, and bytes that they add to this process at its peak."""
    os.environ["ARELU_META_CACHE"] = cache
    standard(torch.zeros(1, 3, 8, 8, dtype=torch.uint8), torch.Generator())  # libraries are loaded
    before = peak_memory(restart=True)
    with keep_freed_memory(), bounding_images(mebibytes):
        start = time.perf_counter()
        images = keep_decoded({"all": data.load(folder)})["all"]
        images = replace(images, mean=MEAN, std=STD)
        batches = Batches(images, BATCH, torch.Generator().manual_seed(0), augment=standard)
        first = _seconds_of(batches, len(images), start)
        second = _seconds_of(batches, len(images), time.perf_counter())
    return first, second, peak_memory() - before


def _pass_with_workers(folder: Path, count: int) -> tuple[float, float]:
    """Seconds of the first and the second epoch of a DataLoader, whose workers stay in between."""
    steps = [v2.PILToTensor(), v2.RandomResizedCrop(SIDE, antialias=True), v2.RandomHorizontalFlip()]
    transform = v2.Compose([*steps, v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])
    start = time.perf_counter()
    photographs = ImageFolder(str(folder), transform)
    loader = DataLoader(photographs, BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True)
    return _seconds_of(loader, count, start), _seconds_of(loader, count, time.perf_counter())


def _seconds_of(batches: Iterable[Sequence[Tensor]], count: int, start: float) -> float:
    """Pass over batches, make sure that each image was there, and give the seconds since the start."""
    passed = 0
    for x, y in batches:
        if x.dtype != torch.float32 or tuple(x.shape[1:]) != (3, SIDE, SIDE) or len(x) != len(y):
            raise InputError(f"the two do not do the same work: a batch is {x.dtype} {tuple(x.shape)}")
        passed += len(x)
    if passed != count:
        raise InputError(f"the two do not do the same work: {passed} images of {count}")
    return time.perf_counter() - start
