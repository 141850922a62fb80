"""One fine-tuning run: someone's network, its weights, new activations and a new head, trained on a target."""

from collections.abc import Mapping
from dataclasses import replace

import torch

from arelu_meta import data
from arelu_meta.console import progress
from arelu_meta.data.augment import augment
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.splits import SUBSETS, Split
from arelu_meta.errors import InputError
from arelu_meta.kinds.classify.run import fit_and_test, make_trainer
from arelu_meta.kinds.execution import Execution
from arelu_meta.kinds.finetune.result import FineTuneResult
from arelu_meta.kinds.finetune.spec import NO_WEIGHTS, AmountSection, FineTuneSpec
from arelu_meta.kinds.layer_log import LayerLog
from arelu_meta.kinds.session import machine, session
from arelu_meta.kinds.split import EVALUATION_SEED, divided, limited
from arelu_meta.pretrained.assembly import Assembled, assemble, check_memory, check_takes, fit_to_inputs
from arelu_meta.runtime import processes
from arelu_meta.runtime.hardware import available_memory
from arelu_meta.seeding import generator


def run_finetune(spec: FineTuneSpec, execution: Execution, bar: progress.Bar) -> FineTuneResult:
    """Fine-tune and test; everything that wrong input can break is built before a run is opened in the store."""
    with machine(execution) as device:
        augment(spec.training.augment)
        split, made = prepare(spec, root=execution.data_root or None)
        network, split = made.network.to(device), split.to(device)
        trainer = make_trainer(
            network,
            split.train,
            spec.training,
            seed=spec.seed,
            head=made.head,
            keep_statistics=spec.network.keep_statistics,
        )
        with session(
            spec,
            execution,
            bar,
            name=f"{spec.network.activation}-{spec.network.model}-{split.train.name}-seed{spec.seed}",
            tags={
                "device": str(device),
                "data_digest": split.train.digest,
                "head": made.head,
                "weights_digest": made.weights.digest if made.weights.state else NO_WEIGHTS,
                "inputs": str(made.inputs),
            },
            datasets={part: getattr(split, part) for part in SUBSETS},
            split=split,
        ) as opened:
            if processes.rank() == 0:
                if made.report is not None:
                    opened.tracker.log_text(f"{made.report}\n", "surgery.txt")
                if made.agreement is not None and opened.checkpoint is None:
                    opened.tracker.log_metrics({"start/agreement": made.agreement}, 0)
            layers = LayerLog(network, split.train, trainer.loss, enabled=False)
            result = fit_and_test(spec, trainer, split, layers, opened)
            return FineTuneResult(**vars(result), start=_lines(spec, made, split))


def prepare(spec: FineTuneSpec, *, root: str | None = None) -> tuple[Split, Assembled]:
    """Read and divide the images, put the network together for them, and bring them to what it takes."""
    images = data.load(spec.data.dataset, root=root, **spec.data.dataset_options)
    if len(images.class_names) < 2:
        raise InputError(f"{images.name} has one class, {images.class_names[0]!r}; a classifier needs two or more")
    split = kept(limited(images, divided(images, spec.data), spec.data), spec.amount)
    section, given = spec.network, spec.input
    made = assemble(
        section.model,
        images=split.validation,
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
    check_memory(sum(len(getattr(split, part)) for part in SUBSETS), made.inputs, memory=available_memory())
    parts = {part: fit_to_inputs(getattr(split, part), made.inputs, resize=given.resize) for part in SUBSETS}
    if made.target_statistics:
        parts = {part: images.normalised_like(parts["train"]) for part, images in parts.items()}
    if len(parts["train"]) % spec.training.batch_size == 1:
        check_takes(made.network, made.inputs, model=section.model, batch=1)
    return with_parts(split, parts), made


def kept(split: Split, amount: AmountSection) -> Split:
    """Keep so many images of each class, drawn by a stream of their own: the same for every seed and arm."""
    limits = {"train": amount.train_per_class, "validation": amount.test_per_class, "test": amount.test_per_class}
    parts: dict[str, ImageSet] = {}
    indices = dict(split.indices)
    for part, limit in limits.items():
        images: ImageSet = getattr(split, part)
        if limit is not None:
            order = torch.randperm(len(images), generator=generator(EVALUATION_SEED, f"kept/{part}"))
            labels = images.labels[order]
            chosen = torch.cat([order[labels == label][:limit] for label in range(len(images.class_names))])
            chosen = chosen.sort().values
            images, indices[part] = images.subset(chosen), indices[part][chosen]
        parts[part] = images
    return replace(with_parts(split, parts), indices=indices)


def with_parts(split: Split, parts: Mapping[str, ImageSet]) -> Split:
    """Put other images in the place of a split's parts."""
    return replace(split, train=parts["train"], validation=parts["validation"], test=parts["test"])


def _lines(spec: FineTuneSpec, made: Assembled, split: Split) -> list[tuple[str, str]]:
    """Say in a report what was put together."""
    weights = "none: an untrained network" if not made.weights.state else made.weights.source
    lines = [("weights", weights)]
    lines.append(("head", f"{made.head}, new, for {len(split.test.class_names)} classes"))
    if made.report is not None:
        report = made.report
        old = ", ".join(sorted({site.old for site in report.sites}))
        new = ", ".join(sorted({site.new for site in report.sites}))
        text = f"{len(report.sites)} sites from {old} to {new}, {report.parameters} parameters added"
        lines.append(("activations", text + (", started where the old ones were" if spec.network.preserved else "")))
    if made.agreement is not None:
        lines.append(("", f"{100 * made.agreement:.0f} % of its answers were the same before the tuning"))
    statistics = "the target's own statistics" if made.target_statistics else str(made.inputs).partition(", ")[2]
    shape = str(made.inputs).partition(", ")[0]
    lines.append(("images", f"{len(split.train)} to train, {shape}, {statistics}"))
    return lines
