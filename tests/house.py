"""Sizes of the package, as a reader meets them.

python -m tests.house [FOLDER]      FOLDER holds another checkout's arelu_meta
"""

import ast
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def trees(package: Path) -> dict[Path, ast.Module]:
    """Every module of the package, parsed."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(package.rglob("*.py"))}


def length(node: Definition) -> int:
    """Lines from `def` to the end, docstring included."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All functions and methods, those inside others too."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def public(tree: ast.Module) -> Iterator[Definition]:
    """Functions, classes and methods that a name without underscore leads to."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        for node in ast.iter_child_nodes(waiting.pop()):
            if isinstance(node, Definition) and not node.name.startswith("_"):
                yield node
                if isinstance(node, ast.ClassDef):
                    waiting.append(node)


def measure(package: Path) -> dict[str, float]:
    """All figures by name."""
    parsed = trees(package)
    files = [path.read_text(encoding="utf-8").count("\n") for path in parsed]
    sizes = [length(node) for tree in parsed.values() for node in functions(tree)]
    documented = [text for tree in parsed.values() for node in public(tree) if (text := ast.get_docstring(node))]
    return {
        "modules": len(files),
        "modules at the top": sum(path.parent == package for path in parsed),
        "lines": sum(files),
        "file, median": statistics.median(files),
        "file, largest": max(files),
        "functions": len(sizes),
        "function, median": statistics.median(sizes),
        "function, largest": max(sizes),
        "public names defined twice": len(doubled(package)),
        "docstrings of public names": len(documented),
        "docstrings of one line": sum("\n" not in text for text in documented),
        "docstrings with parameters": sum("Args:" in text or "Parameters:" in text for text in documented),
        "docstrings with an example": sum(">>>" in text for text in documented),
    }


def doubled(package: Path) -> dict[str, set[str]]:
    """Public names that are defined in more than one module; registries and commands share theirs on purpose."""
    places: dict[str, set[str]] = {}
    for path, tree in trees(package).items():
        if path.stem.startswith("__") or path.parent == package:
            continue
        for node in tree.body:
            if isinstance(node, Definition) and not node.name.startswith("_"):
                places.setdefault(node.name, set()).add(str(path.relative_to(package)))
    return {name: paths for name, paths in places.items() if len(paths) > 1}


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".") / "arelu_meta"
    for name, value in measure(folder).items():
        sys.stdout.write(f"{name:<28} {value:g}\n")
