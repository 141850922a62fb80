"""Networks as traced graphs: written without a trace of the code that built them, read without running any.

A graph is an archive of torch (`.pt2`): JSON, tensors, and an example input as a pickle. `torch.export.load` unpickles
what it finds, evaluates the formulas of dimensions as Python and calls what operators name, so all of that is checked
before. What is left is arithmetic on tensors.
"""

import ast
import io
import json
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from mlflow.exceptions import MlflowException
from mlflow.models import Model
from torch import Tensor, nn
from torch.export import ExportedProgram

from arelu_meta.errors import InputError, first_line
from arelu_meta.reading import check_members, check_pickle, open_regular, parse_json, parsing
from arelu_meta.store.connection import quiet

GRAPH_FILE = "model.pt2"  # MLflow's name for it
_ALLOW_PICKLE = "MLFLOW_ALLOW_PICKLE_DESERIALIZATION"
_OPERATOR = re.compile(
    r"torch\.ops\.(aten|prims|torchvision)\.(?!from_file|save|load)\w+\.\w+|_operator\.\w+|math\.\w+|"
    r"torch\.sym_\w+|torch\.ops\.higher_order\.(wrap_with_(autocast|set_grad_enabled)|cond)"
)
_DIMENSION = frozenset(  # what torch.export writes into the formula of a dimension
    (
        *("Symbol", "Integer", "Float", "Rational", "Add", "Mul", "Pow", "Abs", "Max", "Min", "Mod", "PythonMod"),
        *("FloorDiv", "CeilDiv", "CleanDiv", "IntTrueDiv", "FloatTrueDiv", "ModularIndexing", "Where"),
        *("Equality", "Unequality", "LessThan", "GreaterThan", "StrictLessThan", "StrictGreaterThan"),
        *("And", "Or", "Not", "TruncToInt", "ToFloat", "RoundToInt", "FloorToInt", "CeilToInt"),
    )
)
_WEIGHTS = re.compile(r"[^/]+/data/weights/")  # in an archive (PyTorch's "PT2 Archive Spec"): tensors, and their names
_WEIGHTS_CONFIG = "model_weights_config.json"
_REMEDY = "store the network anew"


class KeptGraph(Protocol):
    """Where the graph of networks that differ in their tensors alone is kept, as `strip_tensors` gives it."""

    def read(self) -> bytes:
        """Give it; nothing where there is none."""

    def write(self, stripped: bytes) -> None:
        """Keep it."""


def trace(network: nn.Module, example: Tensor) -> ExportedProgram:
    """Trace a network in evaluation mode on some images, two at least; the graph takes any number of them."""
    return torch.export.export(network, (example,), dynamic_shapes=({0: torch.export.Dim.AUTO},))


def strip_tensors(graph: Path) -> bytes:
    """Give the archive of a traced graph without the tensors of its network: some kilobytes."""
    stripped = io.BytesIO()
    with zipfile.ZipFile(graph) as archive, zipfile.ZipFile(stripped, "w", zipfile.ZIP_DEFLATED) as target:
        for name in archive.namelist():
            if not _WEIGHTS.match(name) or name.endswith(_WEIGHTS_CONFIG):
                target.writestr(name, archive.read(name))
    return stripped.getvalue()


def fill_tensors(stripped: bytes, state: Mapping[str, Tensor], graph: Path) -> bool:
    """Write a graph that was stripped with the tensors of another network of the same code, which takes no trace.

    Args:
        stripped: of `strip_tensors`; its source is trusted
        state: the tensors by name, of the types that the stripped ones had
        graph: the file that is written

    Returns:
        Whether it was written; it is not where a tensor is missing, or is of another shape.
    """
    if not stripped:
        return False
    with zipfile.ZipFile(io.BytesIO(stripped)) as archive:
        config = next(name for name in archive.namelist() if _WEIGHTS.match(name))
        tensors = json.loads(archive.read(config))["config"]
        for name, described in tensors.items():
            shape = [size["as_int"] for size in described["tensor_meta"]["sizes"]]
            if described["use_pickle"] or name not in state or list(state[name].shape) != shape:
                return False
        files = {described["path_name"]: name for name, described in tensors.items()}  # shared tensors are one file
        with zipfile.ZipFile(graph, "w") as target:
            for name in archive.namelist():
                target.writestr(name, archive.read(name))
            for file, name in files.items():
                numbers = state[name].detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
                target.writestr(config.removesuffix(_WEIGHTS_CONFIG) + file, numbers.tobytes())
    return True


def read_graph(graph: Path, source: str) -> ExportedProgram:
    """Read a traced graph; an archive with code in it is refused."""
    with _checked_copy(graph, source) as copy, parsing(source, remedy=_REMEDY):
        _load_by_mlflow(copy, source)
        return torch.export.load(copy)


def read_module(graph: Path, source: str) -> nn.Module:
    """Read a traced graph as a function of images, after every record of the file was looked at.

    Raises:
        InputError: the archive holds code, or cannot be read.
    """
    with _checked_copy(graph, source) as copy, parsing(source, remedy=_REMEDY):
        return _load_by_mlflow(copy, source)


@contextmanager
def _checked_copy(graph: Path, source: str) -> Iterator[Path]:
    """Copy the graph alone into a folder of our own, and check the copy: what is read is what was checked.

    Whatever lies beside the graph, such as a `model.pth` that MLflow would prefer, stays where it is.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "data" / GRAPH_FILE
        copy.parent.mkdir()
        with parsing(source, remedy=_REMEDY, what="refused: its graph cannot be read"):
            with open_regular(graph) as file, copy.open("wb") as target:
                shutil.copyfileobj(file, target)
            check_archive(copy, source)
        yield copy


def _load_by_mlflow(copy: Path, source: str) -> nn.Module:
    """Load it by MLflow, which refuses records that torch's restricted unpickler does not take."""
    with quiet():
        import mlflow.pytorch

        wrapper = Model()
        wrapper.add_flavor("pytorch", model_data=copy.parent.name, pytorch_version=str(torch.__version__))
        wrapper.save(str(copy.parent.parent / "MLmodel"))
        before = os.environ.get(_ALLOW_PICKLE)
        os.environ[_ALLOW_PICKLE] = "false"
        try:
            module: nn.Module = mlflow.pytorch.load_model(str(copy.parent.parent))
        except MlflowException as error:
            raise InputError(f"{source} is refused: {first_line(error)}") from error
        finally:
            if before is None:
                del os.environ[_ALLOW_PICKLE]
            else:
                os.environ[_ALLOW_PICKLE] = before
    return module


def check_archive(path: Path, source: str) -> None:
    """Refuse an archive that is damaged, or whose graph names anything but operators on tensors.

    Raises:
        InputError: a record differs from its checksum, is too large, or names code.
    """
    with zipfile.ZipFile(path) as archive:
        check_members(source, archive, packed=path.stat().st_size)
        if (broken := archive.testzip()) is not None:
            raise InputError(f"{source} is damaged (a changed byte in {broken}); {_REMEDY}")
        for name in archive.namelist():
            content = archive.read(name)
            if zipfile.is_zipfile(io.BytesIO(content)):
                with zipfile.ZipFile(io.BytesIO(content)) as inner:
                    check_members(source, inner, packed=len(content))
                    content = b"".join(inner.read(each) for each in inner.namelist() if each.endswith("/data.pkl"))
            if content.startswith(b"\x80") and "/data/weights/" not in name:
                check_pickle(content, source)
            if "/models/" in name:
                if b"__enum__" in content:  # imports the module that it names
                    raise InputError(f"{source} is refused: its graph names code to import; {_REMEDY}")
                _check_names(parse_json(content.decode(), source, remedy=_REMEDY), source)


def _check_names(values: Any, source: str) -> None:
    """Walk through the JSON of a graph: operators, and formulas of dimensions."""
    left: list[Any] = [values]
    while left:
        each = left.pop()
        if isinstance(each, list):
            left += each
        elif isinstance(each, dict):
            left += each.values()
            operator, formula = each.get("target"), each.get("expr_str")
            if "inputs" in each and isinstance(operator, str) and not _OPERATOR.fullmatch(operator):
                raise InputError(f"{source} is refused: its graph calls {operator[:80]!r}; {_REMEDY}")
            if formula is not None and not _is_dimension(formula):
                raise InputError(f"{source} is refused: its graph has the dimension {formula!r:.80}; {_REMEDY}")


def _is_dimension(formula: object) -> bool:
    """Tell whether a formula is made of symbols, numbers and what torch.export combines them by, and nothing else."""
    if not isinstance(formula, str) or len(formula) > 1000:
        return False
    try:
        tree = ast.parse(formula, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    calls = (ast.Expression, ast.Load, ast.Call, ast.Name, ast.Constant, ast.keyword)
    signs = (ast.UnaryOp, ast.USub, ast.BinOp, ast.Add, ast.Sub, ast.Mult)
    for node in ast.walk(tree):
        if not isinstance(node, calls + signs):
            return False
        if isinstance(node, ast.Name) and node.id not in _DIMENSION and not re.fullmatch(r"[a-z]{1,4}\d+", node.id):
            return False
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if not re.fullmatch(r"[a-z]{1,4}\d+|-?[\d.]{1,20}", node.value):
                return False
        elif isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) >= 1 << 63:
            return False
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Pow":  # 9**9**9 would take for ever
            bases = [getattr(getattr(part, "func", None), "id", "") for part in node.args]
            if not set(bases) <= {"Symbol", "Integer"}:
                return False
    return True
