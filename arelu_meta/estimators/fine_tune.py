"""`FineTuneClassifier`: anyone's network, fine-tuned by `fit`, as a scikit-learn estimator."""

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, column_or_1d, validate_data
from torch import Tensor, nn

from arelu_meta.activations import Activation
from arelu_meta.console.flags import validated
from arelu_meta.data.files.image_cache import keep_decoded
from arelu_meta.data.files.user_data import to_images
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.inputs import inputs_of
from arelu_meta.errors import InputError
from arelu_meta.estimators.classifier import AdaptedTabular, ImageClassifier, adapt_tabular
from arelu_meta.kinds.classify.run import training_batches
from arelu_meta.kinds.finetune.spec import PretrainedSection
from arelu_meta.kinds.supervised_spec import OptimizationSection
from arelu_meta.pretrained.assembly import assemble, check_takes, fit_to_inputs
from arelu_meta.pretrained.networks import Model, find_model
from arelu_meta.runtime.hardware import resolve_device
from arelu_meta.seeding import generator, global_stream
from arelu_meta.training.forward import predict
from arelu_meta.training.losses import cross_entropy
from arelu_meta.training.supervised import SupervisedTrainer

IMAGE_EPOCHS, ROW_EPOCHS = 10, 200


class FineTuneClassifier(ImageClassifier):
    """Classify by a network that `fit` fine-tunes: its head replaced for the classes of y, its activations by surgery.

    **With a model** X are images: (n, C, H, W), (n, H, W, C) or (n, H, W); uint8, or floats in [0, 1]. They are brought
    to the channels, size and normalisation that the weights were trained on.

    **Without a model** X are rows of numbers and nothing was learned before: a network of one hidden layer is trained
    from a start that `random_state` decides, each epoch one step of Adam on all rows.

    Args:
        model: a name of torchvision, of timm (`timm/NAME`) or of ours; `installed/efficientnet_lite0`, whose weights
            "DEFAULT" need no download; `package.module:function`; a class or function that builds one from
            `model_options`; a `torch.nn.Module`, which every fit copies and leaves as it is; None: rows
        weights: a .safetensors or .pth file, a published weights name, an MLflow URI; "none": untrained, or as the
            module is given
        activation: what replaces the network's activations (a name, a class, `package.module:Class`); "own": nothing
        preserve: when new activations start where the old ones were: "pretrained" (with weights, or a module, which has
            its own), "always", "never"
        epochs: passes over X; None: 10, and 200 for rows
        lr: learning rate
        batch_size: images per step
        training: more settings of the training by name: `{"freeze_epochs": 1, "optimizer": "adamw"}`; rows take none
        image_size: side in pixels the images are brought to; 0: the weights' own, or as they are
        head: path of the layer that gives the logits, where it cannot be found
        model_options: options of the network's builder
        device: where to train: "auto", "cpu", "cuda", ...
        random_state: seed of the head, the order of batches and all else that is random; None: a new one in every fit

    Attributes:
        classes_: the labels, sorted
        n_features_in_: columns of X, or C*H*W
        network_: the fine-tuned network, where there is a model

    Raises:
        InputError: from `fit` and `predict`: wrong parameters, or images that the network does not take.

    >>> X, y = [[0.0, 1.0], [0.2, 0.9], [1.0, 0.1], [0.8, 0.0]], ["left", "left", "right", "right"]
    >>> FineTuneClassifier(random_state=0).fit(X, y).predict([[0.1, 1.0], [0.9, 0.2]]).tolist()
    ['left', 'right']
    """

    def __init__(
        self,
        model: Model | None = None,
        *,
        weights: str = "none",
        activation: Activation = "own",
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
        """Fine-tune to labelled examples.

        Args:
            X: images (n, C, H, W), (n, H, W, C) or (n, H, W), or rows (n, columns) without a model
            y: their labels, (n,), of any kind

        Returns:
            The classifier itself.
        """
        (network, training), seed = self._settings(), self._draw_seed()
        if self.model is None:
            if self.weights != "none":
                raise InputError(f"`weights` = {self.weights!r} need a network; give `model`")
            rows, targets = validate_data(self, X, y, dtype=np.float64)
            labels = self._encode(targets)
            self.rows_: AdaptedTabular = adapt_tabular(
                torch.from_numpy(np.array(rows)),
                labels,
                ways=len(self.classes_),
                activation="relu" if self.activation == "own" else self.activation,
                steps=training.epochs,
                lr=training.lr,
                seed=seed,
            )
            return self
        pixels = self._pixels(X)
        labels = self._encode(column_or_1d(y))
        check_consistent_length(pixels, labels)
        if len(self.classes_) < 2:
            raise InputError(f"y has one class, {self.classes_.tolist()[0]!r}; a classifier needs two or more")
        images = ImageSet("X", pixels, labels, tuple(str(label) for label in self.classes_))
        self._tune(images, network, training, seed)
        self.image_shape_ = tuple(pixels.shape[1:])
        self.n_features_in_ = math.prod(self.image_shape_)
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """Give the probability of each class, (n, classes), in the order of `classes_`; X as for `fit`."""
        check_is_fitted(self)
        if self.model is None:
            rows = validate_data(self, X, reset=False, dtype=np.float64)
            return self.rows_.probabilities(torch.from_numpy(np.array(rows))).numpy()
        pixels = self._pixels(X)
        if tuple(pixels.shape[1:]) != self.image_shape_:
            raise InputError(f"X has images of {tuple(pixels.shape[1:])}; it was fitted with {self.image_shape_}")
        images = ImageSet("X", pixels, torch.zeros(len(pixels), dtype=torch.int64), ("unknown",))
        prepared = fit_to_inputs(images, self.inputs_, resize="scale").to(next(self.network_.parameters()).device)
        return predict(self.network_, prepared, batch=256).softmax(-1).numpy()

    def _tune(self, images: ImageSet, network: PretrainedSection, training: OptimizationSection, seed: int) -> None:
        """Put the network together, train it on the images, and set `network_` and `inputs_`."""
        model = network.model if self.model is None else self.model
        brings_weights = isinstance(model, nn.Module) and network.preserve == "pretrained"
        made = assemble(
            model,
            images=images,
            weights=network.weights,
            model_options=network.model_options,
            head=network.head,
            activation=self.activation,
            preserve=network.preserved or brings_weights,
            image_size=self.image_size,
            seed=seed,
        )
        prepared = fit_to_inputs(images, made.inputs, resize="scale")
        prepared = keep_decoded({"all": prepared})["all"]
        if made.target_statistics:
            prepared = prepared.normalised_like(prepared)
        if len(images) % training.batch_size == 1:
            check_takes(made.network, made.inputs, model=find_model(model).name, batch=1)
        device = resolve_device(self.device)
        prepared = prepared.to(device)
        loss = cross_entropy(prepared, label_smoothing=training.label_smoothing, class_weights=training.class_weights)
        batches = training_batches(prepared, training, generator(seed, "batches"))
        options = training.trainer_options()
        trainer = SupervisedTrainer(made.network.to(device), batches, loss, head=made.head, **options)
        with global_stream(seed, "training"), torch.enable_grad():
            for _ in trainer.train():
                pass
        self.network_ = trainer.tested.eval().requires_grad_(False)
        self.inputs_ = inputs_of(prepared)

    def _settings(self) -> tuple[PretrainedSection, OptimizationSection]:
        """Check all parameters as the command checks its flags, and refuse what `fit` would ignore."""
        more = dict(self.training or {})
        if more.get("patience") is not None:
            raise InputError("`patience` stops by a validation part, and fit trains on all of X; set `epochs` instead")
        if self.model is None and more:
            raise InputError(f"`training` = {more!r} is for a network; give `model`, or set `epochs` and `lr` alone")
        epochs = self.epochs if self.epochs is not None else (ROW_EPOCHS if self.model is None else IMAGE_EPOCHS)
        training = {"lr": self.lr, "epochs": epochs, "batch_size": self.batch_size, **more}
        network = {
            "model_options": dict(self.model_options or {}),
            "weights": self.weights,
            "head": self.head,
            "preserve": self.preserve,
            **{name: value for name in ("model", "activation") if isinstance(value := getattr(self, name), str)},
        }
        where = "FineTuneClassifier"
        return validated(PretrainedSection, network, where), validated(OptimizationSection, training, where)

    def _pixels(self, X: ArrayLike) -> Tensor:  # noqa: N803
        pixels = check_array(X, dtype="numeric", ensure_2d=False, allow_nd=True, input_name="X")
        return to_images(np.asarray(pixels), "X")
