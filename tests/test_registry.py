import math

import pytest

from arelu_meta.errors import InputError
from arelu_meta.registry import Entry, Registry, load_attribute


@pytest.fixture
def shapes() -> Registry[Entry]:
    registry = Registry[Entry]("shape")
    registry.add(Entry("square", "math:sqrt", "four sides"), Entry("circle", len))
    return registry


def test_names_in_order_of_registration(shapes: Registry[Entry]):
    assert shapes.names() == ["square", "circle"]
    assert [entry.name for entry in shapes] == ["square", "circle"]
    assert len(shapes) == 2
    assert "circle" in shapes
    assert "triangle" not in shapes


def test_targets_are_loaded_by_place_or_taken_as_they_are(shapes: Registry[Entry]):
    assert shapes["square"].load() is math.sqrt
    assert shapes["circle"].load() is len


def test_unknown_name_suggests_the_near_one(shapes: Registry[Entry]):
    with pytest.raises(InputError, match="unknown shape 'squair'; did you mean 'square'"):
        shapes["squair"]


def test_duplicates_are_refused_and_change_nothing(shapes: Registry[Entry]):
    with pytest.raises(InputError, match="shape 'square' is registered already"):
        shapes.add(Entry("square", "math:sin"))
    assert shapes["square"].load() is math.sqrt


def test_removed_entries_are_gone(shapes: Registry[Entry]):
    shapes.remove("square")
    assert shapes.names() == ["circle"]
    with pytest.raises(InputError, match="unknown shape 'square'"):
        shapes.remove("square")


def test_entries_are_frozen(shapes: Registry[Entry]):
    with pytest.raises(AttributeError):
        shapes["square"].name = "other"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("math", "'math' is not of the form package.module:attribute"),
        ("no_such_module:thing", "cannot import 'no_such_module' for 'no_such_module:thing'"),
        ("math:squirt", "unknown attribute of math 'squirt'; did you mean 'sqrt'"),
    ],
)
def test_places_that_cannot_be_loaded(target: str, message: str):
    with pytest.raises(InputError, match=message):
        load_attribute(target)


def test_a_method_of_a_class_is_reached():
    assert load_attribute("collections:OrderedDict.fromkeys")(["a"]) == {"a": None}
    with pytest.raises(InputError, match="unknown attribute of OrderedDict 'fromkey'; did you mean 'fromkeys'"):
        load_attribute("collections:OrderedDict.fromkey")
