"""Imports point downwards only, and what the command line needs to answer imports no torch."""

import ast
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

# From the ground up; a module imports from lower layers and from its own package, from nothing beside or above it.
LAYERS = (
    {"__init__", "errors"},
    {"reading", "runtime", "trust"},
    {"analysis", "console", "kernels", "metrics", "registry", "seeding"},
    {"activations", "data"},
    {"backbones", "surgery"},
    {"learners"},
    {"pictures", "store", "training"},
    {"pretrained"},
    {"kinds"},
    {"estimators", "reporting"},
    {"benchmarks", "comparison"},
    {
        *("__main__", "adapt", "bench", "classify", "compare", "completion", "export", "finetune", "judge", "look"),
        *("lr_view", "maml", "paper", "predict", "segment", "survey"),
    },
)
HEIGHT = {part: height for height, layer in enumerate(LAYERS) for part in layer}
LIGHT = [
    "activations",
    "adapt",
    "backbones",
    "bench",
    "benchmarks",
    "analysis.estimates",
    "classify",
    "compare",
    "comparison",
    "completion",
    "comparison.cells",
    "comparison.experiment",
    "comparison.pool",
    "comparison.ray",
    "comparison.validation",
    "comparison.worker",
    "console.catalog",
    "console.completion",
    "console.flags",
    "console.output",
    "console.tables",
    "data",
    "errors",
    "export",
    "finetune",
    "judge",
    "kinds.adapt.spec",
    "kinds.classify.spec",
    "kinds.command",
    "kinds.execution",
    "kinds.few_shot.spec",
    "kinds.finetune.spec",
    "kinds.sections",
    "kinds.segment.spec",
    "kinds.supervised_spec",
    "kinds",
    "kinds.transfer.spec",
    "learners",
    "look",
    "lr_view",
    "registry",
    "segment",
    "store.sources",
    "__main__",
    "maml",
    "paper.__main__",
    "paper.campaign",
    "predict",
]


def part_of(path: Path, package: Path) -> str:
    return path.relative_to(package).parts[0].removesuffix(".py")


def imported_parts(path: Path, package: Path) -> Iterator[str]:
    """The parts of arelu_meta that a file imports, wherever in the file that is."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            first, *rest = name.split(".")
            if first == "arelu_meta":
                inside = rest and ((package / rest[0]).is_dir() or (package / f"{rest[0]}.py").is_file())
                yield rest[0] if inside else "__init__"


def test_every_part_has_a_layer(root: Path):
    parts = {part_of(path, root / "arelu_meta") for path in (root / "arelu_meta").rglob("*.py")}
    assert parts == set(HEIGHT), "put new parts into LAYERS, take removed ones out"


def test_imports_point_downwards(root: Path):
    package = root / "arelu_meta"
    upwards = [
        f"{path.relative_to(package)} imports {other}"
        for path in sorted(package.rglob("*.py"))
        for other in imported_parts(path, package)
        if other != part_of(path, package) and HEIGHT[other] >= HEIGHT[part_of(path, package)]
    ]
    assert upwards == []


def test_the_walk_sees_imports(root: Path):
    """So that the test above cannot pass for want of looking."""
    package = root / "arelu_meta"
    assert {"learners", "data", "training", "store"} <= set(
        imported_parts(package / "kinds" / "few_shot" / "run.py", package)
    )
    assert "reporting" in set(imported_parts(package / "compare.py", package))  # inside a function


def test_light_parts_import_no_torch(python: Callable[..., subprocess.CompletedProcess[str]]):
    """In one process: what a part alone would load is loaded once all are, and the first that loads it is named."""
    code = """
import importlib, sys
for part in sys.argv[1:]:
    importlib.import_module(f"arelu_meta.{part}")
    if loaded := sorted({"torch", "mlflow", "matplotlib"} & set(sys.modules)):
        sys.exit(f"{part} loads {loaded}")
print(len(sys.argv[1:]), "parts")
"""
    done = python("-c", code, *LIGHT)
    assert done.stdout == f"{len(LIGHT)} parts\n", done.stderr


def test_a_runner_of_comparisons_loads_no_torch(python: Callable[..., subprocess.CompletedProcess[str]]):
    """Its workers do; it would only start later."""
    done = python("-c", "import sys, arelu_meta.comparison.runner; print('torch' in sys.modules)")
    assert done.stdout == "False\n", done.stderr
