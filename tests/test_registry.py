import math
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from arelu_meta import classify
from arelu_meta.errors import InputError
from arelu_meta.registry import PLUGGABLE, Entry, Registry, check_accepts, load_attribute


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
        ("math:pi.nope", "unknown attribute of float 'nope'"),
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


def test_a_module_that_fails_when_it_is_imported_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "failing_module.py").write_text("raise RuntimeError('no licence\\nfound')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError) as raised:
        load_attribute("failing_module:Thing")
    assert str(raised.value) == "cannot import 'failing_module' for 'failing_module:Thing': RuntimeError: no licence"


def test_a_module_that_says_itself_what_it_needs_is_left_to_say_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    text = "from arelu_meta.errors import InputError\nraise InputError('it needs a package; install it')"
    (tmp_path / "needing_module.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError) as raised:
        load_attribute("needing_module:Thing")
    assert str(raised.value) == "it needs a package; install it"


def test_a_module_that_ends_the_program_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "ending_module.py").write_text("import sys\nsys.exit(0)")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match="cannot import 'ending_module' for 'ending_module:Thing': SystemExit: 0"):
        load_attribute("ending_module:Thing")


def test_what_is_no_implementation_is_not_registered(shapes: Registry[Entry]):
    with pytest.raises(InputError, match="shape 'zz' is a int; register a class or a function"):
        shapes.add(Entry("zz", 5))


def test_what_is_given_by_place_or_itself_has_an_entry():
    places = Registry("place", Entry)
    assert places.find("math:sqrt").load() is math.sqrt
    assert places.find(len) == Entry("len", len)
    with pytest.raises(InputError, match="unknown place 'math'; known: none"):
        places.find("math")
    with pytest.raises(InputError, match="math:pi is a float, not a class or a function"):
        places.find("math:pi").load()


def test_options_are_those_of_the_signature():
    def takes(size: int, *, depth: int = 1) -> None: ...

    def takes_all(size: int, **options: object) -> None: ...

    check_accepts("it", takes, ["depth"], given=["size"])
    check_accepts("it", takes_all, ["depth"], given=["size"])
    check_accepts("it", dict.update, ["anything"])  # written in C, and silent about its parameters
    with pytest.raises(InputError, match="unknown option of it: 'dept'; did you mean 'depth'"):
        check_accepts("it", takes, ["dept"], given=["size"])
    for function in (takes, takes_all):
        with pytest.raises(InputError, match="unknown option of it: 'size'"):
            check_accepts("it", function, ["size"], given=["size"])
    with pytest.raises(InputError, match="it takes no argument 'colour'; it is called with size=, colour="):
        check_accepts("it", takes, [], given=["size", "colour"])


def install(folder: Path, name: str, points: str, **modules: str) -> None:
    """Lay out what pip would have installed: metadata with entry points, and modules."""
    metadata = folder / f"{name}-1.5.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
    (metadata / "entry_points.txt").write_text(points)
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)


MODULE = """
import torch
from torch import nn
from arelu_meta.learners.prototypes import ProtoNet

class Squareplus(nn.Module):
    def forward(self, x):
        return (x + (x * x + 4).sqrt()) / 2

class Linear(nn.Sequential):
    def __init__(self, activation, channels, image_size, classes):
        super().__init__(nn.Flatten(), nn.Linear(channels * image_size[0] * image_size[1], classes), activation())

class Half(ProtoNet):
    needs_training = False

def squares(count=4):
    return torch.arange(count, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 8, 8), torch.arange(count) % 2
"""
POINTS = """
[arelu_meta.activations]
squareplus = plugged:Squareplus
relu = plugged:Squareplus
twice = plugged:Squareplus
broken = plugged_no_more:Thing

[arelu_meta.backbones]
linear = plugged:Linear [images]

[arelu_meta.learners]
half = plugged:Half

[arelu_meta.datasets]
squares = plugged:squares
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    install(folder, "plugged", POINTS, plugged=MODULE)
    install(folder, "rival", "[arelu_meta.activations]\ntwice = rival:Twice\nsquareplus = plugged:Squareplus\n")
    return folder


@pytest.fixture
def found_here(
    installed: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Have this process find them: registries look once."""
    elsewhere = tmp_path_factory.mktemp("packages") / "site"
    installed.rename(elsewhere)  # out of the working folder, where nothing is to be left
    monkeypatch.syspath_prepend(elsewhere)
    for registry in PLUGGABLE:
        vars(registry).pop("_plugins", None)
    yield
    for registry in PLUGGABLE:
        vars(registry).pop("_plugins", None)


Python = Callable[..., subprocess.CompletedProcess[str]]


def test_entry_points_are_parts_like_others(installed: Path, python: Python, root: Path):
    """Squareplus at 0 is sqrt(4) / 2 = 1; the name relu still means ours, which is 0 at -1."""
    code = """if True:
        import torch
        from arelu_meta import activations, backbones, data, learners
        from arelu_meta.kinds.few_shot.spec import FewShotSpec
        from arelu_meta.kinds.few_shot.settings import build_learner
        print(activations.build("squareplus")(torch.zeros(1)).item(), activations.build("relu")(-torch.ones(1)).item())
        print(data.load("squares", count=6).images.shape, data.is_local("squares"))
        print(learners.entry("half").needs_training, learners.entry("half").by_gradient)
        network = {"backbone": "linear", "activation": "squareplus"}
        spec = FewShotSpec(task="t", data={"dataset": "squares"}, network=network, training={"method": "maml"})
        print(type(build_learner(spec, 1, (8, 8)).network).__name__)
    """
    done = python("-c", code, PYTHONPATH=f"{root}{os.pathsep}{installed}")
    assert done.stdout.splitlines() == ["1.0 0.0", "torch.Size([6, 1, 8, 8]) True", "False False", "Linear"], (
        done.stderr
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("broken", "plug-in 'broken' of plugged 1.5: cannot import 'plugged_no_more' for 'plugged_no_more:Thing'"),
        ("twice", "activation 'twice' is in plugged 1.5 (plugged:Squareplus) and rival 1.5 (rival:Twice); uninstall"),
        ("squareplu", "unknown activation 'squareplu'; did you mean 'squareplus'?"),
    ],
)
@pytest.mark.usefixtures("found_here")
def test_what_no_name_leads_to_is_one_line(refused: Callable[..., str], name: str, message: str):
    assert message in refused(classify.main, ["--activation", name])


def test_the_list_says_where_they_come_from_and_imports_none(installed: Path, python: Python, root: Path):
    code = """if True:
        import sys
        from arelu_meta.__main__ import main
        main([])
        print(sorted({"torch", "mlflow", "plugged"} & set(sys.modules)))
    """
    done = python("-c", code, PYTHONPATH=f"{root}{os.pathsep}{installed}")
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
    section = done.stdout.partition("\nplug-ins")[2]
    rows = {line.split()[0]: line.split()[1:] for line in section.splitlines() if line.strip()}
    assert rows["squareplus"] == ["activation", "plugged:Squareplus", "plugged", "1.5"]
    assert rows["linear"] == ["backbone", "plugged:Linear", "plugged", "1.5"]
    assert rows["half"] == ["method", "plugged:Half", "plugged", "1.5"]
    assert rows["squares"] == ["dataset", "plugged:squares", "plugged", "1.5"]
    assert "activation 'relu' of plugged 1.5: the name is taken here" in section
    assert "activation 'twice' is in plugged 1.5 (plugged:Squareplus) and rival 1.5 (rival:Twice)" in section
