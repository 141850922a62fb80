"""`FewShotClassifier`: a meta-trained model as a classifier that is fitted with a few examples.

from arelu_meta.estimators import FewShotClassifier

classifier = FewShotClassifier("runs:/.../model").fit(support_images, ["cat", "dog", "cat", "dog"])
classifier.predict(images)
"""

import copy
import math
import numbers
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, column_or_1d, validate_data
from torch import Tensor

from arelu_meta.activations import Activation
from arelu_meta.errors import InputError
from arelu_meta.estimators.classifier import AdaptedTabular, ImageClassifier, adapt_tabular
from arelu_meta.kinds.few_shot.model import AdaptedModel, FewShotModel
from arelu_meta.runtime.hardware import resolve_device

TABULAR_STEPS, TABULAR_LR = 200, 0.01


class FewShotClassifier(ImageClassifier):
    """Classify from a few labelled examples: `fit` adapts to them once, `predict` answers with what was adapted.

    **With a model** it is a meta-trained network. X are its images: (n, C, H, W), rows of C*H*W pixels, or (n, H, W)
    for one channel; uint8, or floats in [0, 1]. A network with a head takes up to as many classes as it was trained for
    (`ways`), prototypes take any number. If `transductive_` is true the network normalises the images of one `predict`
    call together (norm `batch`): an answer then depends on what is asked with it, and asking for one image at a time
    is not what the network was trained for.

    **Without a model** X are rows of numbers, and nothing was learned before: columns are standardised with the
    support's mean and deviation, and a network of one hidden layer is adapted from a start that `random_state` decides,
    by full-batch steps of Adam on the cross-entropy.

    Args:
        model: a `FewShotModel`, a folder of one, the id of an MLflow run, or an MLflow model URI; None: no model
        activation: activation of the hidden layer (a name, a class, `package.module:Class`); a model has its own
        hidden: width of the hidden layer; a model has its own
        steps: gradient steps; None: as the model was trained, and 200 without a model
        lr: their learning rate; None: as the model was trained, and 0.01 without a model
        random_state: seed of the start, without a model: an int, a `numpy.random.RandomState`, or None for a new start
            in every fit; a model starts where its training ended
        device: where a model computes: "auto", "cpu", "cuda", ...

    Attributes:
        classes_: the labels, sorted
        n_features_in_: columns of X, or C*H*W
        adapted_: what answers: `adapted_.probabilities(query_x)`
        transductive_: whether the answers of one call depend on each other

    Raises:
        InputError: from `fit` and `predict`: wrong parameters, or images that the model does not take.

    >>> X, y = [[0.0, 1.0], [0.2, 0.9], [1.0, 0.1], [0.8, 0.0]], ["left", "left", "right", "right"]
    >>> FewShotClassifier(random_state=0).fit(X, y).predict([[0.1, 1.0], [0.9, 0.2]]).tolist()
    ['left', 'right']
    """

    def __init__(
        self,
        model: FewShotModel | str | Path | None = None,
        *,
        activation: Activation = "arelu",
        hidden: int = 64,
        steps: int | None = None,
        lr: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
    ) -> None:
        self.model = model
        self.activation = activation
        self.hidden = hidden
        self.steps = steps
        self.lr = lr
        self.random_state = random_state
        self.device = device

    def fit(self, X: ArrayLike, y: ArrayLike) -> "FewShotClassifier":  # noqa: N803
        """Adapt to the support.

        Args:
            X: labelled examples: images (n, C, H, W), or rows (n, columns) without a model
            y: their labels, (n,), of any kind

        Returns:
            The classifier itself.
        """
        self._check_parameters()
        if self.model is None:
            rows, targets = validate_data(self, X, y, dtype=np.float64)
            labels = self._encode(targets)
            self.adapted_: AdaptedModel | AdaptedTabular = adapt_tabular(
                torch.from_numpy(np.array(rows)),
                labels,
                ways=len(self.classes_),
                activation=self.activation,
                hidden=self.hidden,
                steps=TABULAR_STEPS if self.steps is None else self.steps,
                lr=TABULAR_LR if self.lr is None else self.lr,
                seed=self._draw_seed(),
            )
            self.transductive_ = False
            return self
        if isinstance(self.model, FewShotModel):
            model = copy.deepcopy(self.model)  # training it further must not change what was fitted
        elif isinstance(self.model, str | Path):
            model = FewShotModel.load(self.model)
        else:
            kind = type(self.model).__name__
            raise InputError(f"model is a {kind}; give a FewShotModel, a folder, an MLflow run id or model URI")
        model.to(resolve_device(self.device))
        images = _images(X, model)
        labels = self._encode(column_or_1d(y))
        check_consistent_length(images, labels)
        self.adapted_ = model.adapt(images, labels, steps=self.steps, lr=self.lr)
        self.n_features_in_ = math.prod(images.shape[1:])
        self.transductive_ = model.transductive
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """Give the probability of each class, (n, classes), in the order of `classes_`; X as for `fit`."""
        check_is_fitted(self)
        if isinstance(self.adapted_, AdaptedModel):
            query = _images(X, self.adapted_.model)
        else:
            query = torch.from_numpy(np.array(validate_data(self, X, reset=False, dtype=np.float64)))
        return self.adapted_.probabilities(query).numpy()

    def _check_parameters(self) -> None:
        for name in ("hidden", "steps"):
            value = getattr(self, name)
            whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
            if not (whole and value >= 1) and not (name == "steps" and value is None):
                raise InputError(f"{name} = {value!r}; give a whole number of at least 1")
        lr: Any = self.lr  # scikit-learn's rule: anything may have been given
        if lr is not None and not (isinstance(lr, numbers.Real) and math.isfinite(lr) and float(lr) > 0):
            raise InputError(f"lr = {lr!r}; give a number above 0")


def _images(X: ArrayLike, model: FewShotModel) -> Tensor:  # noqa: N803
    """Bring X to images; the model checks their pixels, and resizes those (n, C, H, W) or (n, H, W, C)."""
    pixels = check_array(X, dtype="numeric", ensure_2d=False, allow_nd=True, input_name="X")
    if pixels.ndim != 4:
        shape = (model.inputs.channels, *model.inputs.size)
        accepted = [shape, (math.prod(shape),)] + ([model.inputs.size] if model.inputs.channels == 1 else [])
        if pixels.shape[1:] not in accepted:
            kinds = " or ".join(f"(n, {', '.join(str(size) for size in sizes)})" for sizes in accepted)
            raise InputError(f"X is {pixels.shape}; the model takes {kinds}")
        pixels = pixels.reshape(-1, *shape)
    return torch.from_numpy(np.array(pixels))
