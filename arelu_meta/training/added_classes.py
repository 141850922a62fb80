"""New classes in a head that was fitted before: rows are added, those of the other classes stay bit for bit."""

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import minimize
from scipy.special import log_softmax
from torch import Tensor

from arelu_meta.learners.frozen_heads import FrozenHead, LinearHead, NeighbourHead, PrototypeHead, Strength, span_of


def add_classes(
    head: FrozenHead, features: Tensor, labels: Tensor, new: Tensor, new_labels: Tensor, strength: Strength
) -> None:
    """Give a head the rows of new classes, in place; centre, sharpness and all rows that it has are left alone.

    Prototypes get the mean of each new class, neighbours the new images themselves. Logistic regression gets a row for
    each new class, fitted to all images with the other rows held fixed: it tells the new class from the others, and the
    others' logits do not move.

    Args:
        head: fitted to `features`.
        features, labels: what it was fitted to, (n, d) and (n,).
        new, new_labels: images of the new classes, (m, d) and (m,); labels go on where `labels` end.
        strength: what the head was fitted with; of logistic regression C.

    >>> head = PrototypeHead(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1]), 2, "plain")
    >>> add_classes(head, torch.eye(2), torch.tensor([0, 1]), torch.tensor([[3.0, 3.0]]), torch.tensor([2]), "plain")
    >>> head.prototypes.tolist()
    [[1.0, 0.0], [0.0, 1.0], [3.0, 3.0]]
    """
    before, total = int(labels.max()) + 1, int(new_labels.max()) + 1
    prepared = head.prepared(new)
    if isinstance(head, PrototypeHead):
        member = F.one_hot(new_labels - before, total - before).to(new.dtype)  # (m, new classes)
        means = member.T @ prepared / member.sum(0).unsqueeze(1)
        head.prototypes = torch.cat([head.prototypes, means])
    elif isinstance(head, NeighbourHead):
        head.support = torch.cat([head.support, prepared])
        member = F.one_hot(new_labels, total).to(new.dtype)
        head.member = torch.cat([F.pad(head.member, (0, total - before)), member])
    elif isinstance(head, LinearHead):
        both = torch.cat([head.prepared(features), prepared])
        weight, bias = _fit_rows(head, both, torch.cat([labels, new_labels]), len(labels), float(strength))
        head.weight, head.bias = torch.cat([head.weight, weight]), torch.cat([head.bias, bias])
    else:
        raise TypeError(f"a {type(head).__name__} takes no new classes")


def _fit_rows(head: LinearHead, prepared: Tensor, labels: Tensor, before: int, c: float) -> tuple[Tensor, Tensor]:
    """Fit rows to the classes beyond those of a head, by scikit-learn's loss: c times the cross-entropies, and penalty.

    The first `before` images are those that the head was fitted to, which say what length the features are brought to.
    """
    old, total = len(head.bias), int(labels.max()) + 1
    known = F.linear(prepared, head.weight, head.bias).double().numpy()  # (n, old classes), fixed
    x = prepared.double().numpy()
    length = float(np.sqrt(np.square(x[:before]).sum(1).mean())) or 1.0
    basis = span_of(x / length)
    inside = x / length @ basis.T  # (n, r)
    target = np.eye(total)[labels.numpy()]

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        rows = flat.reshape(total - old, -1)  # weights and, last, bias
        logits = np.concatenate([known, inside @ rows[:, :-1].T + rows[:, -1]], 1)
        logarithms = log_softmax(logits, axis=1)
        error = (np.exp(logarithms) - target)[:, old:]  # (n, new classes)
        slope = np.concatenate([c * error.T @ inside + rows[:, :-1], c * error.sum(0)[:, None]], 1)
        return -c * float((target * logarithms).sum()) + np.square(rows[:, :-1]).sum() / 2, slope.ravel()

    start = np.zeros((total - old) * (len(basis) + 1))
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000, "gtol": 1e-6, "ftol": 1e-13})
    rows = found.x.reshape(total - old, -1)
    weight, bias = rows[:, :-1] @ basis / length, rows[:, -1]
    return torch.from_numpy(weight).to(prepared.dtype), torch.from_numpy(bias).to(prepared.dtype)
