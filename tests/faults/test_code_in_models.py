"""Crafted models, runs and tasks that ran code when they were opened: each is one line now, and nothing runs.

Every one of them would create the file `owned` in the working folder.
"""

import json
import re
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import mlflow
import pytest
import torch
from torch import nn

from arelu_meta import compare, export, finetune, look, maml
from arelu_meta.data.inputs import Inputs
from arelu_meta.errors import InputError
from arelu_meta.kinds.few_shot.model import FewShotModel
from arelu_meta.store.graphs import read_graph, read_module, trace
from arelu_meta.store.models import WEIGHTS_FILE, save_weights
from arelu_meta.trust import TRUST, check_trusted, check_values, registered_only
from tests.tiny_model import images, tiny_model
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = MLFLOW_WARNINGS
CODE = "open('owned', 'w').close()"
TOUCH = {"command": "touch owned"}  # the argument of os.system
MLMODEL = """
flavors:
  python_function: {loader_module: LOADER, data: data/model, code: code}
  pytorch: {model_data: data/model, code: code}
model_uuid: 0
run_id: null
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(TRUST, raising=False)
    return tmp_path


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2)).eval()
    path = tmp_path_factory.mktemp("graph") / "model.pt2"
    torch.export.save(trace(network, torch.rand(2, 1, 2, 2)), path)
    return path


def stored_network(folder: Path, graph: Path) -> Path:
    """An MLflow model as runs store it, with a folder of code of its own."""
    data = folder / "stored" / "data" / "model"
    data.mkdir(parents=True)
    (data / "model.pt2").write_bytes(graph.read_bytes())
    weights = {"1.weight": torch.zeros(2, 4), "1.bias": torch.zeros(2)}
    save_weights({**weights, **torch.export.load(graph).state_dict}, data / WEIGHTS_FILE, Inputs(1, 2), ("a", "b"))
    (folder / "stored" / "MLmodel").write_text(MLMODEL.replace("LOADER", "arelu_meta.store.served"))
    (folder / "stored" / "code").mkdir()
    return folder / "stored"


def changed(graph: Path, target: Path, record: str, change: Callable[[bytes], bytes]) -> Path:
    """Write the archive anew with another record, its checksums right."""
    with zipfile.ZipFile(graph) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, change(content) if name.endswith(record) else content)
    return target


def test_export_a_pickle_module_of_the_models_own(folder, graph, monkeypatch, capsys):
    """(A) MLflow prefers `model.pth` to the graph, and imports the pickle module that lies beside it."""
    model = stored_network(folder, graph)
    (model / "code" / "owned_pickle.py").write_text(CODE)
    (model / "data/model/model.pth").write_bytes(b"")
    (model / "data/model/pickle_module_info.txt").write_text("owned_pickle")
    monkeypatch.syspath_prepend(model / "code")
    assert export.main([str(model), "--output", "out"]) == 0, capsys.readouterr().err
    assert not (folder / "owned").exists()
    assert "owned_pickle" not in sys.modules


@pytest.mark.parametrize("record", ["sample_inputs/model.pt", "weights/weight_0"])
def test_export_a_pickle_in_the_graph(folder, graph, record, capsys):
    """(B) What torch.export.load reads is the file that was looked at, with its pickles."""
    model = stored_network(folder, graph)
    crafted = folder / "crafted.pt2"
    torch.save(Mischief(), folder / "pickle.pt")
    changed(graph, crafted, record, lambda _: (folder / "pickle.pt").read_bytes())
    if record.startswith("weights"):
        changed(crafted, folder / "again.pt2", "weights_config.json", lambda text: text.replace(b": false", b": true"))
        crafted = folder / "again.pt2"
    (model / "data/model/model.pt2").write_bytes(crafted.read_bytes())
    (model / "MLmodel").write_text(
        (model / "MLmodel").read_text().replace("model_data: data/model", "model_data: clean")
    )
    assert export.main([str(model), "--output", "out"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "is refused" in line
    assert not (folder / "owned").exists()
    torch.load(folder / "pickle.pt", weights_only=False)
    assert (folder / "owned").exists()  # it is no dud


class Mischief:
    """What a pickle can do when it is opened."""

    def __reduce__(self):
        return exec, (CODE,)


def test_export_a_module_in_the_way_of_another(folder, graph, capsys):
    """(C) `code:` put the model's folder first on sys.path, where the exporter to ONNX looks for its modules."""
    model = stored_network(folder, graph)
    (model / "code" / "onnxscript.py").write_text(CODE)
    before = list(sys.path)
    assert export.main([str(model), "--to", "torch_export", "--output", "out"]) == 0, capsys.readouterr().err
    assert sys.path == before


FORMULA = rb"Symbol\('s\d+', positive=True, integer=True\)"
CRAFTED_GRAPHS = {  # what is replaced in its JSON, and what is said
    "formula": (FORMULA, b"__import__('os').system('touch owned')", "has the dimension"),
    "import": (b'^{"graph_module"', b'{"x": "__enum__", "graph_module"', "names code to import"),
    "operator": (b"aten.linear.default", b"aten.save.default", "calls 'torch.ops.aten.save.default'"),
    "attribute": (b"torch.ops.aten.linear.default", b"torch.os.system", "calls 'torch.os.system'"),
}


@pytest.mark.parametrize("name", CRAFTED_GRAPHS)
def test_a_graph_of_plain_json_that_runs_code(folder, graph, name):
    """Dimensions are formulas that torch evaluates as Python; operators may write files; contexts import modules."""
    old, new, message = CRAFTED_GRAPHS[name]
    crafted = folder / "crafted.pt2"
    with zipfile.ZipFile(graph) as archive:
        assert any(re.search(old, archive.read(each)) for each in archive.namelist())
    changed(graph, crafted, "models/model.json", lambda text: re.sub(old, new, text))
    for read in (read_graph, read_module):
        with pytest.raises(InputError, match=rf"^here is refused: its graph .*{message}") as raised:
            read(crafted, "here")
        assert "\n" not in str(raised.value)
    assert not (folder / "owned").exists()
    if name == "formula":
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever torch makes of its answer
            torch.export.load(crafted)
        assert (folder / "owned").exists()  # it is no dud


def few_shot(folder: Path) -> Path:
    tiny_model().save(folder / "model")
    path = folder / "model" / "few_shot.json"
    values = json.loads(path.read_text())
    values["settings"]["network"] |= {"activation": "os:system", "activation_options": TOUCH}
    path.write_text(json.dumps(values))
    return folder / "model"


REFUSED = r"names code, 'os:system', which is not run; to trust it, set `trust=\(\"os\",\)`"


def test_a_few_shot_folder(folder):
    model = few_shot(folder)
    with pytest.raises(InputError, match=REFUSED):
        FewShotModel.load(model)
    assert not (folder / "owned").exists()
    with pytest.raises(InputError):  # it is run where one says so, and is no activation
        FewShotModel.load(model, trust=["os"])
    assert (folder / "owned").exists()


@pytest.mark.parametrize("part", ["backbone", "method"])
def test_other_parts_of_a_few_shot_model(folder, part):
    path = few_shot(folder) / "few_shot.json"
    values = json.loads(path.read_text())
    values["settings"]["network"]["activation"] = "relu"
    (values["settings"] if part == "method" else values["settings"]["network"])[part] = "os:system"
    path.write_text(json.dumps(values))
    with pytest.raises(InputError, match="names code, 'os:system'"):
        FewShotModel.load(path.parent)


def test_a_few_shot_model_in_mlflow(folder):
    model = few_shot(folder)
    stored = folder / "stored"
    (stored / "data").mkdir(parents=True)
    model.rename(stored / "data" / "model")
    loader = MLMODEL.replace("LOADER", "arelu_meta.kinds.few_shot.model").replace(", code: code", "")
    (stored / "MLmodel").write_text(loader)
    with pytest.raises(InputError, match=REFUSED):
        FewShotModel.load(stored)
    with warnings.catch_warnings(action="ignore"), pytest.raises(InputError, match=REFUSED):  # of MLflow's own modules
        mlflow.pyfunc.load_model(str(stored))
    assert not (folder / "owned").exists()


@pytest.mark.usefixtures("store")
def test_look_at_the_folder_of_a_run(folder, capsys):
    (folder / "run").mkdir()
    spec = {"kind": "classify", "task": "x", "data": {"dataset": "os:system", "dataset_options": TOUCH}}
    (folder / "run" / "spec.json").write_text(json.dumps(spec))
    torch.save({"run_id": "0" * 32, "format": 1, "selection": {"best_state": {}}}, folder / "run" / "checkpoint.pt")
    assert look.main(["run", "--layer", "x"]) == 2
    assert "run names code, 'os:system', which is not run; to trust it, set --trust os" in capsys.readouterr().err
    assert not (folder / "owned").exists()


def test_a_task_file(folder, capsys):
    (folder / "mine.toml").write_text(
        'kind = "few_shot"\n[data]\ndataset = "digits"\n[network]\nactivation = "os:system"\n'
        'activation_options = {command = "touch owned"}\n'
    )
    assert maml.main(["--task", "mine.toml", "--iterations", "1"]) == 2
    assert (
        capsys.readouterr().err
        == "error: mine.toml names code, 'os:system', which is not run; to trust it, set --trust os, "
        "or ARELU_META_TRUST=os\n"
    )
    assert not (folder / "owned").exists()


MINE = "open('owned', 'w').close()\nfrom torch.nn import ReLU as Mine\n"
NAMES = {  # of code in a task file, and what is said of them
    "activation": ("gain_matched(owning:Mine)", "names code, 'owning:Mine'"),
    "base": ("elsa(gain_matched(owning:Mine))", "names code, 'owning:Mine'"),
    "model": ("owning:no-name", "model 'owning:no-name': give NAME,"),
    "file": ("owning-too:Mine", "model 'owning-too:Mine': give NAME,"),
}


@pytest.mark.parametrize("name", NAMES)
def test_names_of_code_in_other_forms(folder, name, monkeypatch, capsys):
    """The base of an activation is in brackets; a file of Python may have a name that no `import` takes."""
    value, message = NAMES[name]
    for module in ("owning", "owning-too"):
        (folder / f"{module}.py").write_text(MINE)
    monkeypatch.syspath_prepend(folder)
    key, main = ("activation", maml.main) if name in ("activation", "base") else ("model", finetune.main)
    kind = "few_shot" if key == "activation" else "finetune"
    (folder / "mine.toml").write_text(f'kind = "{kind}"\n[data]\ndataset = "digits"\n[network]\n{key} = "{value}"\n')
    assert main(["--task", "mine.toml"]) == 2
    assert message in capsys.readouterr().err
    assert not (folder / "owned").exists()


def test_an_experiment_file(folder, monkeypatch, capsys):
    (folder / "owning.py").write_text(MINE)
    monkeypatch.syspath_prepend(folder)
    (folder / "mine.toml").write_text(
        'summary = "x"\ntitle = "x"\nquestion = "x"\ntask = "digits"\nseeds = [0]\n[grid]\n'
        'network.activation = ["relu", "gain_matched(owning:Mine)"]\n'
    )
    assert compare.main(["mine.toml", "--dry-run"]) == 2
    assert "mine.toml names code, 'owning:Mine', which is not run" in capsys.readouterr().err
    assert not (folder / "owned").exists()


def test_sets_of_torchvision_are_no_code():
    check_values({"data": {"dataset": "torchvision:Flowers102"}}, "mine.toml")
    with pytest.raises(InputError, match="names code, 'torchvision:ops'"):
        check_values({"network": {"activation": "torchvision:ops"}}, "mine.toml")


def test_who_is_trusted(monkeypatch):
    """By package or module, whole parts of its name, for the time being; the registry's own names always."""
    with registered_only("model", ["tests.own_code", "nothing"]):
        check_trusted("tests.own_code:Squareplus")
        with pytest.raises(InputError, match=r"model names code, 'tests.own_code_of_others:X'"):
            check_trusted("tests.own_code_of_others:X")
        monkeypatch.setenv(TRUST, "other, torch.nn")
        check_trusted("torch.nn.modules:ReLU")
    check_trusted("os:system")


def test_a_model_of_ones_own_loads_where_its_package_is_trusted(folder):
    model = tiny_model(method="tests.own_code:ScaledProtoNet")
    model.save(folder / "model")
    with pytest.raises(InputError, match=r"needs method 'tests.own_code:ScaledProtoNet'.* which is not run"):
        FewShotModel.load(folder / "model")
    loaded = FewShotModel.load(folder / "model", trust=("tests",))
    support, labels = images(6), torch.tensor([0, 1, 2, 0, 1, 2])
    expected = model.probabilities(support, labels, images(4, seed=1))
    assert torch.equal(loaded.probabilities(support, labels, images(4, seed=1)), expected)
