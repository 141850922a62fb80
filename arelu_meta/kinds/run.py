"""`run(spec)`: give it what a run is, and it does it. One module in `runs/` per kind wires the parts together."""

from typing import TypeAlias, overload

from arelu_meta import kinds
from arelu_meta.console import progress
from arelu_meta.errors import InputError
from arelu_meta.kinds.classify.result import ClassifyResult
from arelu_meta.kinds.classify.spec import ClassifySpec
from arelu_meta.kinds.execution import Execution, TrainingExecution
from arelu_meta.kinds.few_shot.result import FewShotResult
from arelu_meta.kinds.few_shot.spec import FewShotSpec
from arelu_meta.kinds.finetune.result import FineTuneResult
from arelu_meta.kinds.finetune.spec import FineTuneSpec
from arelu_meta.kinds.sections import Spec
from arelu_meta.kinds.segment.result import SegmentResult
from arelu_meta.kinds.segment.spec import SegmentSpec
from arelu_meta.kinds.transfer.result import TransferResult
from arelu_meta.kinds.transfer.spec import TransferSpec

AnyResult: TypeAlias = FewShotResult | ClassifyResult | TransferResult | SegmentResult | FineTuneResult


@overload
def run(spec: FewShotSpec, execution: Execution | None = None, *, bar: progress.Bar = ...) -> FewShotResult: ...
@overload
def run(spec: ClassifySpec, execution: Execution | None = None, *, bar: progress.Bar = ...) -> ClassifyResult: ...
@overload
def run(spec: TransferSpec, execution: Execution | None = None, *, bar: progress.Bar = ...) -> TransferResult: ...
@overload
def run(spec: SegmentSpec, execution: Execution | None = None, *, bar: progress.Bar = ...) -> SegmentResult: ...
@overload
def run(spec: FineTuneSpec, execution: Execution | None = None, *, bar: progress.Bar = ...) -> FineTuneResult: ...
@overload
def run(spec: Spec, execution: Execution | None = None, *, bar: progress.Bar = ...) -> AnyResult: ...


def run(
    spec: Spec,
    execution: Execution | None = None,
    *,
    bar: progress.Bar = progress.silent,
) -> AnyResult:
    """Train and test what the spec says, tracked in MLflow."""
    execution = execution or Execution()
    if isinstance(execution, TrainingExecution) and execution.seeds:
        raise InputError(f"seeds {execution.seeds} are several runs; use runs.seeds.run_seeds, or --seeds of a command")
    kind = kinds.entry(spec.kind)
    return kind.load()(spec, kind.execution_class.of(execution), bar)
