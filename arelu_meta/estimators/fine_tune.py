"""`FineTuneClassifier`: anyone's network, fine-tuned by `fit`, as a scikit-learn estimator."""

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, column_or_1d, validate_data
from torch import Tensor

from arelu_meta.console.flags import validated
from arelu_meta.data.augment import augment
from arelu_meta.data.batches import Batches
from arelu_meta.data.files.user_data import to_images
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.inputs import inputs_of
from arelu_meta.errors import InputError
from arelu_meta.estimators.image_classifier import ImageClassifier, drawn_seed
from arelu_meta.estimators.tabular import AdaptedTabular, adapt_tabular
from arelu_meta.kinds.finetune.spec import FineTuneSpec
from arelu_meta.pretrained.assembly import assemble, check_takes
from arelu_meta.pretrained.inputs import check_size, fitted
from arelu_meta.runtime.hardware import available_memory, resolve_device
from arelu_meta.seeding import generator, global_stream
from arelu_meta.training.fitting import cross_entropy
from arelu_meta.training.supervised import SupervisedTrainer, predict

IMAGE_EPOCHS, ROW_EPOCHS = 10, 200


class FineTuneClassifier(ImageClassifier):
    """Classify by a network that `fit` fine-tunes: its head replaced for the classes of y, its activations by surgery.

    **With a model** X are images: (n, C, H, W), (n, H, W, C) or (n, H, W); uint8, or floats in [0, 1]. They are brought
    to the channels, size and normalisation that the weights were trained on.

    **Without a model** X are rows of numbers and nothing was learned before: a network of one hidden layer is trained
    from a start that `random_state` decides, each epoch one step of Adam on all rows.

    Parameters
    ----------
    model
        a name of torchvision, of timm (`timm/NAME`) or of ours, `package.module:function`; None: rows
    weights
        a .safetensors or .pth file, a published weights name, an MLflow URI; "none": untrained
    activation, preserve
        what replaces the network's activations ("own": nothing), and when it starts where they were: "pretrained",
        "always", "never"
    epochs, lr, batch_size
        passes over X (None: 10, and 200 for rows), learning rate, images per step
    training
        more settings of the training by the names of the flags: `{"freeze_epochs": 1, "optimizer": "adamw"}`
    image_size, head, model_options
        as the flags of `python -m arelu_meta.finetune --model`
    device
        where to train: "auto", "cpu", "cuda", ...
    random_state
        seed of the head, the order of batches and all else that is random

    Attributes
    ----------
    classes_
        the labels, sorted
    n_features_in_
        columns of X, or C*H*W
    network_
        the fine-tuned network, where there is a model

    >>> X, y = [[0.0, 1.0], [0.2, 0.9], [1.0, 0.1], [0.8, 0.0]], ["left", "left", "right", "right"]
    >>> FineTuneClassifier(random_state=0).fit(X, y).predict([[0.1, 1.0], [0.9, 0.2]]).tolist()
    ['left', 'right']
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        weights: str = "none",
        activation: str = "own",
        preserve: Literal["pretrained", "always", "never"] = "pretrained",
        epochs: int | None = None,
        lr: float = 0.01,
        batch_size: int = 32,
        training: Mapping[str, Any] | None = None,
        image_size: int = 0,
        head: str = "",
        model_options: Mapping[str, Any] | None = None,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.model = model
        self.weights = weights
        self.activation = activation
        self.preserve = preserve
        self.epochs = epochs
        self.lr = lr
        self.batch_size = batch_size
        self.training = training
        self.image_size = image_size
        self.head = head
        self.model_options = model_options
        self.device = device
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> "FineTuneClassifier":  # noqa: N803
        """Fine-tune to examples X with their labels y, of any kind."""
        spec, seed = self._spec(), drawn_seed(self.random_state)
        if self.model is None:
            rows, targets = validate_data(self, X, y, dtype=np.float64)
            labels = self._encode(targets)
            self.rows_: AdaptedTabular = adapt_tabular(
                torch.from_numpy(np.array(rows)),
                labels,
                ways=len(self.classes_),
                activation="relu" if self.activation == "own" else self.activation,
                steps=spec.training.epochs,
                lr=spec.training.lr,
                seed=seed,
            )
            return self
        pixels = self._pixels(X)
        labels = self._encode(column_or_1d(y))
        check_consistent_length(pixels, labels)
        if len(self.classes_) < 2:
            raise InputError(f"y has one class, {self.classes_[0]!r}; a classifier needs two or more")
        images = ImageSet("X", pixels, labels, tuple(str(label) for label in self.classes_))
        self._tune(images, spec, seed)
        self.image_shape_ = tuple(pixels.shape[1:])
        self.n_features_in_ = math.prod(self.image_shape_)
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """Give the probability of each class, (n, len(classes_)), in the order of `classes_`."""
        check_is_fitted(self)
        if self.model is None:
            rows = validate_data(self, X, reset=False, dtype=np.float64)
            return self.rows_.probabilities(torch.from_numpy(np.array(rows))).numpy()
        pixels = self._pixels(X)
        if tuple(pixels.shape[1:]) != self.image_shape_:
            raise InputError(f"X has images of {tuple(pixels.shape[1:])}; it was fitted with {self.image_shape_}")
        images = ImageSet("X", pixels, torch.zeros(len(pixels), dtype=torch.int64), ("unknown",))
        prepared = fitted(images, self.inputs_, resize="scale").to(next(self.network_.parameters()).device)
        return predict(self.network_, prepared, batch=256).softmax(-1).numpy()

    def _tune(self, images: ImageSet, spec: FineTuneSpec, seed: int) -> None:
        network = spec.network
        made = assemble(
            network.model,
            images=images,
            weights=network.weights,
            model_options=network.model_options,
            head=network.head,
            activation=network.activation,
            preserve=network.preserved,
            image_size=self.image_size,
            seed=seed,
        )
        check_size(len(images), made.inputs, memory=available_memory())
        prepared = fitted(images, made.inputs, resize="scale")
        if made.target_statistics:
            prepared = prepared.normalised_like(prepared)
        settings = spec.training
        if len(images) % settings.batch_size == 1:
            check_takes(made.network, made.inputs, model=network.model, batch=1)
        device = resolve_device(self.device)
        prepared = prepared.to(device)
        loss = cross_entropy(prepared, label_smoothing=settings.label_smoothing, class_weights=settings.class_weights)
        batches = Batches(prepared, settings.batch_size, generator(seed, "batches"), augment=augment(settings.augment))
        trainer = SupervisedTrainer(made.network.to(device), batches, settings, loss, head=made.head)
        with global_stream(seed, "training"), torch.enable_grad():
            for _ in trainer.epochs():
                pass
        self.network_ = trainer.tested.eval().requires_grad_(False)
        self.inputs_ = inputs_of(prepared)

    def _spec(self) -> FineTuneSpec:
        """Check all parameters as the command checks its flags."""
        epochs = self.epochs if self.epochs is not None else (ROW_EPOCHS if self.model is None else IMAGE_EPOCHS)
        settings = {"lr": self.lr, "epochs": epochs, "batch_size": self.batch_size, **(self.training or {})}
        network = {
            "model": "rows" if self.model is None else self.model,
            "model_options": dict(self.model_options or {}),
            "weights": self.weights,
            "head": self.head,
            "activation": self.activation,
            "preserve": self.preserve,
        }
        values = {"task": "estimator", "data": {"dataset": "digits"}, "network": network, "training": settings}
        spec = validated(FineTuneSpec, values, "FineTuneClassifier")
        if self.model is None and self.weights != "none":
            raise InputError(f"weights = {self.weights!r} need a network; give model=")
        return spec

    def _pixels(self, X: ArrayLike) -> Tensor:  # noqa: N803
        pixels = check_array(X, dtype="numeric", ensure_2d=False, allow_nd=True, input_name="X")
        return to_images(np.asarray(pixels), "X")
