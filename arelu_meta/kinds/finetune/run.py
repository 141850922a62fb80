"""One fine-tuning run: someone's network, its weights, new activations and a new head, trained on a target."""

import math
from dataclasses import replace

from arelu_meta import data
from arelu_meta.console import progress
from arelu_meta.data import splits
from arelu_meta.data.files.image_cache import keep_decoded
from arelu_meta.data.splits import SUBSETS, Split
from arelu_meta.kinds.classify.run import accuracy_measure, classifier_trainer
from arelu_meta.kinds.execution import BatchExecution
from arelu_meta.kinds.finetune.result import FineTuneResult
from arelu_meta.kinds.finetune.spec import NO_WEIGHTS, FineTuneSpec
from arelu_meta.kinds.images import check_classes, divide, reader_options
from arelu_meta.kinds.sections import ImageShapeSection
from arelu_meta.kinds.session import machine, to_device
from arelu_meta.kinds.supervised import Prepared, run_supervised
from arelu_meta.pretrained.assembly import Assembled, assemble, check_takes, fit_to_inputs
from arelu_meta.pretrained.networks import ModelSource, find_model, published_crop, published_size
from arelu_meta.pretrained.weights import check_named_file


def run_finetune(spec: FineTuneSpec, execution: BatchExecution, bar: progress.Bar) -> FineTuneResult:
    """Fine-tune and test; everything that wrong input can break is built before a run is opened in the store."""
    with machine(execution) as device:
        split, assembled = prepare(spec, root=execution.data_root or None, bar=bar)
        split = to_device(split, device, execution)
        trainer = classifier_trainer(
            assembled.network.to(device),
            split.train,
            spec.training,
            seed=spec.seed,
            head=assembled.head,
            keep_statistics=spec.network.keep_statistics,
            **execution.trainer_options(),
        )
        agreement, report = assembled.agreement, assembled.report
        result: FineTuneResult = run_supervised(
            spec,
            execution,
            bar,
            Prepared(split, trainer, accuracy_measure(trainer.loss, result=FineTuneResult)),
            name=f"{spec.network.activation}-{spec.network.model}-{split.train.name}-seed{spec.seed}",
            shape=spec.input,
            crop_pct=assembled.inputs.crop_pct,
            tags={
                "head": assembled.head,
                "weights_digest": assembled.weights.digest if assembled.weights.state else NO_WEIGHTS,
                "inputs": str(assembled.inputs),
            },
            start_metrics={} if agreement is None else {"start/agreement": agreement},
            start_texts={} if report is None else {"surgery.txt": f"{report}\n"},
            details=_details(spec, assembled, split),
        )
        return result


def prepare(
    spec: FineTuneSpec, *, root: str | None = None, bar: progress.Bar = progress.silent
) -> tuple[Split, Assembled]:
    """Read and divide the images, put the network together for them, and bring them to what it takes."""
    model = find_model(spec.network.model)  # names first: images may take minutes to read
    check_named_file(spec.network.weights)
    read_as, side = _read_as(spec, model)
    options = reader_options(spec.data.dataset, spec.data.dataset_options, read_as, side=side)
    images = data.load(spec.data.dataset, root=root, **options)
    check_classes(images)
    split = divide(images, spec.data)
    split = splits.limit(
        images,
        split if spec.evaluation.validates else splits.joined(images, split),
        train=spec.data.limit_train,
        test=spec.data.limit_test,
        train_per_class=spec.amount.train_per_class,
        test_per_class=spec.amount.test_per_class,
        seed=spec.data.split_seed,
    )
    section, given = spec.network, spec.input
    assembled = assemble(
        section.model,
        images=split.validation if len(split.validation) else split.train,
        weights=section.weights,
        model_options=section.model_options,
        head=section.head,
        activation=section.activation,
        activation_options=section.activation_options,
        preserve=section.preserved,
        channels=given.channels,
        image_size=given.image_size,
        resize=given.resize,
        normalise=given.normalise,
        mean=given.mean,
        std=given.std,
        seed=spec.seed,
    )
    share = given.crop_pct or published_crop(assembled.network, model, section.weights)
    assembled = replace(assembled, inputs=replace(assembled.inputs, crop_pct=share))
    parts = {part: fit_to_inputs(getattr(split, part), assembled.inputs, resize=given.resize) for part in SUBSETS}
    parts = keep_decoded(parts, bar)
    if assembled.target_statistics:
        parts = {part: images.normalised_like(parts["train"]) for part, images in parts.items()}
    if len(parts["train"]) % spec.training.batch_size == 1:
        check_takes(assembled.network, assembled.inputs, model=section.model, batch=1)
    return replace(split, train=parts["train"], validation=parts["validation"], test=parts["test"]), assembled


def _read_as(spec: FineTuneSpec, model: ModelSource) -> tuple[ImageShapeSection, int]:
    """What files of different sizes are read as, and the side of that where no size is given.

    Where the centre is cut out of images that were scaled to more, they are read at that: pixels would be lost else.
    """
    given, side = spec.input, published_size(model, spec.network.weights) or 224
    share = given.crop_pct or published_crop(None, model, spec.network.weights)
    size = math.floor(given.image_size / share)
    return ImageShapeSection(image_size=size, resize=given.resize), math.floor(side / share)


def _details(spec: FineTuneSpec, assembled: Assembled, split: Split) -> list[tuple[str, str]]:
    """Say in a report what was put together."""
    weights = "none: an untrained network" if not assembled.weights.state else assembled.weights.source
    rows = [("weights", weights)]
    rows.append(("head", f"{assembled.head}, new, for {len(split.test.class_names)} classes"))
    if assembled.report is not None:
        report = assembled.report
        old = ", ".join(sorted({site.old for site in report.sites}))
        new = ", ".join(sorted({site.new for site in report.sites}))
        text = f"{len(report.sites)} sites from {old} to {new}, {report.parameters} parameters added"
        rows.append(("activations", text + (", started where the old ones were" if spec.network.preserved else "")))
    if assembled.agreement is not None:
        rows.append(("", f"{100 * assembled.agreement:.0f} % of its answers were the same before the tuning"))
    shape, _, statistics = str(assembled.inputs).partition(", ")
    if assembled.target_statistics:
        statistics = "the target's own statistics"
    share = assembled.inputs.crop_pct
    cut = f", the centre's {100 * share:g} % of the side" if share < 1 else ""
    rows.append(("images", f"{len(split.train)} to train, {shape}{cut}, {statistics}"))
    return rows
