"""`run(spec)`: give it what a run is, and it does it. One module in `runs/` per kind wires the parts together."""

from typing import TypeAlias, overload

from arelu_meta import progress
from arelu_meta.errors import InputError
from arelu_meta.outcomes.classify import ClassifyResult
from arelu_meta.outcomes.few_shot import FewShotResult
from arelu_meta.outcomes.finetune import FineTuneResult
from arelu_meta.outcomes.segment import SegmentResult
from arelu_meta.outcomes.transfer import TransferResult
from arelu_meta.runs.classify import run_classify
from arelu_meta.runs.few_shot import run_few_shot
from arelu_meta.runs.finetune import run_finetune
from arelu_meta.runs.segment import run_segment
from arelu_meta.runs.transfer import run_transfer
from arelu_meta.spec import Execution, FewShotSpec, Spec
from arelu_meta.spec_execution import EpisodeExecution, TrainingExecution
from arelu_meta.spec_finetune import FineTuneSpec
from arelu_meta.spec_supervised import ClassifySpec, SegmentSpec, TransferSpec

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
    if isinstance(spec, FewShotSpec):
        return run_few_shot(spec, EpisodeExecution.of(execution), bar)
    if isinstance(spec, ClassifySpec):
        return run_classify(spec, TrainingExecution.of(execution), bar)
    if isinstance(spec, TransferSpec):
        return run_transfer(spec, execution, bar)
    if isinstance(spec, SegmentSpec):
        return run_segment(spec, TrainingExecution.of(execution), bar)
    if isinstance(spec, FineTuneSpec):
        return run_finetune(spec, execution, bar)
    raise InputError(f"no kind of run takes a {type(spec).__name__}")
