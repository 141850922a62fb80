"""What a fine-tuning run gives back."""

from dataclasses import dataclass

from arelu_meta.kinds.classify.result import ClassifyResult


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class FineTuneResult(ClassifyResult):
    """A fine-tuned network and its answers to the test images; `details` say what it was before it was tuned."""

    @property
    def goal(self) -> str:
        """What was to be learned: a task of this kind is a recipe for any images."""
        return self.spec.data.dataset
