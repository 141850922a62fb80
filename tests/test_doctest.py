"""Every example in a docstring runs and gives what it says."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import arelu_meta

MODULES = [
    "arelu_meta",
    *(module.name for module in pkgutil.walk_packages(arelu_meta.__path__, "arelu_meta.")),
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str):
    module = importlib.import_module(name)
    results = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.failed == 0
    assert (results.attempted > 0) == (">>> " in inspect.getsource(module))
