import pytest

from arelu_meta.comparison.selection import check_only, is_same, read_only
from arelu_meta.errors import InputError


def test_only_gathers_values_of_an_axis():
    assert read_only(["lr=1e-4", "activation=relu,arelu", "lr=0.1"]) == {
        "lr": ("1e-4", "0.1"),
        "activation": ("relu", "arelu"),
    }
    for word in ("activation", "activation="):
        with pytest.raises(InputError, match="not of the form"):
            read_only([word])


def test_numbers_are_compared_as_numbers():
    assert is_same(0.0001, "1e-4")
    assert is_same(5, "5.0")
    assert is_same(True, "true")
    assert not is_same("1", "1.0")
    assert not is_same(1.0, "relu")


def test_unknown_axes_and_values():
    grid = {"activation": ("relu", "arelu"), "lr": (0.1, 0.01)}
    check_only({"activation": ("relu",), "lr": ("1e-1",)}, grid)
    with pytest.raises(InputError, match="--only shots: no such axis; axes here: activation, lr"):
        check_only({"shots": ("1",)}, grid)
    with pytest.raises(InputError, match="no such value; known: relu, arelu"):
        check_only({"activation": ("arleu",)}, grid)
