"""The spec of a classification run. Nothing here imports torch."""

from typing import Literal

from arelu_meta.kinds.sections import DataSection, InputSection, NetworkSection
from arelu_meta.kinds.supervised_spec import OptimizationSection, SelectionSection, SupervisedSpec


class ClassifySpec(SupervisedSpec):
    """Train a classifier from scratch and test it.

    Args:
        task: the name of the task, which the run is called after.
        data: the image set and how it is divided.
        fit: the shape that the images are brought to.
        network: backbone and activation.
        training: optimizer, epochs, augmentation.
        evaluation: protocol and choice of the epoch.
        seed: seed of every random stream.

    Raises:
        InputError: a setting is unknown, out of range, or does not go with another.

    Example:
        >>> spec = ClassifySpec(task="mine", data={"dataset": "digits"}, training={"epochs": 3})
        >>> spec.network.activation, spec.training.lr, sorted(spec.metrics())[:2]
        ('arelu', 0.01, ['test/accuracy', 'test/accuracy_top5'])
    """

    kind: Literal["classify"] = "classify"
    data: DataSection
    fit: InputSection = InputSection()
    network: NetworkSection = NetworkSection()
    training: OptimizationSection = OptimizationSection()
    evaluation: SelectionSection = SelectionSection()
