"""The one way a trained network goes into the store and comes out again.

A run stores an MLflow model whose folder `data/model` holds all that a prediction needs, and nothing of the training:
`weights.safetensors`, with a header that says what images the network takes, how others are brought to that, and the
classes; of classify, transfer, segment and finetune a traced graph, `model.pt2`; of a few-shot run what `FewShotModel`
reads. MLflow's pyfunc takes raw images (`served.py`). No pickle anywhere; reading a model runs no code of its files.
"""

import copy
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mlflow import MlflowClient
from mlflow.entities import LoggedModelOutput, LoggedModelStatus
from mlflow.models import Model, ModelSignature
from mlflow.tracking.context.registry import resolve_tags
from mlflow.types import ColSpec, Schema
from mlflow.types.schema import AnyType
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.export import ExportedProgram

from arelu_meta import __version__
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.inputs import METADATA_KEY, Inputs, from_metadata, inputs_of
from arelu_meta.data.raw_images import ACCEPTED
from arelu_meta.errors import InputError
from arelu_meta.reading import check_inside, open_regular, parse_json, parsing, read_json, read_text
from arelu_meta.store.addresses import global_tracking_uri
from arelu_meta.store.connection import quiet, read_artifact
from arelu_meta.store.downloads import download_model
from arelu_meta.store.graphs import GRAPH_FILE, KeptGraph, fill_tensors, read_graph, strip_tensors, trace
from arelu_meta.store.run_folder import RunFolder
from arelu_meta.store.sources import check_source, is_run_id

WEIGHTS_FILE = "weights.safetensors"
EXAMPLE_FILE = "example.npy"
FEW_SHOT_FILE = "few_shot.json"  # what is learned in an episode, and how
NETWORK_LOADER = "arelu_meta.store.served"  # the module whose `_load_pyfunc` MLflow calls
FEW_SHOT_LOADER = "arelu_meta.kinds.few_shot.model"
_FEW_SHOT_LOADERS = (FEW_SHOT_LOADER, "arelu_meta.few_shot_model")  # the second in models stored up to version 0.1
_REMEDY = "fetch or store the model anew"
ANSWERS = "a table: class, probability, and probability_NAME for each class"


@dataclass(frozen=True, eq=False)
class StoredModel:
    """A trained network as a run stored it; `open_model` gives one."""

    source: str
    """where it was read from: an MLflow URI or a folder"""
    folder: Path
    """the files; of a few-shot model what `FewShotModel.save` wrote"""
    run_id: str
    """the run that stored it; empty where the folder does not say"""
    weights: Path
    """the file of its tensors"""
    inputs: Inputs | None
    """what images it takes; None where its weights do not say"""
    class_names: tuple[str, ...]
    """classes in the order of the logits; empty where the weights do not say"""

    def state_dict(self) -> dict[str, Tensor]:
        """Read its tensors."""
        with parsing(self.weights, remedy=_REMEDY):
            return load_file(self.weights)

    def spec(self) -> dict[str, Any]:
        """Read the settings of the run, as plain values."""
        path = self.folder / "spec.json"
        if path.is_file():
            return read_json(path)
        return parse_json(read_artifact(self.run_id, "spec.json"), f"spec.json of run {self.run_id}")

    def program(self) -> ExportedProgram:
        """Read the traced graph; an archive with code in it is refused.

        Raises:
            InputError: it has no graph (a few-shot model adapts before it answers), or it is refused.
        """
        return read_graph(self.graph(), self.source)

    def graph(self) -> Path:
        """Give the file of the traced graph; `program` has the errors."""
        graphs = list(self.folder.rglob(GRAPH_FILE))
        if len(graphs) != 1 or (self.folder / FEW_SHOT_FILE).is_file():
            raise InputError(f"{self.source} holds no network of classify, finetune or segment; name a run of these")
        check_inside(graphs[0], self.folder)
        return graphs[0]

    def network(self) -> nn.Module:
        """Give the network in evaluation mode, its layers by the names they had in training.

        It is made from the traced graph, so it needs neither the spec nor the code that built it.
        """
        return torch.export.unflatten(self.program())


def open_model(source: str | Path) -> StoredModel:
    """Open a trained network, wherever it is.

    Args:
        source: id of an MLflow run, MLflow URI (`runs:/ID/model`, `models:/NAME/1`), or a folder: of a stored model, of
            a `FewShotModel`, or a run's own (`runs/TASK-...`), which stands for its run in the store.

    Returns:
        The model's files: tensors, network, settings, inputs and classes are read from them when asked for.

    Raises:
        InputError: nothing of that name is there, or it is no network of ours.

    Example:
        >>> folder = Path(tempfile.mkdtemp())
        >>> save_weights({"w": torch.ones(2)}, folder / WEIGHTS_FILE, Inputs(3, 28), ("cat", "dog"))
        >>> model = open_model(folder)
        >>> model.class_names, model.inputs.channels, model.state_dict()
        (('cat', 'dog'), 3, {'w': tensor([1., 1.])})
    """
    folder, name = Path(source), str(source)
    if folder.is_dir() and (checkpoint := RunFolder.read_last(folder)) is not None:
        name = str(checkpoint.get("run_id"))
        if not is_run_id(name):
            raise InputError(f"the checkpoint in {folder} belongs to no MLflow run; name another folder")
    check_source(name)
    if ":/" in name or is_run_id(name):
        name = name if ":/" in name else f"runs:/{name}/model"
        folder = download_model(name)
    folder, run_id = _read_mlmodel(folder)
    files = sorted(folder.rglob(WEIGHTS_FILE))
    if len(files) != 1:
        raise InputError(f"{name} holds no network of arelu_meta: {len(files)} files {WEIGHTS_FILE} in it, not one")
    for each in files[0].parent.iterdir():  # the weights, and what else is read: graph and settings
        check_inside(each, folder)
    with parsing(files[0], remedy=_REMEDY):
        open_regular(files[0]).close()  # safetensors would wait for a pipe
        with safe_open(files[0], "pt") as file:
            metadata = file.metadata() or {}
        inputs = from_metadata(metadata)
        classes = parse_json(metadata.get(METADATA_KEY, "{}"), files[0]).get("class_names", ())
        if not isinstance(classes, list | tuple) or not all(isinstance(each, str | int) for each in classes):
            raise InputError(f"{files[0]} names classes {classes!r:.80}; {_REMEDY}")
    return StoredModel(name, folder, run_id, files[0], inputs, tuple(classes))


def _read_mlmodel(folder: Path) -> tuple[Path, str]:
    """Give the folder of a model's own files and the run that stored it, as `MLmodel` says where there is one.

    Nothing that it names is imported: neither `loader_module` nor `code`.
    """
    path = folder / "MLmodel"
    if not path.exists():
        return folder, ""
    read_text(path)  # for its errors
    with parsing(path, remedy=_REMEDY, what="no MLmodel"):
        stored = Model.load(str(path))
        flavour, run_id = stored.flavors.get("python_function", {}), stored.run_id or ""
        if flavour.get("loader_module") in _FEW_SHOT_LOADERS:
            data = folder / str(flavour["data"])
            check_inside(data, folder)
            folder = data
        return folder, str(run_id)


def save_weights(state: Mapping[str, Tensor], path: Path, inputs: Inputs, class_names: tuple[str, ...] = ()) -> None:
    """Write tensors as safetensors, with what images the network takes and its classes in the header."""
    plain = {name: value.detach().cpu().contiguous().clone() for name, value in state.items()}
    save_file(plain, path, metadata=inputs.metadata(class_names))


def save_network(
    folder: Path,
    network: nn.Module,
    images: ImageSet,
    inputs: Inputs | None = None,
    write_more: Callable[[Path], None] | None = None,
    kept: KeptGraph | None = None,
) -> None:
    """Write a network as `log_saved_model` takes it; `images` are two at least of what it takes, fitted already.

    `write_more` is given the folder of the model's files, for what else belongs to it. The graph is taken from `kept`
    with the tensors of this network, or traced and kept there.
    """
    inputs = inputs or inputs_of(images)
    network = copy.deepcopy(network).cpu().eval()
    for tensor in (*network.parameters(), *network.buffers()):  # torch stores no views, nor kernels with channels last
        tensor.data = tensor.data.clone(memory_format=torch.contiguous_format)
    numbers = torch.arange(2, device=images.device)
    (folder / "model").mkdir(parents=True)
    graph, state = folder / "model" / GRAPH_FILE, network.state_dict()
    if kept is None or not fill_tensors(kept.read(), state, graph):
        example = torch.zeros_like(images.pixels(numbers).cpu())  # the archive holds it: nobody's images
        torch.export.save(trace(network, example), graph)
        if kept is not None:
            kept.write(strip_tensors(graph))
    save_weights(state, folder / "model" / WEIGHTS_FILE, inputs, images.class_names)
    if write_more is not None:
        write_more(folder / "model")
    np.save(folder / EXAMPLE_FILE, images.images[numbers].cpu().numpy())
    answers = images.class_names if images.masks is None else ()
    says = ANSWERS if answers else "probability of each pixel, (N, 1, H, W)"
    _describe(folder, NETWORK_LOADER, answers, {"takes": ACCEPTED, "answers": says})


def save_few_shot_model(folder: Path, saved: Path) -> None:
    """Take over what `FewShotModel.save` wrote; MLflow's model takes support and query, and gives probabilities."""
    shutil.copytree(saved, folder / "model")
    takes = f"support_x and query_x: {ACCEPTED}; support_y: a number or name of the class of each support image"
    _describe(folder, FEW_SHOT_LOADER, (), {"takes": takes, "answers": ANSWERS})


def _describe(folder: Path, loader: str, answers: tuple[str, ...], metadata: dict[str, str]) -> None:
    """Write what `log_saved_model` has to know besides the model's files."""
    (folder / "description.json").write_text(json.dumps({"loader": loader, "answers": answers, "metadata": metadata}))


def _signature(class_names: tuple[str, ...]) -> ModelSignature:
    """Declare answers; inputs of many forms cannot be declared, and would be refused before the model can say why."""
    names = ["probability", *(f"probability_{name}" for name in class_names)]
    return ModelSignature(outputs=Schema([ColSpec(AnyType(), "class"), *(ColSpec("float", name) for name in names)]))


def log_saved_model(client: MlflowClient, run_id: str, folder: Path) -> None:
    """Store what `save_network` or `save_few_shot_model` wrote as the output `model` of a run, active or not, once."""
    with quiet():  # the import alone warns
        import mlflow.pyfunc

    description, example = _description(folder)
    run = client.get_run(run_id)
    begun = client.search_logged_models([run.info.experiment_id], f"source_run_id = '{run_id}'")
    if any(model.status == LoggedModelStatus.READY for model in begun):
        return
    model = next(iter(begun), None) or client.create_logged_model(
        run.info.experiment_id, "model", source_run_id=run_id, tags=resolve_tags({}), params=run.data.params
    )
    options: dict[str, Any] = {} if example is None else {"input_example": example}
    # Given, because MLflow would start a process to find out.
    requirements = [f"arelu-meta=={__version__}", f"torch=={torch.__version__.partition('+')[0]}"]
    with quiet(), global_tracking_uri(client.tracking_uri), tempfile.TemporaryDirectory() as place:
        # Not by `Model.log`: begun a second time, that fails of its own first attempt.
        stored = Model(
            artifact_path=model.artifact_location,
            model_uuid=model.model_id,
            model_id=model.model_id,
            run_id=run_id,
            metadata=description["metadata"],
        )
        if options:  # so that `mlflow.pytorch.load_model` gives the network itself, without what `served.py` adds
            stored.add_flavor("pytorch", model_data="data/model", pytorch_version=str(torch.__version__))
        mlflow.pyfunc.save_model(
            path=f"{place}/model",
            mlflow_model=stored,
            pip_requirements=requirements,
            loader_module=description["loader"],
            data_path=str(folder / "model"),
            signature=_signature(tuple(description["answers"])),
            **options,
        )
        client.log_model_artifacts(model.model_id, f"{place}/model")
    known = [output.model_id for output in run.outputs.model_outputs] if run.outputs else []
    if model.model_id not in known:
        client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=0)])
    client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)


def _description(folder: Path) -> tuple[dict[str, Any], np.ndarray | None]:
    """Read what `_describe` wrote, and the example; MLflow imports the loader that it is given, so it must be ours."""
    path, example = folder / "description.json", folder / EXAMPLE_FILE
    description = read_json(path)
    answers, metadata = description.get("answers"), description.get("metadata")
    listed = isinstance(answers, list) and all(isinstance(each, str) for each in answers)
    if description.get("loader") not in (NETWORK_LOADER, FEW_SHOT_LOADER) or not listed or type(metadata) is not dict:
        raise InputError(f"{path} describes no model of arelu_meta; {_REMEDY}")
    with parsing(example, remedy=_REMEDY):
        return description, np.load(example, allow_pickle=False) if example.is_file() else None
