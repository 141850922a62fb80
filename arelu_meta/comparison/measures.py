"""Which metrics can be judged, and which of them are shares. Nothing here imports torch."""

from arelu_meta.errors import unknown
from arelu_meta.kinds.sections import Spec


def check_measure(role: str, name: str, spec: Spec) -> None:
    """Refuse a metric that no run of this kind logs."""
    if name not in spec.metrics():
        raise unknown(f"{role} of the report", name, spec.metrics())


def is_share(metric: str) -> bool:
    """Tell whether a metric lies between 0 and 1 and is shown in per cent.

    >>> is_share("test/accuracy"), is_share("test/finetune_20"), is_share("train/loss"), is_share("test/n")
    (True, True, False, False)
    """
    last = metric.rpartition("/")[2]
    return "accuracy" in last or "dice" in last or last.startswith(("finetune_", "no_"))
