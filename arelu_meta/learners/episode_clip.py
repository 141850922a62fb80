"""A bound on each episode's own gradient, taken before the batch is averaged.

Second-order gradients of single episodes explode: the product of the factors (I - lr H) of the inner steps grows where
the inner loop is at the edge of stability, and one episode of 32 then decides where Adam goes for hundreds of steps.
Scaling episode i by s_i = min(1, bound / |g_i|) bounds what one of them can do and leaves the others as they are; a
bound on the batch gradient shrinks them all.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def episode_norms(gradients: Sequence[Tensor | None]) -> Tensor:
    """Euclidean norm over all parameters together.

    Args:
        gradients: one per parameter, (episodes, ...); None where a parameter has none.

    Returns:
        One norm per episode, (episodes,).

    >>> episode_norms([torch.tensor([[3.0], [0.0]]), None, torch.tensor([4.0, 2.0])]).tolist()
    [5.0, 2.0]
    """
    squares = [gradient.reshape(len(gradient), -1).square().sum(1) for gradient in gradients if gradient is not None]
    return torch.stack(squares).sum(0).sqrt()


def clipped_sum(
    gradients: Sequence[Tensor | None], bound: float, weight: float = 1.0
) -> tuple[list[Tensor | None], Tensor]:
    """Scale the gradients of each episode down to the bound and add them up.

    An episode whose gradient overflowed counts nothing: there is no direction left in it.

    Args:
        gradients: one per parameter, (episodes, ...); None where a parameter has none.
        bound: largest norm of an episode's gradient, over all parameters together.
        weight: factor of the sum.

    Returns:
        The sums, one per parameter, and the norms before, (episodes,).

    >>> sums, norms = clipped_sum([torch.tensor([3.0, 1.0]), torch.tensor([4.0, 0.0])], bound=2.5)
    >>> [round(value.item(), 4) for value in sums], norms.tolist()  # (3, 4) is halved, (1, 0) stays
    ([2.5, 2.0], [5.0, 1.0])
    """
    norms = episode_norms(gradients)
    finite = norms.isfinite()
    scales = torch.where(finite, (bound / norms).clamp(max=1.0) * weight, 0.0)  # a norm of zero: infinity, and so 1
    sums: list[Tensor | None] = []
    for gradient in gradients:
        if gradient is not None:  # zero times infinity is not a number
            gradient = torch.where(finite.view(-1, *(1 for _ in gradient.shape[1:])), gradient, 0.0)
        sums.append(None if gradient is None else torch.tensordot(scales, gradient, 1))
    return sums, norms
