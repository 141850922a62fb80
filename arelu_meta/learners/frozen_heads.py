"""Classifiers on frozen features, fitted to a few labelled images at once: as layers that can be stored with a network.

A head maps features (N, d) to logits (N, classes). Each kind has a strength, of which few values are worth trying:
prototypes the preparation of the features, nearest neighbours their number, logistic regression its C.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import minimize_scalar
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

Strength = str | int | float
VOTE_TEMPERATURE = 0.07  # of the votes of neighbours by cosine, as in the evaluation of DINO (Caron et al. 2021)


class FrozenHead(nn.Module):
    """What all heads have: features less `centre`, to length one where `unit` says so, and logits times `sharpness`."""

    centre: Tensor
    sharpness: Tensor

    def __init__(self, centre: Tensor, *, unit: bool) -> None:
        super().__init__()
        self.unit = unit
        self.register_buffer("centre", centre)
        self.register_buffer("sharpness", torch.ones(()))

    def prepared(self, features: Tensor) -> Tensor:
        """Shift the features, and bring them to length one."""
        shifted = features - self.centre
        return F.normalize(shifted, dim=1) if self.unit else shifted


class PrototypeHead(FrozenHead):
    """Nearest class mean: logits are minus the squared distance, less what is the same for all classes.

    `plain` (Snell et al. 2017) takes the features as they are; `centred` less the mean of the support and at length one
    (CL2N of SimpleShot, Wang et al. 2019), or less the mean of base classes, where that is given as `centre`.
    """

    prototypes: Tensor

    def __init__(
        self,
        features: Tensor,
        labels: Tensor,
        classes: int,
        strength: Strength = "centred",
        *,
        centre: Tensor | None = None,
    ) -> None:
        centred = strength == "centred"
        centre = features.mean(0) if centre is None else centre
        super().__init__(centre if centred else torch.zeros_like(features[0]), unit=centred)
        member = F.one_hot(labels, classes).to(features.dtype)  # (N, classes)
        means = member.T @ self.prepared(features) / member.sum(0).unsqueeze(1)
        self.register_buffer("prototypes", means)

    def forward(self, features: Tensor) -> Tensor:
        """Give logits (N, classes)."""
        x = self.prepared(features)
        return self.sharpness * (2 * x @ self.prototypes.T - self.prototypes.square().sum(1))


class NeighbourHead(FrozenHead):
    """The nearest support images by cosine after centring: each votes for its class, nearer ones with more weight."""

    support: Tensor
    member: Tensor

    def __init__(self, features: Tensor, labels: Tensor, classes: int, strength: Strength = 1) -> None:
        super().__init__(features.mean(0), unit=True)
        self.neighbours = min(int(strength), len(features))
        self.register_buffer("support", self.prepared(features))
        self.register_buffer("member", F.one_hot(labels, classes).to(features.dtype))

    def forward(self, features: Tensor) -> Tensor:
        """Give logits (N, classes): the logarithm of the votes."""
        cosines = self.prepared(features) @ self.support.T  # (N, support)
        nearest, numbers = cosines.topk(self.neighbours, dim=1)
        votes = ((nearest - nearest[:, :1]) / VOTE_TEMPERATURE).exp().unsqueeze(2) * self.member[numbers]
        return self.sharpness * (votes.sum(1) + 1e-3).log()


class LinearHead(FrozenHead):
    """Multinomial logistic regression by scikit-learn, on centred features of mean squared length one.

    `model` goes on from where it ended before on the same images with another strength.
    """

    weight: Tensor
    bias: Tensor

    def __init__(
        self,
        features: Tensor,
        labels: Tensor,
        classes: int,
        strength: Strength = 1.0,
        *,
        model: LogisticRegression | None = None,
    ) -> None:
        super().__init__(features.mean(0), unit=False)
        x = self.prepared(features).double().numpy()
        length = float(np.sqrt(np.square(x).sum(1).mean())) or 1.0
        model = (model or _logistic_regression()).set_params(C=float(strength))
        weight, bias = _fitted(model, x / length, labels.numpy(), classes)
        self.register_buffer("weight", torch.from_numpy(weight / length).to(features.dtype))
        self.register_buffer("bias", torch.from_numpy(bias).to(features.dtype))

    @classmethod
    def path(cls, features: Tensor, labels: Tensor, classes: int, strengths: Sequence[Strength]) -> list[FrozenHead]:
        """Fit one head for each strength, in order; each starts where that of the next smaller C ended."""
        model = _logistic_regression()
        heads = {c: cls(features, labels, classes, c, model=model) for c in sorted(strengths, key=float)}
        return [heads[c] for c in strengths]

    def forward(self, features: Tensor) -> Tensor:
        """Give logits (N, classes)."""
        return self.sharpness * F.linear(self.prepared(features), self.weight, self.bias)


def _logistic_regression() -> LogisticRegression:
    # Newton steps end nearer to the optimum than lbfgs does at a large C, in less time.
    return LogisticRegression(solver="newton-cg", max_iter=1000, tol=1e-6, warm_start=True)


def _fitted(model: LogisticRegression, x: np.ndarray, labels: np.ndarray, classes: int) -> tuple[np.ndarray, ...]:
    """Fit scikit-learn's logistic regression; weights (classes, d) and bias (classes,), both sums over classes zero.

    With fewer images than features the weights lie in the span of the images, where the penalty is the same: with far
    fewer it is fitted there, in as many dimensions as there are images.
    """
    basis = span_of(x) if 2 * len(x) < x.shape[1] else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # an answer that is not exact is cross-validated as well
        model.fit(x if basis is None else x @ basis.T, labels)
    weight, bias = model.coef_ if basis is None else model.coef_ @ basis, model.intercept_
    if len(bias) == 1:  # two classes have one row: the second against the first
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    if len(bias) != classes:
        raise ValueError(f"{len(bias)} of {classes} classes have images")
    return weight, bias


def span_of(x: np.ndarray) -> np.ndarray:
    """Orthonormal rows (r, d) that span the rows of x (n, d); all of the space where there are as many images."""
    if len(x) >= x.shape[1]:
        return np.eye(x.shape[1])
    squares, vectors = np.linalg.eigh(x @ x.T)
    kept = squares > 1e-10 * squares[-1]  # one is zero where the features are centred
    return (vectors[:, kept] / np.sqrt(squares[kept])).T @ x


@dataclass(frozen=True)
class HeadKind:
    """A kind of head, and the strengths of it that are tried."""

    build: Callable[[Tensor, Tensor, int, Strength], FrozenHead]
    strengths: tuple[Strength, ...]
    strength_name: str
    path: Callable[[Tensor, Tensor, int, Sequence[Strength]], list[FrozenHead]] | None = None
    """fits one for each strength in less time than each alone takes, where there is a way"""

    def build_all(self, features: Tensor, labels: Tensor, classes: int) -> list[FrozenHead]:
        """Fit one head for each strength, in order."""
        if self.path is not None:
            return self.path(features, labels, classes, self.strengths)
        return [self.build(features, labels, classes, strength) for strength in self.strengths]


HEADS: Mapping[str, HeadKind] = {
    "prototypes": HeadKind(PrototypeHead, ("centred", "plain"), "features"),
    "knn": HeadKind(NeighbourHead, (1, 3, 5, 10), "k"),
    "linear": HeadKind(LinearHead, (10.0, 1.0, 100.0, 1000.0), "C", LinearHead.path),
}


def fit_sharpness(logits: Tensor, labels: Tensor) -> float:
    """Find the factor of logits that makes their softmax fit labels best, by the likelihood of answers to new images.

    It is the inverse of the temperature of temperature scaling (Guo et al. 2017). Labels are softened, as Platt (1999)
    did, by 1 / (N + 2) for N answers: if all of them are right, the next may still be wrong.

    Args:
        logits: of images that the head was not fitted to, (N, classes).
        labels: (N,).

    >>> logits = torch.tensor([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 2.0], [0.0, 2.0], [2.0, 0.0]])
    >>> fit_sharpness(logits, torch.tensor([0, 0, 0, 1, 1, 1])) < 1  # one of six is wrong
    True
    """
    classes = logits.shape[1]
    scale = float(logits.double().std()) or 1.0
    unit = logits.double() / scale
    doubt = 1 / (len(labels) + 2)
    target = torch.full_like(unit, doubt / max(1, classes - 1))
    target[torch.arange(len(labels)), labels] = 1 - doubt

    def loss(logarithm: float) -> float:
        return float(-(target * (unit * float(np.exp(logarithm))).log_softmax(1)).sum(1).mean())

    best = minimize_scalar(loss, bounds=(-5.0, 5.0), method="bounded")
    return float(np.exp(best.x)) / scale
