"""What a fine-tuning run gives back."""

from dataclasses import dataclass, field

from arelu_meta.kinds.classify.result import ClassifyResult


@dataclass(frozen=True, eq=False)
class FineTuneResult(ClassifyResult):
    """A fine-tuned network, its answers to the test images, and labelled lines on what it was made of."""

    start: list[tuple[str, str]] = field(default_factory=list)

    def details(self) -> list[tuple[str, str]]:
        """Say what the network was before it was tuned."""
        return self.start
