"""`sinusoid`: the regression problem that MAML was first shown on (Finn et al. 2017, arXiv 1703.03400, section 5.1).

A class is a function y = a sin(x - p) with amplitude a uniform in [0.1, 5] and phase p uniform in [0, pi]; an image of
it is one point, x uniform in [-5, 5], and its target is y. Functions of the three parts differ.

The publication draws functions without end; here they are drawn once, so that runs share their episodes and can be
compared pair by pair: 2,000 train, 200 validate and 1,000 test, of 50 points each, of which an episode takes some.
"""

import itertools
import math

import torch

from arelu_meta.data.imageset import ImageSet, Provenance
from arelu_meta.seeding import generator

FUNCTIONS = {"train": 2000, "validation": 200, "test": 1000}
POINTS = 50
AMPLITUDES, PHASES, RANGE = (0.1, 5.0), (0.0, math.pi), (-5.0, 5.0)


def load_sinusoid() -> ImageSet:
    """Draw 3,200 sine waves of 50 points each, 1x1x1, with a real target for each point."""
    random, count = generator(0, "sinusoid"), sum(FUNCTIONS.values())

    def uniform(ends: tuple[float, float], *shape: int) -> torch.Tensor:
        low, high = ends
        return low + (high - low) * torch.rand(shape, generator=random, dtype=torch.float64)

    amplitudes, phases = uniform(AMPLITUDES, count, 1), uniform(PHASES, count, 1)
    x = uniform(RANGE, count, POINTS)
    y = amplitudes * torch.sin(x - phases)
    ends = [0, *itertools.accumulate(POINTS * functions for functions in FUNCTIONS.values())]
    names = (f"{a:.6f} sin(x - {p:.6f})" for a, p in zip(amplitudes[:, 0], phases[:, 0], strict=True))
    return ImageSet(
        name="sinusoid",
        images=x.float().view(-1, 1, 1, 1),
        labels=torch.arange(count).repeat_interleave(POINTS),
        class_names=tuple(names),
        subsets={part: torch.arange(ends[i], ends[i + 1]) for i, part in enumerate(FUNCTIONS)},
        provenance=Provenance(source="drawn (Finn et al. 2017, arXiv 1703.03400, section 5.1)", verified=True),
        targets=y.float().view(-1, 1),
    )
