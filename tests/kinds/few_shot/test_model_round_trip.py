"""A trained model saved, loaded, served: the same probabilities every way."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from arelu_meta import data, learners
from arelu_meta.errors import InputError
from arelu_meta.kinds.few_shot.model import FewShotModel, build_learner
from arelu_meta.kinds.run import run
from tests.tiny_runs import MLFLOW_WARNINGS, tiny_spec

pytestmark = MLFLOW_WARNINGS
MEAN, STD = (0.3,), (0.25,)


def model(method: str = "maml") -> FewShotModel:
    spec = tiny_spec(method=method, ways=3)
    learner = build_learner(spec, 1, (28, 28))
    with torch.no_grad():  # weights and rates that a fresh learner does not have
        for number, parameter in enumerate(learner.state().parameters()):
            parameter += 0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number))
    return FewShotModel(spec, learner, channels=1, image_size=(28, 28), mean=MEAN, std=STD)


def support_and_query(ways: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Two supports and three queries of each of some digits, pixels in [0, 1]."""
    digits = data.load("digits")
    chosen = torch.stack([torch.nonzero(digits.labels == way)[:5, 0] for way in range(ways)])
    pixels = digits.images[chosen].float() / 255
    return pixels[:, :2].flatten(0, 1), torch.arange(ways).repeat_interleave(2), pixels[:, 2:].flatten(0, 1)


@pytest.mark.parametrize("method", learners.names())
def test_saved_and_loaded_it_answers_the_same(tmp_path, method):
    original, example = model(method), support_and_query()
    original.save(tmp_path / "model")
    probabilities = original.probabilities(*example)
    assert probabilities.shape == (9, 3)
    assert torch.allclose(probabilities.sum(1), torch.ones(9))
    assert torch.equal(FewShotModel.load(tmp_path / "model").probabilities(*example), probabilities)
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        *("images.json", "spec.json", "weights.safetensors")
    ]


def test_pixels_are_normalised_as_in_training():
    """Prototypes of pixels: minus the squared distance of (x - 0.3) / 0.25, so distances grow by 1 / 0.25^2 = 16."""
    support_x, support_y, query_x = support_and_query()
    flat_support, flat_query = support_x.flatten(1).double(), query_x.flatten(1).double()
    means = torch.stack([flat_support[support_y == way].mean(0) for way in range(3)])
    expected = (-16 * (flat_query.unsqueeze(1) - means).square().sum(-1)).softmax(1)
    found = model("centroid").probabilities(support_x, support_y, query_x)
    assert torch.allclose(found.double(), expected, atol=1e-4)


def test_fewer_classes_than_the_head_share_all_the_probability():
    probabilities = model().probabilities(*support_and_query(2))
    assert probabilities.shape == (6, 2)
    assert torch.allclose(probabilities.sum(1), torch.ones(6))


def test_more_classes_than_the_head_are_wrong_input():
    with pytest.raises(InputError, match=r"the support has 4 classes, but the network's head was trained for 3; train"):
        model().probabilities(*support_and_query(4))
    assert model("protonet").probabilities(*support_and_query(4)).shape == (12, 4)


def test_wrong_images_and_wrong_places_are_wrong_input(tmp_path):
    support_x, support_y, query_x = support_and_query()
    with pytest.raises(InputError, match=r"images are \(9, 28, 28\); the network takes"):
        model().probabilities(support_x, support_y, query_x[:, 0])
    with pytest.raises(InputError, match=r"holds no network of arelu_meta: 0 files"):
        FewShotModel.load(tmp_path)
    with pytest.raises(InputError, match=r"no folder, MLflow run or model URI: 'nowhere'"):
        FewShotModel.load("nowhere")


@pytest.mark.usefixtures("store")
def test_served_by_mlflow_it_answers_the_same():
    """By run id, by model URI, from the downloaded folder, and through MLflow's own loader."""
    result = run(tiny_spec(iterations=2, ways=3))
    example = support_and_query()
    uri = f"runs:/{result.run_id}/model"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow's own, at import and when types are checked
        import mlflow

        served = mlflow.pyfunc.load_model(uri)
        inputs = dict(zip(("support_x", "support_y", "query_x"), (part.numpy() for part in example), strict=True))
        answer = served.predict(inputs)
        folder = mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path="downloaded")
    assert answer.shape == (9, 3)
    for source in (result.run_id, uri, folder, Path(folder)):
        assert np.array_equal(FewShotModel.load(source).probabilities(*example).numpy(), answer), source
    assert np.ptp(answer) > 0.01


@pytest.mark.usefixtures("store")
def test_a_run_that_is_not_there():
    with pytest.raises(InputError, match=f"cannot fetch runs:/{'0' * 32}/model"):
        FewShotModel.load("0" * 32)
