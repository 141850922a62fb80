"""All kinds of specs by the `kind` their task files name."""

from typing import get_args

from arelu_meta.spec import FewShotSpec, Spec
from arelu_meta.spec_finetune import FineTuneSpec
from arelu_meta.spec_supervised import ClassifySpec, SegmentSpec, TransferSpec

SPEC_KINDS: dict[str, type[Spec]] = {
    get_args(spec.model_fields["kind"].annotation)[0]: spec
    for spec in (FewShotSpec, ClassifySpec, TransferSpec, SegmentSpec, FineTuneSpec)
}
