"""Networks that go into the store and come out the same, from wherever they are named."""

from pathlib import Path

import mlflow
import pytest
import torch
from torch import nn

from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.inputs import Inputs
from arelu_meta.errors import InputError
from arelu_meta.store.models import open_model, save_weights
from arelu_meta.store.run_folder import RunFolder
from arelu_meta.store.tracking import track
from tests.tiny_runs import MLFLOW_WARNINGS, tiny_spec

pytestmark = MLFLOW_WARNINGS


def small_network() -> nn.Module:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU())
    return nn.Sequential(body, nn.Dropout(0.5), nn.Flatten(), nn.Linear(108, 2))


def two_images() -> ImageSet:
    pixels = torch.arange(128, dtype=torch.uint8).view(2, 1, 8, 8)
    return ImageSet("two", pixels, torch.tensor([0, 1]), ("cat", "dog"), mean=(0.5,), std=(0.25,))


@pytest.fixture(scope="module")
def stored(tmp_path_factory, own_store):
    """A folder with a store and the run folder of a run in it, and the run's id."""
    folder = tmp_path_factory.mktemp("stored")
    with own_store(folder):
        with track(tiny_spec(), experiment="models", name="small", tags={}) as tracker:
            tracker.log_network(small_network(), two_images())
        run_folder = RunFolder(tiny_spec())
        run_folder.create()
        run_folder.save({"run_id": tracker.run_id})
        yield tracker.run_id, run_folder.path


@pytest.fixture(autouse=True)
def in_its_store(stored, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{stored[1].parents[1] / 'mlflow.db'}")
    monkeypatch.chdir(tmp_path)


def test_the_same_model_wherever_it_is_named(stored):
    run_id, run_folder = stored
    uri = f"runs:/{run_id}/model"
    downloaded = mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path="downloaded")
    model_id = mlflow.models.get_model_info(uri).model_id
    for source in (run_id, uri, f"models:/{model_id}", downloaded, Path(downloaded), run_folder):
        model = open_model(source)
        assert model.run_id == run_id, source
        assert model.inputs == Inputs(1, 8, (0.5,), (0.25,))
        assert model.class_names == ("cat", "dog")
        assert model.spec() == tiny_spec().model_dump(mode="json")
        state = small_network().state_dict()
        assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def test_the_network_has_the_layers_and_answers_of_the_one_that_was_stored(stored):
    """In evaluation mode: dropout passes everything, batch norm has its running statistics; any number of images."""
    network, original = open_model(stored[0]).network(), small_network().eval()
    x = torch.randn(5, 1, 8, 8)
    assert torch.allclose(network(x), original(x), atol=1e-6)
    seen = []
    network.get_submodule("0.2").register_forward_hook(lambda *arguments: seen.append(arguments[-1]))
    network(x)
    assert torch.allclose(seen[0], original[0](x), atol=1e-6)


def test_what_is_no_model(tmp_path):
    with pytest.raises(InputError, match="no folder, MLflow run or model URI: 'nobody'; check the spelling"):
        open_model("nobody")
    with pytest.raises(InputError, match=f"cannot fetch runs:/{'0' * 32}/model: "):
        open_model("0" * 32)
    with pytest.raises(InputError, match=r"holds no network of arelu_meta: 0 files weights\.safetensors in it"):
        open_model(tmp_path)
    save_weights({}, tmp_path / "weights.safetensors", Inputs(1))
    with pytest.raises(InputError, match="holds no network of classify, finetune or segment; name a run of these"):
        open_model(tmp_path).network()


def test_an_error_without_a_message_is_named(monkeypatch):
    def fails(**_):
        raise OSError

    monkeypatch.setattr(mlflow.artifacts, "download_artifacts", fails)
    with pytest.raises(InputError, match="cannot fetch models:/a/1: OSError"):
        open_model("models:/a/1")
