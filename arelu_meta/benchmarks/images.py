"""The images that benchmarks use: the published ones where they are at hand, bundled ones otherwise."""

from arelu_meta import data
from arelu_meta.data import splits
from arelu_meta.errors import InputError


def mnist_or_digits(root: str | None) -> splits.Split:
    """MNIST as its publisher divides it, or the digits that come with scikit-learn."""
    try:
        return splits.published(data.load("mnist", root=root))
    except InputError:
        return splits.by_image(data.load("digits"))
