"""Networks that are installed with their weights, and the list of what needs no download."""

from dataclasses import replace

import pytest
import torch

from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import InputError
from arelu_meta.pretrained import installed
from arelu_meta.pretrained.assembly import load_network
from arelu_meta.pretrained.networks import find_model
from arelu_meta.pretrained.weights import read_weights

LITE0 = installed.NETWORKS["efficientnet_lite0"]
needs_lite0 = pytest.mark.skipif(LITE0.weights is None, reason="no weights: arelu-meta[pretrained]")


@needs_lite0
def test_the_default_comes_with_its_weights():
    """TensorFlow's normalisation of the Lite networks: bytes less 127, divided by 128."""
    images = ImageSet("blank", torch.zeros(2, 3, 8, 8, dtype=torch.uint8), torch.tensor([0, 1]), ("a", "b"))
    network, read, inputs = load_network(installed.DEFAULT, "DEFAULT", {}, images, image_size=64)
    assert inputs.image_size == 64
    assert inputs.normalise(torch.full((1, 3, 1, 1), 255 / 255)).flatten().tolist() == pytest.approx([1.0] * 3)
    stored = torch.load(LITE0.weights, weights_only=True)
    assert torch.equal(network._fc.weight, stored["_fc.weight"])
    assert len(read.digest) == 64


@needs_lite0
def test_other_weights_of_it_are_unknown():
    with pytest.raises(InputError, match="unknown weights of installed/efficientnet_lite0: 'V2'; known: DEFAULT"):
        read_weights("V2", model=find_model(installed.DEFAULT))


def test_what_is_missing_is_named(monkeypatch):
    with pytest.raises(InputError, match="unknown model installed/ 'efficientnet_lite1'; did you mean"):
        find_model("installed/efficientnet_lite1")
    missing = replace(LITE0, packages=("efficientnet_lite_pytorch", "no_such_package"))
    monkeypatch.setitem(installed.NETWORKS, "efficientnet_lite0", missing)
    with pytest.raises(InputError, match=r"needs efficientnet_lite_pytorch and no_such_package; pip install 'arelu-"):
        find_model("installed/efficientnet_lite0")
    assert not any(name.startswith("installed/") for name, _, _ in installed.usable_offline())


def test_downloads_of_others_are_listed(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "torch" / "hub" / "checkpoints").mkdir(parents=True)
    file, swag = (
        tmp_path / "torch" / "hub" / "checkpoints" / name
        for name in ("resnet18-f37072fd.pth", "vit_b_16_swag-9ac1b537.pth")
    )
    for each in (file, swag, file.parent / "fcn_resnet50_coco-1167a1af.pth", file.parent / "mine.pth"):
        each.touch()  # the third segments, the last is of nobody knows what
    snapshot = tmp_path / "hub" / "models--timm--resnet18.a1_in1k" / "snapshots" / "0" / "model.safetensors"
    snapshot.parent.mkdir(parents=True)
    snapshot.touch()
    (tmp_path / "hub" / "models--timm--half_fetched").mkdir()
    rows = [row for row in installed.usable_offline() if not row[0].startswith("installed/")]
    assert rows == [
        ("resnet18", str(file), "downloaded by torchvision: ResNet18_Weights.IMAGENET1K_V1"),
        ("vit_b_16", str(swag), "downloaded by torchvision: ViT_B_16_Weights.IMAGENET1K_SWAG_E2E_V1"),
        ("timm/resnet18.a1_in1k", "DEFAULT", "downloaded by timm"),
    ]


def test_every_file_of_torchvision_is_listed_by_its_network():
    """Against torchvision itself: all weights of all classifiers."""
    from torchvision import models

    expected = {}
    for name in models.list_models(module=models):
        for weights in models.get_model_weights(name):
            expected[weights.url.rpartition("/")[2]] = (name, str(weights))
    assert installed._torchvision_weights() == expected
