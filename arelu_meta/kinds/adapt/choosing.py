"""Choose method and strength inside the images that are learned from, by stratified cross-validation."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from arelu_meta.data.imageset import ImageSet
from arelu_meta.kinds.adapt.tuning import TunedNetwork, Tuner, answer
from arelu_meta.learners.frozen_heads import HEADS, FrozenHead, Strength, fit_sharpness, span_of
from arelu_meta.seeding import generator

RATES: Mapping[str, tuple[Strength, ...]] = {
    "norm": (1e-3, 1e-2),
    "activation": (1e-2, 1e-1),
    "lora": (1e-3, 1e-2),
    "full": (1e-4, 1e-3),
}
STRENGTHS = {**{name: kind.strengths for name, kind in HEADS.items()}, **RATES}
STRENGTH_NAMES = {**{name: kind.strength_name for name, kind in HEADS.items()}, **dict.fromkeys(RATES, "lr")}


@dataclass(frozen=True, eq=False)
class Support:
    """Features (N, d) and labels (N,) of labelled images, and the number of classes.

    Methods that move the network need the images themselves, at its size, and a tuner.
    """

    features: Tensor
    labels: Tensor
    classes: int
    images: ImageSet | None = None
    tuner: Tuner | None = None

    def part(self, numbers: Tensor) -> "Support":
        """Take some of the images."""
        images = None if self.images is None else self.images.subset(numbers)
        return replace(self, features=self.features[numbers], labels=self.labels[numbers], images=images)

    def fit(self, method: str, strength: Strength) -> nn.Module:
        """Fit a method to all images: a head on features, or a network on images."""
        if method in HEADS:
            return HEADS[method].build(self.features, self.labels, self.classes, strength).eval()
        if self.images is None or self.tuner is None:
            raise ValueError(f"{method} moves the network, and needs images and a tuner")
        return self.tuner.tune(self.images, self.classes, method=method, lr=float(strength))

    def fit_each(self, method: str) -> Iterator[nn.Module]:
        """Fit a method to all images with each of its strengths, one after the other."""
        if method in HEADS:
            yield from (head.eval() for head in HEADS[method].build_all(self.features, self.labels, self.classes))
        else:
            yield from (self.fit(method, strength) for strength in STRENGTHS[method])

    def in_span(self) -> "Support":
        """Give the features in the space that they span, of no more dimensions than images: distances stay."""
        if self.features.shape[1] <= len(self.labels):
            return self
        x = self.features.double().numpy()
        return replace(self, features=torch.from_numpy(x @ span_of(x).T).to(self.features.dtype))

    def answers(self, fitted: nn.Module) -> Tensor:
        """Logits (N, classes) of what `fit` gave, perhaps for other images, to these."""
        if isinstance(fitted, FrozenHead) or self.images is None:
            return fitted(self.features)
        return answer(fitted, self.images)


@dataclass(frozen=True)
class Choice:
    """A method with the strength that cross-validation chose, and how well it did there.

    `sharpness` is the factor of its logits that makes their softmax fit the answers of the cross-validation.
    """

    method: str
    strength: Strength
    accuracy: float
    loss: float
    sharpness: float

    def fit(self, support: Support) -> nn.Module:
        """Fit the method to all images of a support: a head on features, or a network on images."""
        fitted = support.fit(self.method, self.strength)
        head = fitted if isinstance(fitted, FrozenHead) else fitted.get_submodule("head")
        head.get_buffer("sharpness").fill_(self.sharpness)
        return fitted


def footprint(fitted: nn.Module) -> tuple[int, int]:
    """What a fitted method costs: parameters of the network that moved, and bytes to store besides the network itself.

    The bytes are those of the head and of what moved; several class sets can share the pretrained network.
    """
    moved = fitted.moved if isinstance(fitted, TunedNetwork) else 0
    head = fitted.get_submodule("head") if isinstance(fitted, TunedNetwork) else fitted
    own = sum(value.numel() * value.element_size() for value in head.state_dict().values())
    width = next((parameter.element_size() for parameter in fitted.parameters()), 0)
    return moved, own + moved * width


def stratified_folds(labels: Tensor, folds: int, *, seed: int, stream: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Divide images into folds with even shares of each class: the numbers of those to fit and of those to answer.

    Args:
        labels: (N,); every class has `folds` images at least.
        folds: number of parts.
        seed, stream: of the draw.

    >>> labels = torch.tensor([0, 0, 1, 1])
    >>> [labels[held].tolist() for _, held in stratified_folds(labels, 2, seed=0, stream="folds")]
    [[0, 1], [0, 1]]
    """
    draw = generator(seed, stream)
    place = torch.empty(len(labels), dtype=torch.int64)
    start = 0
    for label in labels.unique().tolist():
        members = torch.nonzero(labels == label).squeeze(1)
        place[members[torch.randperm(len(members), generator=draw)]] = (torch.arange(len(members)) + start) % folds
        start += len(members)  # goes on where the class before ended, so that folds are of even size
    for fold in range(folds):
        yield torch.nonzero(place != fold).squeeze(1), torch.nonzero(place == fold).squeeze(1)


def choose_strength(method: str, support: Support, folds: int, *, seed: int, stream: str) -> Choice:
    """Cross-validate every strength of a method; the most right answers win, then the most likely ones.

    Args:
        method: a key of `STRENGTHS`.
        support: the images; each is answered once by a head that was fitted without it.
        folds: number of parts; every class needs as many images.
        seed, stream: of the division, which is the same for all methods and strengths.
    """
    if method in HEADS and HEADS[method].path is not None:
        support = support.in_span()
    answers = torch.zeros(len(STRENGTHS[method]), len(support.labels), support.classes)
    for fitted, held in stratified_folds(support.labels, folds, seed=seed, stream=stream):
        asked = support.part(held)
        for number, made in enumerate(support.part(fitted).fit_each(method)):
            answers[number, held] = asked.answers(made)
    choices = []
    for strength, logits in zip(STRENGTHS[method], answers, strict=True):
        sharpness = fit_sharpness(logits, support.labels)
        accuracy = (logits.argmax(1) == support.labels).double().mean().item()
        loss = cross_entropy(sharpness * logits, support.labels).item()
        choices.append(Choice(method, strength, accuracy, loss, sharpness))
    return best_of(choices)


def best_of(choices: list[Choice]) -> Choice:
    """The choice with the best accuracy; of equal ones that with the least loss, then the first."""
    return max(choices, key=lambda choice: (choice.accuracy, -choice.loss))
