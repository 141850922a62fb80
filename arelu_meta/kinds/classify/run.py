"""One classification run: a network trained from scratch."""

from typing import Any

import torch
from torch import Tensor, nn

from arelu_meta.backbones import side_for
from arelu_meta.console import progress
from arelu_meta.data.augment import augment
from arelu_meta.data.batches import Batches
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.mixing import Mixing
from arelu_meta.data.splits import Split
from arelu_meta.errors import InputError
from arelu_meta.kinds.classify.result import ClassifyResult
from arelu_meta.kinds.classify.spec import ClassifySpec
from arelu_meta.kinds.execution import TrainingExecution
from arelu_meta.kinds.networks import build_classifier, check_logits
from arelu_meta.kinds.results import name_of
from arelu_meta.kinds.session import load_split, machine, to_device
from arelu_meta.kinds.supervised import Measure, Prepared, run_supervised
from arelu_meta.kinds.supervised_spec import OptimizationSection
from arelu_meta.metrics import accuracy
from arelu_meta.seeding import generator
from arelu_meta.training.forward import predict
from arelu_meta.training.losses import Loss, cross_entropy
from arelu_meta.training.supervised import SupervisedTrainer


def run_classify(
    spec: ClassifySpec, execution: TrainingExecution, bar: progress.Bar, *, prepared: Prepared | None = None
) -> ClassifyResult:
    """Train and test; everything that wrong input can break is built before a run is opened in the store."""
    with machine(execution) as device:
        result: ClassifyResult = run_supervised(
            spec,
            execution,
            bar,
            prepared or prepare(spec, execution, device, bar=bar),
            name=f"{spec.network.activation}-{spec.network.backbone}-"
            f"{name_of(spec.task, spec.data.dataset)}-seed{spec.seed}",
            shape=spec.fit,
            log_layers=execution.layer_statistics,
            keep_model=execution.keep_model,
        )
        return result


def prepare(
    spec: ClassifySpec,
    execution: TrainingExecution,
    device: torch.device,
    *,
    split: Split | None = None,
    bar: progress.Bar = progress.silent,
) -> Prepared:
    """Read and divide the images, unless they are given, and build the network and its trainer."""
    if split is None:
        split = load_split(
            spec.data,
            root=execution.data_root or None,
            shape=spec.fit,
            train_on_validation=not spec.evaluation.validates,
            bar=bar,
            side=side_for(spec.network.backbone),
        )
        split = to_device(split, device, execution)
    network = build_classifier(spec.network, split.train, seed=spec.seed).to(device)
    check_logits(network, split.train, (len(split.train.class_names),), spec.network.backbone)
    trainer = classifier_trainer(
        network,
        split.train,
        spec.training,
        seed=spec.seed,
        **execution.trainer_options(),
    )
    return Prepared(split, trainer, accuracy_measure(trainer.loss))


def accuracy_measure(loss: Loss, *, result: type[ClassifyResult] = ClassifyResult) -> Measure:
    """Give the measure of a classifier: accuracy, and a result with the logits of the test images."""

    def outputs(logits: Tensor, test: ImageSet) -> dict[str, Any]:
        return {"class_names": test.class_names, "labels": test.labels.cpu().numpy(), "logits": logits.numpy()}

    return Measure("accuracy", "accuracy", loss, accuracy_of, result, outputs)


def accuracy_of(logits: Tensor, images: ImageSet) -> float:
    """Share of correct answers among logits on the CPU, one row for each image of a set."""
    return accuracy(logits, images.labels.cpu()).item()


def accuracy_on(network: nn.Module, images: ImageSet, **options: Any) -> float:
    """Share of correct answers on a set; `options` are those of `predict`."""
    return accuracy_of(predict(network, images, **options), images)


def training_batches(images: ImageSet, training: OptimizationSection, random: torch.Generator) -> Batches:
    """Make the batches of a classifier, augmented and mixed as the settings say.

    Raises:
        InputError: an augmentation that these images cannot have.
    """
    changes = augment(
        training.augment,
        crop_scale=training.crop_scale,
        randaugment=training.randaugment,
        color_jitter=training.color_jitter,
        random_erasing=training.random_erasing,
        fill=images.mean,
    )
    colours = training.randaugment or training.color_jitter
    if changes is not None and (images.is_vectors or (colours and images.channels not in (1, 3))):
        held = "vectors" if images.is_vectors else f"images of {images.channels} channels"
        raise InputError(f"{images.name} holds {held}, which cannot be augmented so; set `augment` to none")
    mixing = Mixing(training.mixup, training.cutmix, len(images.class_names))
    mixes = bool(training.mixup or training.cutmix)
    return Batches(images, training.batch_size, random, augment=changes, mixing=mixing if mixes else None)


def classifier_trainer(
    network: nn.Module,
    images: ImageSet,
    training: OptimizationSection,
    *,
    seed: int,
    stream: str = "batches",
    **options: Any,
) -> SupervisedTrainer:
    """Make the trainer of a classifier; the order of the batches has a stream of its own.

    `options` are those of `SupervisedTrainer` that are no settings of the spec: head, memory layout, compilation.
    """
    batches = training_batches(images, training, generator(seed, stream))
    loss = cross_entropy(images, label_smoothing=training.label_smoothing, class_weights=training.class_weights)
    return SupervisedTrainer(network, batches, loss, **training.trainer_options(), **options)
