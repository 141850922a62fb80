"""N-way K-shot episodes by index arithmetic: no Python work per image, whole batches of episodes at once."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import InputError


@dataclass(frozen=True, eq=False)
class Episode:
    """One N-way K-shot problem, or a batch of them with a leading axis of episodes.

    Labels are 0..ways-1 in an order drawn anew for each episode, so they say nothing about the class outside of it.
    A batch has a length, can be indexed and sliced, and iterates over its episodes.

    In regression `ways` is 1, the images are points of one function, and in place of labels there are real targets,
    ([episodes,] N, 1) float32.

    Args:
        support_x: pixels to learn from, ([episodes,] ways * shots, C, H, W) float32.
        support_y: their labels, ([episodes,] ways * shots) int64.
        query_x: pixels to classify, ([episodes,] ways * queries, C, H, W).
        query_y: their labels, ([episodes,] ways * queries).

    Example:
        >>> x, y = torch.rand(8, 5, 1, 28, 28), torch.arange(5).expand(8, -1)
        >>> batch = Episode(x, y, x, y)
        >>> len(batch), batch[0].support_x.shape
        (8, torch.Size([5, 1, 28, 28]))
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
        return (self[number] for number in range(len(self)))

    def chunks(self, size: int) -> Iterator["Episode"]:
        """Split a batch into batches of at most `size` episodes."""
        return (self[start : start + size] for start in range(0, len(self), size))

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The four halves in order, as `torch.vmap` wants them."""
        return self.support_x, self.support_y, self.query_x, self.query_y


class EpisodeSampler:
    """Draw episodes from an image set: no class and no image twice, support and query disjoint.

    `sample(n, random)` draws n episodes with their pixels. In two steps, `draw(n, random)` gives image numbers in the
    order of the generator's stream alone, so a stream can be repeated without the images, and `episodes(numbers)`
    gathers the pixels. `batch_indices` serves a `torch.utils.data.DataLoader`.

    Args:
        images: the set to draw from, on any device.
        ways: classes per episode.
        shots: support images per class.
        queries: query images per class.

    Raises:
        InputError: a size below 1, more ways than classes, or a class with fewer than shots + queries images.

    Example:
        >>> from arelu_meta import data
        >>> sampler = EpisodeSampler(data.load("digits"), ways=5, shots=1, queries=3)
        >>> batch = sampler.sample(2, torch.Generator().manual_seed(0))
        >>> batch.support_x.shape, batch.query_x.shape
        (torch.Size([2, 5, 1, 28, 28]), torch.Size([2, 15, 1, 28, 28]))
    """

    def __init__(self, images: ImageSet, *, ways: int, shots: int, queries: int) -> None:
        self.images, self.ways, self.shots, self.queries = images, ways, shots, queries
        counts = images.counts().cpu()
        present = torch.nonzero(counts).squeeze(1)
        self._counts = counts[present]  # (classes,)
        self._by_class = torch.argsort(images.labels.cpu(), stable=True)  # image numbers, class after class
        self._starts = self._counts.cumsum(0) - self._counts  # (classes,)
        for name, size in {"ways": ways, "shots": shots, "queries": queries}.items():
            if size < 1:
                raise InputError(f"{name} must be at least 1, not {size}; raise `{name}`")
        if ways > len(present):
            raise InputError(
                f"{images.name} has {len(present)} classes, but ways = {ways}; lower `ways` to {len(present)} or less"
            )
        smallest = int(self._counts.argmin())
        least = int(self._counts[smallest])
        if shots + queries > least:
            enough = f" to {least - shots} or less" if least > shots else ""
            raise InputError(
                f"class {images.class_names[int(present[smallest])]!r} of {images.name} has "
                f"{least} images, but shots + queries = {shots + queries}; "
                f"lower `shots`, or `queries` (in validation and test `test_queries`){enough}"
            )

    def draw(self, n: int, random: torch.Generator) -> Tensor:
        """Draw the image numbers of n episodes.

        Args:
            n: how many episodes.
            random: generator on the CPU.

        Returns:
            Image numbers (n, ways, shots + queries) int64 on the CPU; of each class the first `shots` are the support.
        """
        classes = torch.full((n,), len(self._counts))
        ways = sample_without_replacement(classes, self.ways, random)  # (n, ways)
        rows = sample_without_replacement(self._counts[ways], self.shots + self.queries, random)  # (n, ways, k)
        return self._by_class[self._starts[ways].unsqueeze(-1) + rows]

    def episodes(self, numbers: Tensor) -> Episode:
        """Gather the images of `numbers`, (n, ways, shots + queries), onto the set's device and normalise them."""
        n, device = len(numbers), self.images.device
        pixels = self.images.pixels(numbers.to(device))  # (n, ways, shots + queries, C, H, W)
        support_x, query_x = pixels[:, :, : self.shots].flatten(1, 2), pixels[:, :, self.shots :].flatten(1, 2)
        if self.images.targets is not None:
            targets = self.images.targets[numbers.to(device)]  # (n, ways, shots + queries, 1)
            support_y, query_y = targets[:, :, : self.shots].flatten(1, 2), targets[:, :, self.shots :].flatten(1, 2)
            return Episode(support_x, support_y, query_x, query_y)
        labels = torch.arange(self.ways, device=device)
        return Episode(
            support_x=support_x,
            support_y=labels.repeat_interleave(self.shots).expand(n, -1),
            query_x=query_x,
            query_y=labels.repeat_interleave(self.queries).expand(n, -1),
        )

    def sample(self, n: int, random: torch.Generator) -> Episode:
        """Draw n episodes with their images by a generator `random`: a batch on the set's device."""
        return self.episodes(self.draw(n, random))

    def batch_indices(self, n: int, random: torch.Generator) -> list[list[int]]:
        """Draw n episodes by `random` as lists of image numbers, for `DataLoader(dataset, batch_sampler=...)`.

        Each batch of the loader is then one episode: `ways` classes after each other, of each `shots` support images,
        then `queries` query images. The dataset must number its images as this sampler's set does.

        Example:
            >>> from arelu_meta import data
            >>> sampler = EpisodeSampler(data.load("digits"), ways=5, shots=1, queries=3)
            >>> [len(numbers) for numbers in sampler.batch_indices(2, torch.Generator().manual_seed(0))]
            [20, 20]
        """
        numbers: list[list[int]] = self.draw(n, random).flatten(1).tolist()
        return numbers


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
