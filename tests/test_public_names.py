"""The names a notebook starts from: pinned, importable without torch, and documented where they are called."""

import dataclasses
import importlib
import inspect
import re
import subprocess
from collections.abc import Callable

import pytest
from pydantic import BaseModel

import arelu_meta

# What is added here is promised to users; what is taken out breaks their code.
PUBLIC = {
    "arelu_meta": """
        AReLU AdaptSpec ClassifySpec Episode EpisodeSampler Execution FewShotClassifier FewShotSpec FineTuneClassifier
        FineTuneSpec ImageSet InputError RunError SegmentSpec TransferSpec curves judge load load_model restore results
        run swap
    """,
    "arelu_meta.activations": "Activation ActivationEntry Factory build entries factory names register",
    "arelu_meta.analysis": """
        Analysis Arm ArmComparison Estimate Findings Outcome PairedDifference PairedTest analyse detectable_difference
        equivalence_p exact_proportion_interval holm mean_interval paired_difference probability_of_improvement
        proportion_interval seeds_needed
    """,
    "arelu_meta.backbones": "Backbone BackboneEntry build check_options entries is_pretrained names register",
    "arelu_meta.comparison": """
        Cell ComparisonResult Experiment Pool RayCluster curves expand read_experiment results
        run_comparison
    """,
    "arelu_meta.data": "Dataset DatasetEntry check_options entries is_local load names register",
    "arelu_meta.estimators": "FewShotClassifier FineTuneClassifier",
    "arelu_meta.learners": "LearnerEntry Method build check_engine engines entries entry names register",
    "arelu_meta.metrics": """
        accuracy confusion_matrix dice largest_component mean_squared_error top_k_accuracy volume_dice
    """,
    "arelu_meta.pretrained": """
        Assembled FeatureNetwork Weights assemble build_network feature_network find_head find_model load_weights
        read_weights replace_head
    """,
    "arelu_meta.surgery": "LeftReport SiteReport SwapReport restore swap",
}
NAMES = [(package, name) for package, names in PUBLIC.items() for name in names.split()]
# Classes that functions give back or raise, aliases of types, a module: nobody calls them.
NOT_CALLED = """
    Activation ActivationEntry Analysis Arm ArmComparison Assembled Backbone BackboneEntry Cell ComparisonResult Dataset
    DatasetEntry Estimate Experiment Factory FeatureNetwork InputError LearnerEntry LeftReport Method Outcome
    PairedDifference PairedTest RunError SiteReport SwapReport Weights engines
"""
WITHOUT_EXAMPLE = """
    Execution Pool RayCluster assemble build_network load_weights
"""  # the examples of `run`, `find_model` and `read_weights` lead to them


@pytest.mark.parametrize("package", PUBLIC)
def test_public_names_are_pinned(package: str):
    assert sorted(importlib.import_module(package).__all__) == sorted(PUBLIC[package].split())


@pytest.mark.parametrize(("package", "name"), NAMES)
def test_every_public_name_is_documented_where_it_is_called(package: str, name: str):
    """A sentence; what each parameter is (of a spec: each field); an example."""
    thing = getattr(importlib.import_module(package), name)
    text = inspect.getdoc(thing) or ""
    assert text
    if name in NOT_CALLED.split():
        return
    if inspect.isclass(thing) and issubclass(thing, BaseModel):
        assert undescribed(thing) == set()
    elif parameters := inspect.signature(thing).parameters:
        described = re.findall(r"^ +\**(\w+)(?: \([^)]*\))?:", text.partition("Args:")[2], re.MULTILINE)
        assert set(parameters) <= set(described)
        assert (">>> " in text) != (name in WITHOUT_EXAMPLE.split())


@pytest.mark.parametrize(("package", "name"), NAMES)
def test_what_a_public_function_gives_back_is_said(package: str, name: str):
    """Under `Returns:`; by the sentence alone where it takes nothing, by its class where that is public too."""
    thing = getattr(importlib.import_module(package), name)
    if not inspect.isfunction(thing) or not inspect.signature(thing).parameters:
        return
    given = str(inspect.signature(thing).return_annotation).strip("'")
    public = {other for _, other in NAMES}
    if given not in ("None", "<class 'NoneType'>") and given.rpartition(".")[2].rstrip("'>") not in public:
        assert re.search("^Returns:$", inspect.getdoc(thing) or "", re.MULTILINE)


@pytest.mark.parametrize(("package", "name"), NAMES)
def test_fields_and_methods_of_public_classes_are_documented(package: str, name: str):
    """Of a dataclass each field, in its docstring or below it; of each method a sentence that names its parameters."""
    thing = getattr(importlib.import_module(package), name)
    if not inspect.isclass(thing):
        return
    text = inspect.getdoc(thing) or ""
    if dataclasses.is_dataclass(thing):
        code = "".join(inspect.getsource(base) for base in thing.__mro__ if dataclasses.is_dataclass(base))
        below = set(re.findall(r'^    (\w+):[^\n]*\n    """', code, re.MULTILINE))
        named = set(re.findall(r"\w+", text))
        assert {field.name for field in dataclasses.fields(thing)} - below - named == set()
    for method, value in vars(thing).items():
        function = getattr(value, "__func__", value)
        if method.startswith("_") or not inspect.isfunction(function):
            continue
        said = inspect.getdoc(function) or inspect.getdoc(getattr(thing, method)) or ""
        assert set(inspect.signature(function).parameters) - {"self", "cls"} <= set(re.findall(r"\w+", said)), method


def undescribed(model: type[BaseModel]) -> set[str]:
    """Fields of a model and of its sections that say nothing of themselves; what a task file says of itself is none."""
    found = {name for name, field in model.model_fields.items() if not field.description}
    for name, field in model.model_fields.items():
        if inspect.isclass(field.annotation) and issubclass(field.annotation, BaseModel):
            found = (found - {name}) | undescribed(field.annotation)
    return found - {"task", "kind", "version", "summary"}


def test_importing_the_package_loads_nothing_heavy(python: Callable[..., subprocess.CompletedProcess[str]]):
    code = (
        "import sys, arelu_meta; dir(arelu_meta); print({'torch', 'mlflow', 'pandas', 'pydantic'} & set(sys.modules))"
    )
    assert python("-c", code).stdout == "set()\n"


def test_names_are_those_of_their_modules():
    from arelu_meta.activations.arelu import AReLU
    from arelu_meta.data import load

    assert arelu_meta.AReLU is AReLU
    assert arelu_meta.load is load
    assert set(arelu_meta.__all__) <= set(dir(arelu_meta))


def test_other_names_are_refused():
    with pytest.raises(AttributeError, match="module 'arelu_meta' has no attribute 'Arelu'"):
        _ = arelu_meta.Arelu
