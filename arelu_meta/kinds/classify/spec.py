"""The spec of a classification run. Nothing here imports torch."""

from typing import Literal

from pydantic import model_validator

from arelu_meta.kinds.sections import (
    DataSection,
    NetworkSection,
    Spec,
)
from arelu_meta.kinds.supervised_sections import (
    FitSection,
    OptimizationSection,
    SelectionSection,
    check_patience,
    classifier_metrics,
)


class ClassifySpec(Spec):
    """Train a classifier and test it."""

    kind: Literal["classify"] = "classify"
    data: DataSection
    fit: FitSection = FitSection()
    network: NetworkSection = NetworkSection()
    training: OptimizationSection = OptimizationSection()
    evaluation: SelectionSection = SelectionSection()

    @model_validator(mode="after")
    def _consistent(self) -> "ClassifySpec":
        check_patience(self.training, self.evaluation)
        return self

    def metrics(self) -> set[str]:
        """Name the metrics of a run that can be judged, drawn or chosen by."""
        return classifier_metrics(self.evaluation)
