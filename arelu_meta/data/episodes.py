"""N-way K-shot episodes by index arithmetic: no Python work per image, whole batches of episodes at once."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import InputError

Size = int | tuple[int, int]  # a number, or the lowest and the highest of a range


@dataclass(frozen=True, eq=False)
class Episode:
    """One N-way K-shot problem, or a batch of them with a leading task axis.

    Shapes of a batch: `support_x` (tasks, ways*shots, C, H, W), `support_y` (tasks, ways*shots), the query alike.
    Labels are 0..ways-1 in an order drawn anew for each episode, so they say nothing about the class outside of it.
    """

    support_x: Tensor
    support_y: Tensor
    query_x: Tensor
    query_y: Tensor

    def __len__(self) -> int:
        return len(self.support_x)

    def __getitem__(self, index: int | slice) -> "Episode":
        return Episode(self.support_x[index], self.support_y[index], self.query_x[index], self.query_y[index])

    def __iter__(self) -> Iterator["Episode"]:
        return (self[task] for task in range(len(self)))

    def chunks(self, size: int) -> Iterator["Episode"]:
        """Cut a batch into batches of at most `size` tasks."""
        return (self[start : start + size] for start in range(0, len(self), size))

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The four halves in order, as `torch.vmap` wants them."""
        return self.support_x, self.support_y, self.query_x, self.query_y


class EpisodeSampler:
    """Draw episodes from an image set: no class and no image twice, support and query disjoint.

    `draw(n)` gives image numbers (n, ways, shots + queries) in the order of the generator's stream alone, so a stream
    can be repeated without the images; `episodes(numbers)` gathers the pixels; `sample(n)` does both.

    >>> from arelu_meta import data
    >>> sampler = EpisodeSampler(data.load("digits"), ways=5, shots=1, queries=3)
    >>> sampler.episodes(sampler.draw(2, torch.Generator().manual_seed(0))).query_x.shape
    torch.Size([2, 15, 1, 28, 28])

    Each size may also be a range (low, high), both ends included. Episodes of one batch have one size, so that they
    stack: `sized` draws it and gives a sampler of that size, and each `sample` draws anew. `ways`, `shots` and
    `queries` of a sampler with ranges are the highest, which is what a network's head must be made for.

    >>> varied = EpisodeSampler(data.load("digits"), ways=(2, 10), shots=(1, 5), queries=3)
    >>> fixed = varied.sized(torch.Generator().manual_seed(0))
    >>> 2 <= fixed.ways <= varied.ways == 10
    True
    """

    def __init__(self, images: ImageSet, *, ways: Size, shots: Size, queries: Size) -> None:
        self.images = images
        self._ranges = {"ways": _as_range(ways), "shots": _as_range(shots), "queries": _as_range(queries)}
        self.ways, self.shots, self.queries = (high for _, high in self._ranges.values())
        labels = images.labels.cpu()
        counts = images.counts().cpu()
        present = torch.nonzero(counts).squeeze(1)
        self._counts = counts[present]  # (classes,)
        self._by_class = torch.argsort(labels, stable=True)  # image numbers, class after class
        self._starts = self._counts.cumsum(0) - self._counts  # (classes,)
        self._check(present)

    def _check(self, present: Tensor) -> None:
        for flag, (low, high) in self._ranges.items():
            if low < 1:
                raise InputError(f"{flag} must be at least 1, not {low}; raise --{flag}")
            if low > high:
                raise InputError(f"{flag} must be a range from low to high, not {low} to {high}; swap the two")
        if self.ways > len(present):
            raise InputError(
                f"{self.images.name} has {len(present)} classes, but ways = {self.ways}; "
                f"lower --ways to {len(present)} or less"
            )
        smallest = int(self._counts.argmin())
        if self.shots + self.queries > self._counts[smallest]:
            raise InputError(
                f"class {self.images.class_names[int(present[smallest])]!r} of {self.images.name} has "
                f"{int(self._counts[smallest])} images, but shots + queries = {self.shots + self.queries}; "
                f"lower --shots, or --queries (in validation and test --test-queries)"
            )

    @property
    def varies(self) -> bool:
        """Whether any size is a range."""
        return any(low < high for low, high in self._ranges.values())

    def sized(self, random: torch.Generator) -> "EpisodeSampler":
        """Draw one size from each range, uniformly, and give the sampler of that size; itself where there are none."""
        if not self.varies:
            return self
        fixed = copy.copy(self)
        sizes = {flag: _draw_size(low, high, random) for flag, (low, high) in self._ranges.items()}
        fixed._ranges = {flag: (size, size) for flag, size in sizes.items()}
        fixed.ways, fixed.shots, fixed.queries = sizes["ways"], sizes["shots"], sizes["queries"]
        return fixed

    def draw(self, n: int, random: torch.Generator) -> Tensor:
        """Draw the image numbers of n episodes, (n, ways, shots + queries); the first `shots` are the support."""
        if self.varies:
            raise InputError("a sampler with ranges has no one size; draw from sampler.sized(random), or call sample")
        classes = torch.full((n,), len(self._counts))
        ways = sample_without_replacement(classes, self.ways, random)  # (n, ways)
        rows = sample_without_replacement(self._counts[ways], self.shots + self.queries, random)  # (n, ways, k)
        return self._by_class[self._starts[ways].unsqueeze(-1) + rows]

    def episodes(self, numbers: Tensor) -> Episode:
        """Gather the images of drawn episodes onto the set's device and normalise them."""
        n, device = len(numbers), self.images.device
        pixels = self.images.pixels(numbers.to(device))  # (n, ways, shots + queries, C, H, W)
        labels = torch.arange(self.ways, device=device)
        return Episode(
            support_x=pixels[:, :, : self.shots].flatten(1, 2),
            support_y=labels.repeat_interleave(self.shots).expand(n, -1),
            query_x=pixels[:, :, self.shots :].flatten(1, 2),
            query_y=labels.repeat_interleave(self.queries).expand(n, -1),
        )

    def sample(self, n: int, random: torch.Generator) -> Episode:
        """Draw n episodes of one size with their images; with ranges, each call has a size of its own."""
        fixed = self.sized(random)
        return fixed.episodes(fixed.draw(n, random))


def _as_range(size: Size) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def _draw_size(low: int, high: int, random: torch.Generator) -> int:
    return low if low == high else int(torch.randint(low, high + 1, (), generator=random))


def sample_without_replacement(sizes: Tensor, k: int, random: torch.Generator) -> Tensor:
    """Draw k distinct numbers below each size, in random order: (*sizes, k).

    Floyd's algorithm (Bentley and Floyd, CACM 30(9), 1987), one step for all rows at once: it costs k steps whatever
    the sizes are, where sorting random keys would cost the largest size. It gives a uniform subset; a shuffle makes the
    order uniform.
    """
    chosen = torch.empty((*sizes.shape, k), dtype=torch.int64)
    uniform = torch.rand((*sizes.shape, k), generator=random, dtype=torch.float64)
    for step in range(k):
        top = sizes - k + step
        candidate = (uniform[..., step] * (top + 1)).long()  # uniform on 0..top
        taken = (chosen[..., :step] == candidate.unsqueeze(-1)).any(-1)
        chosen[..., step] = torch.where(taken, top, candidate)
    order = torch.rand(chosen.shape, generator=random).argsort(-1)
    return chosen.gather(-1, order)
