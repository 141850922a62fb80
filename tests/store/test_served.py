"""Networks as MLflow serves them: raw images in, classes and probabilities out; earlier models as they were."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.inputs import Inputs
from arelu_meta.errors import InputError
from arelu_meta.store.models import WEIGHTS_FILE, open_model, save_weights
from arelu_meta.store.served import ServedNetwork, answer_table
from arelu_meta.store.tracking import track
from tests.tiny_runs import MLFLOW_WARNINGS, tiny_spec

pytestmark = MLFLOW_WARNINGS
INPUTS = Inputs(1, 8, (0.5,), (0.25,))


def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 2))


def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (5, 1, 8, 8), np.uint8)


def by_hand(network: nn.Module) -> np.ndarray:
    """Softmax of W ((x / 255 - 0.5) / 0.25) + b, in float64."""
    x = (images().reshape(5, 64) / 255 - 0.5) / 0.25
    weight, bias = (value.detach().double().numpy() for value in (network[1].weight, network[1].bias))
    powers = np.exp(x @ weight.T + bias)
    return powers / powers.sum(1, keepdims=True)


def test_a_classifier_answers_with_names_and_probabilities():
    answer = ServedNetwork(linear(), INPUTS, ("cat", "probability")).predict(images())
    expected = by_hand(linear())
    assert list(answer) == ["class", "probability", "probability_cat", "probability_probability"]
    np.testing.assert_allclose(answer[["probability_cat", "probability_probability"]], expected, rtol=1e-4)
    np.testing.assert_allclose(answer["probability"], expected.max(1), rtol=1e-4)
    assert answer["class"].tolist() == [("cat", "probability")[number] for number in expected.argmax(1)]


def test_classes_without_names_are_numbers():
    assert answer_table(torch.tensor([[0.3, 0.7]]), range(2))["class"].tolist() == [1]


def test_a_segmentation_network_answers_with_probabilities_of_pixels():
    network = nn.Conv2d(1, 1, 1)
    answer = ServedNetwork(network, Inputs(1, 8), ("tumour",)).predict(images())
    logits = images() / 255 * network.weight.item() + network.bias.item()
    np.testing.assert_allclose(answer, 1 / (1 + np.exp(-logits)), rtol=1e-5)


@pytest.fixture(scope="module")
def stored(tmp_path_factory, own_store) -> tuple[Path, str]:
    """A store with a network in it, and the URI of its model."""
    folder = tmp_path_factory.mktemp("served")
    names = ("cat", "dog")
    examples = ImageSet(
        "five", torch.from_numpy(images()), torch.tensor([0, 1, 0, 1, 0]), names, mean=(0.5,), std=(0.25,)
    )
    with own_store(folder), track(tiny_spec(), experiment="served", name="linear", tags={}) as tracker:
        tracker.log_network(linear(), examples)
    return folder, f"runs:/{tracker.run_id}/model"


@pytest.fixture(autouse=True)
def in_its_store(stored, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{stored[0] / 'mlflow.db'}")
    monkeypatch.chdir(tmp_path)


def test_mlflow_lets_every_dtype_through(stored):
    model = mlflow.pyfunc.load_model(stored[1])
    expected = by_hand(linear())
    for form in (images(), images() / 255, (images() / 255).astype(np.float32), images().astype(np.int64)):
        answer = model.predict(form)
        np.testing.assert_allclose(answer.filter(like="probability_"), expected, rtol=1e-4)
    assert set(answer["class"]) <= {"cat", "dog"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (images() * 1.0, r"pixels run from \d+ to \d+; give floats in \[0, 1\], or uint8: 0 to 255"),
        (np.zeros((5, 64)), r"images are \(5, 64\); the network takes \(N, 1, 8, 8\), channels first or last"),
        (pd.DataFrame({"image": ["no base64!"]}), "images 0 is text and no base64; give images"),
    ],
)
def test_wrong_input_is_one_line_and_no_dump(stored, wrong, message):
    model = mlflow.pyfunc.load_model(stored[1])
    with pytest.raises(InputError, match=f"^{message}") as raised:
        model.predict(wrong)
    assert "\n" not in str(raised.value)
    server = server_answer(model, {"inputs": wrong.tolist()} if isinstance(wrong, np.ndarray) else split(wrong))
    assert server["message"] == str(raised.value)
    assert "stack_trace" not in server


def split(table: pd.DataFrame) -> dict[str, object]:
    return {"dataframe_split": table.to_dict("split", index=False)}


def server_answer(model: Any, request: dict[str, object]) -> dict[str, object]:
    """What MLflow's scoring server does with a request, without the sockets."""
    from mlflow.exceptions import MlflowException
    from mlflow.pyfunc.scoring_server import invocations

    try:
        answer = invocations(json.dumps(request).encode(), "application/json", model, model.metadata.get_input_schema())
    except MlflowException as error:
        return json.loads(error.serialize_as_json())
    assert answer.status == 200
    return json.loads(answer.response)


def test_the_model_says_what_it_takes_and_answers(stored):
    info = mlflow.models.get_model_info(stored[1])
    assert info.signature.inputs is None
    assert info.signature.outputs.input_names() == ["class", "probability", "probability_cat", "probability_dog"]
    assert "base64" in info.metadata["takes"]


def test_the_example_that_is_stored_is_raw(stored):
    """A serving request of two uint8 images, which the server answers."""
    model = mlflow.pyfunc.load_model(stored[1])
    folder = Path(mlflow.artifacts.download_artifacts(stored[1]))
    request = json.loads((folder / "serving_input_example.json").read_text())
    assert request == {"inputs": images()[:2].tolist()}
    rows = server_answer(model, request)["predictions"]
    np.testing.assert_allclose([row["probability_dog"] for row in rows], by_hand(linear())[:2, 1], rtol=1e-4)


def test_torch_users_get_the_network_itself(stored):
    network = mlflow.pytorch.load_model(stored[1])
    x = torch.rand(3, 1, 8, 8)
    torch.testing.assert_close(network(x), linear()(x))


def test_models_of_version_0_1_are_read(tmp_path):
    """They had the graph of MLflow's own flavour, and weights beside it whose header knew less."""
    import mlflow.pytorch

    old = {"channels": 1, "image_size": 8, "mean": [0.5], "std": [0.25], "class_names": ["cat", "dog"]}
    save_weights(linear().state_dict(), tmp_path / WEIGHTS_FILE, INPUTS)
    from safetensors.torch import load_file, save_file

    save_file(load_file(tmp_path / WEIGHTS_FILE), tmp_path / WEIGHTS_FILE, {"arelu_meta_inputs": json.dumps(old)})
    example = torch.rand(2, 1, 8, 8).numpy()
    mlflow.pytorch.save_model(
        linear().eval(),
        tmp_path / "old",
        extra_files=[str(tmp_path / WEIGHTS_FILE)],
        signature=mlflow.models.infer_signature(example),
        input_example=example,
        serialization_format="pt2",
        pip_requirements=[],
    )
    model = open_model(tmp_path / "old")
    squashed = replace(INPUTS, resize="squash", read_resize="")  # both sides were scaled, before there was a choice
    assert (model.inputs, model.class_names) == (squashed, ("cat", "dog"))
    x = torch.rand(3, 1, 8, 8)
    torch.testing.assert_close(model.network()(x), linear()(x))
