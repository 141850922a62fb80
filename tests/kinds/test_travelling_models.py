"""Models that are trained in one folder and process, and used in another where nothing of the training is.

No data set, no registration, no code of one's own, no run folder: a run id, an alias of the registry, a copied folder
and the scoring server give the same answers to the raw image files, and as many right ones as the run reported.
"""

import base64
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
import torch
from mlflow import MlflowClient
from PIL import Image

from arelu_meta import data
from arelu_meta.data.episodes import EpisodeSampler
from arelu_meta.data.imageset import ImageSet
from arelu_meta.kinds import run
from arelu_meta.kinds.classify.spec import ClassifySpec
from arelu_meta.kinds.few_shot.spec import FewShotSpec
from arelu_meta.kinds.finetune.spec import FineTuneSpec
from arelu_meta.kinds.images import load_split
from arelu_meta.seeding import generator
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = MLFLOW_WARNINGS
ROOT = Path(__file__).parents[2]
OWN_CODE = """
import torch
from torch import nn

class Squareplus(nn.Module):
    def forward(self, x):
        return (x + (x * x + 1).sqrt()) / 2

def network():
    body = nn.Sequential(nn.Conv2d(1, 6, 5, stride=2), Squareplus(), nn.AdaptiveMaxPool2d(2), nn.Flatten())
    return nn.Sequential(body, nn.Linear(24, 7))
"""
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
FILES = {"dataset": "my_folder", "dataset_options": {"image_size": 28}}  # the files are 26x30
EPISODE = {"ways": 3, "shots": 2, "queries": 2, "test_queries": 3}
META = {"iterations": 3, "meta_batch": 2, "inner_steps": 2, "inner_lr": 0.05}
EVALUATION = {"test_episodes": 4, "validation_episodes": 2, "validate_every": 3}
SUPERVISED = {"epochs": 3, "lr": 0.02, "batch_size": 16}
FEW_SHOT = {"episode": EPISODE, "training": META, "evaluation": EVALUATION}
RUNS: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "classify": (ClassifySpec, {"data": FILES, "training": SUPERVISED}),
    "finetune": (
        FineTuneSpec,
        {"data": FILES, "network": {"model": "code_of_my_own:network"}, "training": SUPERVISED},
    ),
    "few_shot": (FewShotSpec, {"data": FILES, **FEW_SHOT}),
    "registered": (
        FewShotSpec,
        {"data": {"dataset": "mine"}, "network": {"activation": "code_of_my_own:Squareplus"}, **FEW_SHOT},
    ),
}
SCRIPT = """
import base64, json, sys
import mlflow, numpy as np
from mlflow.pyfunc.scoring_server import invocations

def served(model, request):
    body = json.dumps({"inputs": request}).encode()
    answer = invocations(body, "application/json", model, model.metadata.get_input_schema())
    return json.loads(answer.response)["predictions"]

def decoded(request):
    if isinstance(request, dict):
        return {name: decoded(part) if name != "support_y" else part for name, part in request.items()}
    return [base64.b64decode(file) for file in request]

answers = {}
for name, (sources, requests) in json.load(open("requests.json")).items():
    models = [mlflow.pyfunc.load_model(source) for source in sources]
    answers[name] = [
        [[model.predict(decoded(one)).to_dict("records") for one in requests] for model in models],
        [served(models[-1], one) for one in requests],
    ]
json.dump(answers, open("answers.json", "w"))
"""


def mine() -> ImageSet:
    """Ten classes of 18 digits, 28x28, named by words."""
    digits = data.load("digits")
    numbers = torch.cat([torch.nonzero(digits.labels == digit)[:18, 0] for digit in range(10)])
    return replace(digits.subset(numbers, "mine"), class_names=NAMES)


def png(image: torch.Tensor, size: tuple[int, int]) -> bytes:
    written = BytesIO()
    Image.fromarray(image[0].numpy()).resize(size).save(written, "PNG")
    return written.getvalue()


@pytest.fixture(scope="module")
def travelled(tmp_path_factory: pytest.TempPathFactory, new_store: Path) -> dict[str, Any]:
    """Results of the runs, their requests, and the answers of the other process."""
    home, abroad = (tmp_path_factory.mktemp(name) for name in ("home", "abroad"))
    shutil.copy(new_store, home / "mlflow.db")
    for number, (image, label) in enumerate(zip(mine().images, mine().labels, strict=True)):
        (home / "my_folder" / NAMES[label]).mkdir(parents=True, exist_ok=True)
        (home / "my_folder" / NAMES[label] / f"{number:03}.png").write_bytes(png(image, (26, 30)))
    (home / "code_of_my_own.py").write_text(OWN_CODE)
    uri = f"sqlite:///{home / 'mlflow.db'}"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.syspath_prepend(str(home))
        patch.setenv("MLFLOW_TRACKING_URI", uri)
        patch.setenv("ARELU_META_RUNS", str(home / "runs"))
        data.register("mine")(mine)
        results, requests, sources = {}, {}, {}
        for name, (spec_class, values) in RUNS.items():
            section = {**values["data"], "validation": 0.3, "test": 0.3}
            spec = spec_class.model_validate({"task": "travel", **values, "data": section})
            results[name] = run(spec)
            requests[name] = requests_of(spec, results[name].run_id, home / "my_folder")
            sources[name] = sources_of(results[name].run_id, name, abroad)
        data._REGISTRY.remove("mine")
        for path in (home / "my_folder", home / "code_of_my_own.py", home / "runs"):
            path.rename(path.with_name(f"gone_{path.name}"))
        asked = {name: (sources[name], [request for request, _ in requests[name]]) for name in RUNS}
        (abroad / "requests.json").write_text(json.dumps(asked))
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "MLFLOW_TRACKING_URI": uri}
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", SCRIPT], cwd=abroad, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-3000:]
    return {"results": results, "requests": requests, "answers": json.loads((abroad / "answers.json").read_text())}


def requests_of(spec: Any, run_id: str, folder: Path) -> list[tuple[Any, list[str]]]:
    """Requests with their right answers: all test images of a classifier, each test episode of a few-shot run."""
    images = data.load(spec.data.dataset, **spec.data.dataset_options)
    files = [path.read_bytes() for path in sorted(folder.glob("*/*.png"))]
    if spec.data.dataset == "mine":
        files = [png(image, (28, 28)) for image in images.images]
    encoded = [base64.b64encode(file).decode() for file in files]
    names = [images.class_names[label] for label in images.labels]
    split = load_split(spec.data)
    test = json.loads(mlflow.artifacts.load_text(f"runs:/{run_id}/split.json"))["test"]
    if not isinstance(spec, FewShotSpec):
        return [([encoded[number] for number in test], [names[number] for number in test])]
    requests = []
    sampler = EpisodeSampler(split.test, ways=3, shots=2, queries=3)
    for episode in sampler.draw(4, generator(0, "episodes/test")):
        chosen = np.array(test)[episode.numpy()]  # (ways, shots + queries)
        support, query = chosen[:, :2].flatten(), chosen[:, 2:].flatten()
        # A head's outputs go to the classes in the order of the alphabet, in the run in the order drawn.
        classes = np.array([f"{way} {names[row[0]]}" for way, row in enumerate(chosen)])
        request = {
            "support_x": [encoded[number] for number in support],
            "support_y": classes.repeat(2).tolist(),
            "query_x": [encoded[number] for number in query],
        }
        requests.append((request, classes.repeat(3).tolist()))
    return requests


def sources_of(run_id: str, name: str, folder: Path) -> list[str]:
    """The model by its run, by an alias of the registry, and as a folder that was copied."""
    uri = f"runs:/{run_id}/model"
    version = mlflow.register_model(uri, name).version
    MlflowClient().set_registered_model_alias(name, "candidate", version)
    copied = Path(mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path=str(folder / name)))
    return [uri, f"models:/{name}@candidate", str(copied)]


@pytest.mark.parametrize("name", RUNS)
def test_as_many_are_right_as_the_run_reported(travelled: dict[str, Any], name: str):
    direct, _ = travelled["answers"][name]
    reported = travelled["results"][name]
    expected = reported.episodes[:, -1] if name in ("few_shot", "registered") else [reported.test.mean]
    for answers in direct:  # one list for each source
        found = []
        for rows, (_, right) in zip(answers, travelled["requests"][name], strict=True):
            found.append(np.mean([row["class"] == answer for row, answer in zip(rows, right, strict=True)]))
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("name", RUNS)
def test_the_same_answers_from_everywhere(travelled: dict[str, Any], name: str):
    """Run, alias and folder to the bit, and the server as text has it."""
    (by_run, by_alias, by_folder), by_server = travelled["answers"][name]
    assert by_run == by_alias == by_folder
    for rows, served in zip(by_run, by_server, strict=True):
        assert [row["class"] for row in rows] == [row["class"] for row in served]
        np.testing.assert_allclose([row["probability"] for row in rows], [row["probability"] for row in served], 1e-5)


def test_they_are_the_answers_of_the_network_that_was_trained(travelled: dict[str, Any]):
    """Logits of the test, which the run has in its result, as probabilities."""
    for name in ("classify", "finetune"):
        result, rows = travelled["results"][name], travelled["answers"][name][0][0][0]
        expected = torch.from_numpy(result.logits).softmax(1).numpy()
        found = [[row[f"probability_{label}"] for label in result.class_names] for row in rows]
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)
