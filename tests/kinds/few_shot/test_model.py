"""The model to use: adapted once, stored, loaded from wherever it is, and served by MLflow for real."""

import copy
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arelu_meta import data, learners
from arelu_meta.backbones.conv4 import Conv4
from arelu_meta.backbones.norm import is_transductive
from arelu_meta.data.episodes import Episode
from arelu_meta.data.inputs import Inputs
from arelu_meta.errors import InputError
from arelu_meta.kinds import run
from arelu_meta.kinds.few_shot.model import FewShotModel
from arelu_meta.kinds.few_shot.settings import LearnerSettings, build_learner
from arelu_meta.store import models
from arelu_meta.store.tracking import track
from tests.scoring_server import post_inputs, serving
from tests.tiny_model import CONV4, MEAN, STD, images, tiny_model
from tests.tiny_runs import MLFLOW_WARNINGS, tiny_spec

pytestmark = MLFLOW_WARNINGS
SUPPORT_Y = torch.tensor([0, 1, 2, 0, 1, 2])

METHODS = {
    "maml": {},
    "maml on higher": {"engine": "higher"},
    "maml on learn2learn": {"engine": "learn2learn"},
    "inner adam": {"engine": "higher", "inner_optimizer": "adam", "inner_lr": 0.01},
    "clipped": {"clip_norm": 0.05},
    "longer tests": {"test_steps": 5},
    "fomaml": {"method": "fomaml"},
    "anil": {"method": "anil"},
    "anil on higher": {"method": "anil", "engine": "higher"},
    "boil": {"method": "boil"},
    "meta_sgd": {"method": "meta_sgd"},
    "mamlpp": {"method": "mamlpp"},
    "reptile": {"method": "reptile"},
    "joint": {"method": "joint"},
    "protonet": {"method": "protonet"},
    "pmf": {"method": "pmf", "test_steps": 2},
    "simpleshot": {"method": "simpleshot"},
    "linear": {"method": "linear"},
    "knn": {"method": "knn"},
    "activations alone": {"adapt": "activation"},
    "adapters and head": {"adapt": "head+lora", "lora_rank": 2},
    "features": {"method": "features"},
    "centroid": {"method": "centroid"},
}


def normalised(x: Tensor) -> Tensor:
    return (x - MEAN) / STD


def by_hand(
    model: FewShotModel, support_x: Tensor, support_y: Tensor, query_x: Tensor, steps: int, lr: float
) -> Tensor:
    """Plain gradient descent on a copy of the network, one backward pass after another."""
    network = copy.deepcopy(model.learner.network).eval()
    for _ in range(steps):
        network.zero_grad()
        F.cross_entropy(network(normalised(support_x)), support_y).backward()
        with torch.no_grad():
            for parameter in network.parameters():
                parameter -= lr * parameter.grad
    with torch.no_grad():
        return network(normalised(query_x)).softmax(-1)


def test_adaptation_is_gradient_descent_on_the_support():
    model = tiny_model(network={"activation": "arelu"})
    support, query = images(6), images(4, seed=1)
    expected = by_hand(model, support, SUPPORT_Y, query, steps=3, lr=0.1)
    torch.testing.assert_close(model.probabilities(support, SUPPORT_Y, query), expected)
    without = by_hand(model, support, SUPPORT_Y, query, steps=0, lr=0.1)
    assert (expected - without).abs().max() > 1e-3  # the steps did something


def test_other_steps_and_rates_replace_those_of_the_training():
    model = tiny_model()
    support, query = images(6), images(4, seed=1)
    found = model.adapt(support, SUPPORT_Y, steps=7, lr=0.03).probabilities(query)
    torch.testing.assert_close(found, by_hand(model, support, SUPPORT_Y, query, steps=7, lr=0.03))


@pytest.mark.parametrize("training", METHODS.values(), ids=METHODS)
def test_adapting_once_answers_as_the_tests_of_a_run_do(training):
    """`Learner.query_logits` is what test episodes are judged by; it adapts and answers in one pass."""
    model = tiny_model(**training)
    support, query = images(6), images(4, seed=1)
    model.learner.network.eval()
    episode = Episode(normalised(support)[None], SUPPORT_Y[None], normalised(query)[None], torch.zeros(1, 4).long())
    with torch.no_grad():
        expected = model.learner.query_logits(episode)[0].softmax(-1)
    torch.testing.assert_close(model.probabilities(support, SUPPORT_Y, query), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("norm", ["batch", "batch_support", "group", "none"])
@pytest.mark.parametrize("method", ["maml", "protonet"])
def test_queries_see_each_other_only_where_it_is_declared(method, norm):
    if (method, norm) == ("protonet", "batch_support"):
        with pytest.raises(InputError, match="cannot be had"):
            tiny_model(side=16, network={**CONV4, "norm": norm}, method=method)
        return
    model = tiny_model(side=16, network={**CONV4, "norm": norm}, method=method)
    adapted = model.adapt(images(6, side=16), SUPPORT_Y)
    query = images(4, side=16, seed=1)
    together = adapted.probabilities(query)
    alone = torch.cat([adapted.probabilities(image[None]) for image in query])
    assert model.transductive == (norm == "batch")
    assert torch.allclose(together, alone, atol=1e-5) == (norm != "batch")


def test_running_statistics_are_those_of_the_training():
    model = tiny_model(side=16, network={**CONV4, "norm": "running"}, method="protonet")
    model.learner.network.train()
    adapted = model.adapt(images(6, side=16), SUPPORT_Y)
    before = copy.deepcopy(dict(model.learner.network.named_buffers()))
    adapted.probabilities(images(4, side=16))
    assert all(torch.equal(before[name], value) for name, value in model.learner.network.named_buffers())
    assert not model.transductive


@pytest.mark.parametrize("method", ["maml", "protonet", "mamlpp"])
def test_a_model_goes_to_a_device_with_all_that_it_learned(method: str):
    """`meta` has no numbers, but is a device like any other: learned rates go along, and images follow."""
    model = tiny_model(method=method).to("meta")
    assert {tensor.device.type for tensor in model.learner.state().state_dict().values()} == {"meta"}
    assert model.prepare(images(2)).device.type == "meta"


def test_parameters_that_do_not_move_do_not_follow_later_training():
    model = tiny_model(method="anil")
    adapted, query = model.adapt(images(6), SUPPORT_Y), images(4, seed=1)
    before = adapted.probabilities(query)
    with torch.no_grad():
        for parameter in model.learner.network.parameters():
            parameter.add_(1.0)
    assert torch.equal(adapted.probabilities(query), before)


@pytest.mark.parametrize(("norm", "sizes"), [("group", [3, 3, 1]), ("batch", [7])])
def test_many_queries_go_in_parts_unless_they_see_each_other(norm, sizes, monkeypatch):
    adapted = tiny_model(side=16, network={**CONV4, "norm": norm}).adapt(images(6, side=16), SUPPORT_Y)
    query, seen = images(7, side=16, seed=1), []
    whole = adapted.probabilities(query)
    forward = Conv4.forward
    monkeypatch.setattr(Conv4, "forward", lambda network, x: seen.append(len(x)) or forward(network, x))
    monkeypatch.setattr("arelu_meta.kinds.few_shot.model.QUERIES_AT_ONCE", 3)
    torch.testing.assert_close(adapted.probabilities(query), whole)
    assert seen == sizes


def test_a_batch_norm_without_running_statistics_is_transductive():
    """torch's own takes the statistics of the batch at hand when it keeps none, in evaluation mode too."""
    x = images(4, channels=2, side=3)
    for keeps in (True, False):
        network = nn.Sequential(nn.BatchNorm2d(2, track_running_stats=keeps)).eval()
        depends = not torch.allclose(network(x)[:1], network(x[:1]))
        assert is_transductive(network) == depends == (not keeps)


def test_bytes_are_pixels_over_255():
    model = tiny_model()
    bytes_ = (images(10) * 255).round().to(torch.uint8)
    support, query = bytes_[:6], bytes_[6:]
    found = model.probabilities(support, SUPPORT_Y, query)
    assert torch.equal(found, model.probabilities(support / 255, SUPPORT_Y, query / 255))


@pytest.mark.parametrize(
    ("support_x", "support_y", "message"),
    [
        (images(6) * 255, SUPPORT_Y, r"pixels run from .* to 25\d.*; give floats in \[0, 1\]"),
        (images(6) - 0.5, SUPPORT_Y, "pixels run from -0.49"),
        (images(6) * float("nan"), SUPPORT_Y, "pixels run from nan"),
        ((images(6) * 900).long(), SUPPORT_Y, "give whole numbers of 0 to 255"),
        (images(6, channels=2), SUPPORT_Y, r"images are \(6, 2, 28, 28\); the network takes \(N, 1, 28, 28\)"),
        (images(6).flatten(1), SUPPORT_Y, "channels first or last"),
        (images(6), SUPPORT_Y[:5], r"6 support images have labels \(5,\)"),
        (images(0), SUPPORT_Y[:0], "0 support images"),
        (images(6), SUPPORT_Y + 1, r"support labels are \[1, 2, 3\]; number the classes 0 to 2"),
        (images(6), SUPPORT_Y * 2, r"support labels are \[0, 2, 4\]"),
        (images(6), torch.arange(6), "the support has 6 classes, but the network's head was trained for 3"),
    ],
)
def test_wrong_support_is_refused(support_x, support_y, message):
    with pytest.raises(InputError, match=message):
        tiny_model().adapt(support_x, support_y)


def test_prototypes_take_more_classes_than_they_were_trained_with():
    model = tiny_model(method="protonet")
    support = images(6)
    assert model.probabilities(support, torch.arange(6), support).argmax(1).tolist() == list(range(6))


@pytest.mark.parametrize(
    ("training", "change", "message"),
    [
        ({"method": "protonet"}, {"steps": 2}, "prototypes take no gradient steps"),
        ({"method": "protonet"}, {"lr": 0.1}, "prototypes take no gradient steps"),
        ({"method": "meta_sgd"}, {"lr": 0.1}, "this model learned its inner rates"),
    ],
)
def test_what_a_method_does_not_have_cannot_be_set(training, change, message):
    with pytest.raises(InputError, match=message):
        tiny_model(**training).adapt(images(6), SUPPORT_Y, **change)


@pytest.fixture(scope="module")
def stored_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, FewShotModel, str]:
    """A folder with a store, a model in an MLflow run of it, and the run's id."""
    folder = tmp_path_factory.mktemp("stored")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlflow.db'}")
        model = tiny_model(method="meta_sgd")  # has rates beside the weights
        with torch.no_grad():
            for rates in model.learner.rates.parameters():
                rates.mul_(torch.rand(rates.shape, generator=torch.Generator().manual_seed(0)))
        model.save(folder / "plain")
        with track(tiny_spec(), experiment="models", name="tiny", tags={}) as tracker:
            tracker.log_few_shot_model(folder / "plain")
    return folder, model, tracker.run_id


@pytest.fixture
def stored(
    stored_once: tuple[Path, FewShotModel, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[FewShotModel, str]]:
    """The model and its run's id; the store is this test's."""
    folder, *model_and_run = stored_once
    before = mlflow.get_tracking_uri()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlflow.db'}")
    mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
    yield tuple(model_and_run)
    mlflow.set_tracking_uri(before)


def sources(run_id: str) -> dict[str, str]:
    uri = f"runs:/{run_id}/model"
    model_id = mlflow.models.get_model_info(uri).model_id
    downloaded = mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path="downloaded")
    return {"folder": "plain", "run": run_id, "runs:/": uri, "models:/": f"models:/{model_id}", "MLmodel": downloaded}


def test_a_model_is_the_same_wherever_it_is_loaded_from(stored):
    model, run_id = stored
    support, query = images(6), images(4, seed=1)
    expected = model.probabilities(support, SUPPORT_Y, query)
    for kind, source in sources(run_id).items():
        assert torch.equal(FewShotModel.load(source).probabilities(support, SUPPORT_Y, query), expected), kind


def test_a_model_stored_before_its_module_moved_is_still_read(stored):
    """MLflow's own loader cannot: it imports the module that the model names."""
    model, run_id = stored
    folder = Path(mlflow.artifacts.download_artifacts(artifact_uri=f"runs:/{run_id}/model", dst_path="before"))
    text = (folder / "MLmodel").read_text()
    (folder / "MLmodel").write_text(text.replace("arelu_meta.kinds.few_shot.model", "arelu_meta.few_shot_model"))
    assert "loader_module: arelu_meta.few_shot_model\n" in (folder / "MLmodel").read_text()
    support, query = images(6), images(4, seed=1)
    expected = model.probabilities(support, SUPPORT_Y, query)
    assert torch.equal(FewShotModel.load(folder).probabilities(support, SUPPORT_Y, query), expected)


@pytest.mark.parametrize("width", [28, 32])
def test_a_model_of_version_0_1_is_read_where_its_data_is_not(tmp_path, width):
    """It had the whole spec, with a data set that was a folder, and what images it takes in a file of its own."""
    spec = tiny_spec(ways=3, method="meta_sgd").model_dump(mode="json")
    learner = build_learner(tiny_spec(ways=3, method="meta_sgd"), 1, (28, width))
    spec["data"]["dataset"] = "a_folder_that_is_not_here"
    del spec["fit"]
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    images_json = {"channels": 1, "image_size": [28, width], "mean": [0.3], "std": [0.25]}
    (tmp_path / "images.json").write_text(json.dumps(images_json))
    models.save_weights(learner.state().state_dict(), tmp_path / models.WEIGHTS_FILE, Inputs(1))
    support, query = torch.rand(6, 1, 28, width), torch.rand(4, 1, 28, width)
    learner.network.eval()
    expected = learner.adapt((support - 0.3) / 0.25, SUPPORT_Y).logits((query - 0.3) / 0.25).softmax(-1)
    found = FewShotModel.load(tmp_path).probabilities(support, SUPPORT_Y, query)
    torch.testing.assert_close(found, expected)


@pytest.mark.usefixtures("stored")
def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(InputError, match="no folder, MLflow run or model URI: 'nowhere'"):
        FewShotModel.load("nowhere")
    with pytest.raises(InputError, match=r"holds no network of arelu_meta: 0 files"):
        FewShotModel.load(tmp_path)
    with pytest.raises(InputError, match=r"cannot fetch runs:/0{32}/model"):
        FewShotModel.load("0" * 32)
    models.save_weights({}, tmp_path / models.WEIGHTS_FILE, Inputs(1))
    with pytest.raises(InputError, match=r"holds no few-shot model: spec\.json is missing"):
        FewShotModel.load(tmp_path)


def request_body(support: Tensor, labels: Tensor | np.ndarray, query: Tensor) -> dict[str, Any]:
    return {"support_x": support.numpy(), "support_y": np.asarray(labels), "query_x": query.numpy()}


def test_mlflow_answers_as_the_model_does(stored):
    model, run_id = stored
    support, query = images(6), images(4, seed=1)
    for labels in (SUPPORT_Y, SUPPORT_Y % 2):  # as many classes as the head has, and fewer
        answer = mlflow.pyfunc.load_model(f"runs:/{run_id}/model").predict(request_body(support, labels, query))
        expected = model.probabilities(support, labels, query).numpy()
        np.testing.assert_array_equal(answer.filter(like="probability_"), expected)
        assert answer["class"].tolist() == expected.argmax(1).tolist()
        np.testing.assert_array_equal(answer["probability"], expected.max(1))


@pytest.fixture
def server(stored: tuple[FewShotModel, str], tmp_path: Path) -> Iterator[str]:
    """`mlflow models serve` in a process of its own; gives its address."""
    with serving(f"runs:/{stored[1]}/model", tmp_path / "server.log") as address:
        yield address


def post(url: str, inputs: dict[str, Any]) -> tuple[int, str]:
    return post_inputs(url, {name: values.tolist() for name, values in inputs.items()})


def test_mlflow_serves_the_model(server, stored):
    model, support, query = stored[0], images(6), images(4, seed=1)
    status, answer = post(server, request_body(support, SUPPORT_Y, query))
    assert status == 200
    expected = model.probabilities(support, SUPPORT_Y, query)
    found = [[row[f"probability_{way}"] for way in range(3)] for row in json.loads(answer)["predictions"]]
    torch.testing.assert_close(torch.tensor(found), expected, rtol=1e-5, atol=1e-6)
    raw = (support * 255).round().to(torch.uint8), (query * 255).round().to(torch.uint8)
    status, answer = post(server, request_body(raw[0], np.array(["b", "a", "c"] * 2), raw[1]))
    assert status == 200
    expected = model.probabilities(raw[0], torch.tensor([1, 0, 2] * 2), raw[1])
    rows = json.loads(answer)["predictions"]
    found = [[row[f"probability_{name}"] for name in "abc"] for row in rows]
    torch.testing.assert_close(torch.tensor(found), expected, rtol=1e-5, atol=1e-6)
    assert [row["class"] for row in rows] == ["abc"[number] for number in expected.argmax(1)]
    status, answer = post(server, request_body(support * 255, SUPPORT_Y, query))
    assert status == 400
    assert json.loads(answer)["message"].startswith("pixels run from 0.")
    assert json.loads(answer)["message"].endswith("give floats in [0, 1], or uint8: 0 to 255")


def perturbed_model(method: str = "maml") -> FewShotModel:
    spec = tiny_spec(method=method, ways=3)
    learner = build_learner(spec, 1, (28, 28))
    with torch.no_grad():  # weights and rates that a fresh learner does not have
        for number, parameter in enumerate(learner.state().parameters()):
            parameter += 0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number))
    return FewShotModel(LearnerSettings.of(spec), learner, Inputs(1, 28, mean=(0.3,), std=(0.25,)))


def support_and_query(ways: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Two supports and three queries of each of some digits, pixels in [0, 1]."""
    digits = data.load("digits")
    chosen = torch.stack([torch.nonzero(digits.labels == way)[:5, 0] for way in range(ways)])
    pixels = digits.images[chosen].float() / 255
    return pixels[:, :2].flatten(0, 1), torch.arange(ways).repeat_interleave(2), pixels[:, 2:].flatten(0, 1)


@pytest.mark.parametrize("method", learners.names())
def test_saved_and_loaded_it_answers_the_same(tmp_path, method):
    original, example = perturbed_model(method), support_and_query()
    original.save(tmp_path / "model")
    probabilities = original.probabilities(*example)
    assert probabilities.shape == (9, 3)
    assert torch.allclose(probabilities.sum(1), torch.ones(9))
    assert torch.equal(FewShotModel.load(tmp_path / "model").probabilities(*example), probabilities)
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [*("few_shot.json", "weights.safetensors")]


def test_pixels_are_normalised_as_in_training():
    """Prototypes of pixels: minus the squared distance of (x - 0.3) / 0.25, so distances grow by 1 / 0.25^2 = 16."""
    support_x, support_y, query_x = support_and_query()
    flat_support, flat_query = support_x.flatten(1).double(), query_x.flatten(1).double()
    means = torch.stack([flat_support[support_y == way].mean(0) for way in range(3)])
    expected = (-16 * (flat_query.unsqueeze(1) - means).square().sum(-1)).softmax(1)
    found = perturbed_model("centroid").probabilities(support_x, support_y, query_x)
    assert torch.allclose(found.double(), expected, atol=1e-4)


def test_fewer_classes_than_the_head_share_all_the_probability():
    probabilities = perturbed_model().probabilities(*support_and_query(2))
    assert probabilities.shape == (6, 2)
    assert torch.allclose(probabilities.sum(1), torch.ones(6))


def test_more_classes_than_the_head_are_wrong_input():
    with pytest.raises(InputError, match=r"the support has 4 classes, but the network's head was trained for 3; train"):
        perturbed_model().probabilities(*support_and_query(4))
    assert perturbed_model("protonet").probabilities(*support_and_query(4)).shape == (12, 4)


def test_labels_in_any_form():
    support_x, support_y, query_x = support_and_query()
    model = perturbed_model()
    expected = model.probabilities(support_x, support_y, query_x)
    for labels in (support_y.tolist(), support_y.numpy(), support_y.numpy().astype(np.uint8)):
        assert torch.equal(model.probabilities(support_x, labels, query_x), expected)
    for labels, message in ((["a"] * 6, "number the classes"), ([0.5, 0.5, 1, 1, 2, 2], r"\[0.5, 1.0, 2.0\]; number")):
        with pytest.raises(InputError, match=message):
            model.probabilities(support_x, labels, query_x)


def test_images_without_channels_are_refused():
    support_x, support_y, query_x = support_and_query()
    with pytest.raises(InputError, match=r"images are \(9, 28, 28\); the network takes"):
        perturbed_model().probabilities(support_x, support_y, query_x[:, 0])


@pytest.mark.usefixtures("store")
def test_served_by_mlflow_it_answers_the_same():
    """By run id, by model URI, from the downloaded folder, and through MLflow's own loader."""
    result = run(tiny_spec(iterations=2, ways=3))
    example = support_and_query()
    uri = f"runs:/{result.run_id}/model"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow's own, at import and when types are checked
        served = mlflow.pyfunc.load_model(uri)
        inputs = dict(zip(("support_x", "support_y", "query_x"), (part.numpy() for part in example), strict=True))
        answer = served.predict(inputs).filter(like="probability_").to_numpy()
        folder = mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path="downloaded")
    assert answer.shape == (9, 3)
    for source in (result.run_id, uri, folder, Path(folder)):
        assert np.array_equal(FewShotModel.load(source).probabilities(*example).numpy(), answer), source
    assert np.ptp(answer) > 0.01
