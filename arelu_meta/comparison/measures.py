"""Which metrics a run of a spec leaves in the store, and which of them are shares. Nothing here imports torch."""

from arelu_meta import learners
from arelu_meta.errors import unknown
from arelu_meta.spec import FewShotSpec, Spec
from arelu_meta.spec_finetune import FineTuneSpec
from arelu_meta.spec_supervised import ClassifySpec, MeasureSection, SegmentSpec, SelectionSection, TransferSpec


def measures(spec: Spec) -> set[str]:
    """Name the metrics that can be judged, drawn or chosen by."""
    if isinstance(spec, FewShotSpec):
        tested = {"test/accuracy", "test/accuracy_by_inner_step"}
        if not learners.entry(spec.training.method).trained:
            return tested
        extra = {"validation/accuracy"} if spec.evaluation.protocol == "sound" else {"paper/best_batch_accuracy"}
        return {"train/loss", "train/accuracy"} | tested | extra
    if isinstance(spec, TransferSpec):
        stages = {
            f"{stage}/{name}" for stage in ("pretrain", "scratch", "finetune") for name in ("loss", "test_accuracy")
        }
        final = spec.evaluation.final
        rows = {f"{final}/finetune_{epoch}" for epoch in spec.report_epochs}
        return stages | rows | {f"{final}/no_pretrain", f"{final}/no_finetune"}
    if isinstance(spec, ClassifySpec | FineTuneSpec):
        final = spec.evaluation.final
        tested = {f"{final}/accuracy", f"{final}/accuracy_top5"}
        watched = {f"{part}/accuracy" for part in _watched(spec.evaluation)}
        chosen = {"validation/selected_accuracy"} if "validation/accuracy" in watched else set()
        return {"train/loss", "train/accuracy"} | watched | chosen | tested
    if isinstance(spec, SegmentSpec):
        watched = {f"{part}/dice" for part in _watched(spec.evaluation)}
        return {"train/loss", f"{spec.evaluation.final}/dice"} | watched
    return set()


def check_measure(role: str, name: str, spec: Spec) -> None:
    """Refuse a metric that no run of this kind logs."""
    if name not in measures(spec):
        raise unknown(f"{role} of the report", name, measures(spec))


def is_share(metric: str) -> bool:
    """Tell whether a metric lies between 0 and 1 and is shown in per cent.

    >>> is_share("test/accuracy"), is_share("test/finetune_20"), is_share("train/loss"), is_share("test/n")
    (True, True, False, False)
    """
    last = metric.rpartition("/")[2]
    return "accuracy" in last or "dice" in last or last.startswith(("finetune_", "no_"))


def _watched(evaluation: MeasureSection) -> set[str]:
    """What is measured after each epoch; nothing where no epoch is chosen."""
    if isinstance(evaluation, SelectionSection) and evaluation.select == "last":
        return set()
    return {"validation" if evaluation.protocol == "sound" else "test"}
