"""Which metrics a run of a spec leaves in the store, and which of them are shares. Nothing here imports torch."""

from arelu_meta.errors import unknown
from arelu_meta.spec import FewShotSpec, Spec
from arelu_meta.spec_finetune import FineTuneSpec
from arelu_meta.spec_supervised import ClassifySpec, SegmentSpec, TransferSpec


def measures(spec: Spec) -> set[str]:
    """Name the metrics that can be judged, drawn or chosen by."""
    if isinstance(spec, FewShotSpec):
        extra = {"validation/accuracy"} if spec.evaluation.protocol == "sound" else {"paper/best_batch_accuracy"}
        return {"train/loss", "train/accuracy", "test/accuracy", "test/accuracy_by_inner_step"} | extra
    if isinstance(spec, TransferSpec):
        stages = {
            f"{stage}/{name}" for stage in ("pretrain", "scratch", "finetune") for name in ("loss", "test_accuracy")
        }
        final = spec.evaluation.final
        rows = {f"{final}/finetune_{epoch}" for epoch in spec.report_epochs}
        return stages | rows | {f"{final}/no_pretrain", f"{final}/no_finetune"}
    if isinstance(spec, ClassifySpec | FineTuneSpec):
        watched, final = _watched(spec.evaluation.protocol), spec.evaluation.final
        train = {"train/loss", "train/accuracy", f"{watched}/accuracy"}
        chosen = {"validation/selected_accuracy"} if watched == "validation" else set()
        return train | chosen | {f"{final}/accuracy", f"{final}/accuracy_top5"}
    if isinstance(spec, SegmentSpec):
        watched, final = _watched(spec.evaluation.protocol), spec.evaluation.final
        return {"train/loss", f"{watched}/dice", f"{final}/dice"}
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


def _watched(protocol: str) -> str:
    return "validation" if protocol == "sound" else "test"
