"""A folder for a model hub: read by `load_model` where there is no store, with a card that says what is known."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import arelu_meta
from arelu_meta.export import main
from arelu_meta.store.model_card import model_card
from arelu_meta.store.models import open_model
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = MLFLOW_WARNINGS


@pytest.fixture(scope="module")
def trained(tmp_path_factory, finetuned):
    """A finished run, and the folder that it was exported to once."""
    published = tmp_path_factory.mktemp("exported") / "published"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", finetuned.tracking_uri)
        assert main([finetuned.run_id, "--to", "hub", "--output", str(published)]) == 0
    return finetuned, published


def test_the_folder_answers_without_its_store(trained, tmp_path, monkeypatch):
    """Copied elsewhere, beside a store that knows nothing of it."""
    result, published = trained
    shutil.copytree(published, tmp_path / "copy")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'other.db'}")
    images = torch.randint(0, 256, (5, 3, 28, 28), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    model = arelu_meta.load_model("copy")
    pixels = model.served.inputs.normalise(images.float() / 255)
    with torch.no_grad():
        expected = [str(answer) for answer in result.network.eval()(pixels).argmax(1).tolist()]
    assert model.predict(images.numpy())["class"].tolist() == expected
    assert not Path("other.db").exists()


def test_the_card_says_what_was_measured(trained):
    result, published = trained
    card = (published / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: arelu_meta\npipeline_tag: image-classification\n")
    assert f"| test/accuracy | {result.score:.2%} (95 % interval " in card
    parameters = sum(tensor.numel() for tensor in result.network.state_dict().values())
    assert f"{parameters:,} parameters" in card
    assert "| classes | 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 |" in card
    assert card.count("To be written by whoever publishes it") == 3


def test_the_configuration(trained):
    result, published = trained
    config = json.loads((published / "config.json").read_text())
    assert config["class_names"] == [str(digit) for digit in range(10)]
    assert config["inputs"]["channels"] == 3
    assert config["settings"]["network"]["activation"] == result.spec.network.activation
    assert config["source"] == f"runs:/{result.run_id}/model"


def test_a_folder_without_run_or_settings_says_what_is_not_known(trained, tmp_path):
    """No score is made up where no store has one."""
    for name in ("weights.safetensors", "model.pt2"):
        shutil.copy(trained[1] / name, tmp_path / name)
    card = model_card(open_model(tmp_path), 7)
    assert "| measured | nothing is known of it here |" in card
    assert "| trained on | not known |" in card
    assert "# network: network" in card


@pytest.mark.parametrize("network", [{"backbone": "x\n- y: z"}, 3, []])
def test_what_came_with_a_strangers_network_is_shown_and_not_read(trained, tmp_path, network):
    """Markdown takes a sign after a backslash for itself; a line of the table stays one, and the head has its five."""
    for name in ("weights.safetensors", "model.pt2"):
        shutil.copy(trained[1] / name, tmp_path / name)
    hostile = "<script>f()</script>|a|[b](javascript:f())\n| run | mine |"
    (tmp_path / "spec.json").write_text(json.dumps({"task": hostile, "network": network, "data": 7, "target": None}))
    card = model_card(replace(open_model(tmp_path), class_names=("a", hostile)), 7)
    head = card.split("---\n")[1].splitlines()
    assert [line.partition(":")[0] for line in head] == [
        *("library_name", "pipeline_tag", "tags", "- arelu_meta"),
        "- x---y--z" if isinstance(network, dict) else "- network",
    ]
    assert len(re.findall(r"^\| run \|", card, re.M)) == 1
    assert re.search(r"(?<!\\)[<|\[](script|a\||b\])", card) is None
    assert card.count(r"\<script\>f()\</script\>\|a\|\[b\](javascript:f())") == 2
