import numpy as np
from sklearn.datasets import load_digits as from_sklearn

from arelu_meta import data


def test_digits_are_those_of_scikit_learn():
    digits, bunch = data.load("digits"), from_sklearn()
    assert digits.images.shape == (1797, 1, 28, 28)
    np.testing.assert_array_equal(digits.labels.numpy(), bunch.target)
    assert digits.class_names == tuple("0123456789")


def test_enlarging_is_linear_interpolation():
    """By numpy, one axis after the other: pixel i lies at (i + 1/2) 8/28 - 1/2 of the original, held at its edge."""
    digits, bunch = data.load("digits"), from_sklearn()
    places = (np.arange(28) + 0.5) * 8 / 28 - 0.5
    for number in range(0, 1797, 100):
        rows = np.stack([np.interp(places, np.arange(8), column) for column in bunch.images[number].T], axis=1)
        enlarged = np.stack([np.interp(places, np.arange(8), row) for row in rows])
        np.testing.assert_allclose(digits.images[number, 0].numpy(), enlarged * 255 / 16, atol=0.51)
