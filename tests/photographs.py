"""Folders of photographs as people have them: of several sizes and proportions."""

from pathlib import Path

import numpy as np
from PIL import Image

SIZES = ((40, 60), (61, 40), (33, 50), (44, 44), (36, 70))  # height, width


def write_photographs(
    folder: Path, *, classes: int = 2, count: int = 10, sizes: tuple[tuple[int, int], ...] = SIZES
) -> list[Path]:
    """Write so many of each class, of these sizes in turn; gives the files in the order in which folders are read."""
    random, files = np.random.default_rng(0), []
    for label in range(classes):
        (folder / f"class{label}").mkdir(parents=True)
        for number in range(count):
            pixels = random.integers(0, 256, (*sizes[number % len(sizes)], 3), dtype=np.uint8)
            files.append(folder / f"class{label}" / f"{number:02}.png")
            Image.fromarray(pixels).save(files[-1])
    return files
