"""Networks of timm as timm builds them: tags, folders of a hub, image sizes, channels, networks without a head."""

import json

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import nn

from arelu_meta.backbones.features import feature_network
from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import InputError
from arelu_meta.pretrained.assembly import assemble, load_network, noise
from arelu_meta.pretrained.networks import find_model
from arelu_meta.pretrained.timm_networks import build_timm, convert_weights, head_path, is_headless


def images(channels: int = 3, side: int = 16) -> ImageSet:
    pixels = torch.randint(256, (6, channels, side, side), generator=torch.Generator().manual_seed(0))
    return ImageSet("noise", pixels.to(torch.uint8), torch.arange(6) % 3, ("a", "b", "c"))


@pytest.fixture
def headless(tmp_path) -> str:
    """Weights of a small vision transformer without a classifier, made for images of 160 pixels."""
    torch.manual_seed(0)
    network = timm.create_model("test_vit", num_classes=0)
    save_file(network.state_dict(), tmp_path / "headless.safetensors")
    return str(tmp_path / "headless.safetensors")


def test_timm_unpickles_no_checkpoint_that_its_options_name(tmp_path):
    """A task file may have options, and its weights go through our own reader."""
    with pytest.raises(InputError, match="checkpoint_path is no option of timm/test_vit here; give the file as `weig"):
        build_timm("test_vit", {"checkpoint_path": str(tmp_path / "x.pth")})


def test_weights_without_a_classifier_get_one(headless):
    """DINOv2, MAE and the like: the head is drawn from the seed, the rest is what the file holds."""
    made = assemble("timm/test_vit", images=images(), weights=headless)
    assert (made.head, made.network.head.out_features, made.agreement) == ("head", 3, None)
    assert made.inputs.image_size == 160
    state = timm.create_model("test_vit", num_classes=0).state_dict().keys()
    assert set(made.weights.state) == set(state)
    for name in state:
        assert torch.equal(made.network.state_dict()[name], made.weights.state[name])
    again, other = (assemble("timm/test_vit", images=images(), weights=headless, seed=seed) for seed in (0, 1))
    assert torch.equal(again.network.head.weight, made.network.head.weight)
    assert not torch.equal(other.network.head.weight, made.network.head.weight)


def test_a_name_whose_published_weights_have_no_classifier():
    network = build_timm("vit_tiny_patch16_224", {"num_classes": 0, "depth": 1})
    assert is_headless(network)
    assert head_path(network) == ""
    assert head_path(build_timm("vit_tiny_patch16_224", {"depth": 1})) == "head"


def test_position_embeddings_at_another_size_are_timms(headless):
    """160 pixels in patches of 16 are 10x10 places; at 96 they are 6x6, resampled by timm's own function."""
    from timm.layers import resample_abs_pos_embed

    network, read, inputs = load_network("timm/test_vit", headless, {}, images(), image_size=96)
    assert inputs.image_size == 96
    before = read.state["pos_embed"]
    after = network.pos_embed
    prefix = network.num_prefix_tokens if not network.no_embed_class else 0
    assert after.shape[1] == 36 + prefix
    expected = resample_abs_pos_embed(before, new_size=[6, 6], num_prefix_tokens=prefix)
    assert torch.allclose(after, expected)
    assert torch.equal(network.blocks[0].attn.qkv.weight, read.state["blocks.0.attn.qkv.weight"])


def test_grey_images_take_the_sum_of_the_first_kernels(tmp_path):
    torch.manual_seed(0)
    state = timm.create_model("test_resnet").state_dict()
    save_file(state, tmp_path / "colour.safetensors")
    network, _, inputs = load_network(
        "timm/test_resnet", str(tmp_path / "colour.safetensors"), {}, images(), channels=1
    )
    assert inputs.channels == 1
    first = next(name for name, module in network.named_modules() if isinstance(module, nn.Conv2d))
    assert torch.allclose(network.get_submodule(first).weight, state[f"{first}.weight"].sum(1, keepdim=True))


def test_weights_of_other_classes_and_their_head(tmp_path):
    """A file of seven classes: the network has seven until its head is replaced, and all weights are the file's."""
    state = timm.create_model("test_resnet", num_classes=7).state_dict()
    save_file(state, tmp_path / "seven.safetensors")
    network, _, _ = load_network("timm/test_resnet", str(tmp_path / "seven.safetensors"), {}, images())
    assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())
    assert network.num_classes == 7


def test_weights_of_another_network_are_still_refused_with_their_names(tmp_path, headless):
    with pytest.raises(InputError, match=r"holds no weights of test_resnet: .* is missing"):
        load_network("timm/test_resnet", headless, {}, images())
    half = dict(list(timm.create_model("test_vit").state_dict().items())[:5])
    save_file(half, tmp_path / "half.safetensors")
    with pytest.raises(InputError, match=r"holds no weights of test_vit: .* is missing"):
        load_network("timm/test_vit", str(tmp_path / "half.safetensors"), {}, images())


def test_a_folder_of_the_hub(tmp_path):
    """What `push_to_hf_hub` writes: config.json and model.safetensors."""
    torch.manual_seed(0)
    state = timm.create_model("test_resnet", num_classes=5).state_dict()
    config = {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6], "input_size": [3, 64, 64], "num_classes": 5}
    config |= {"first_conv": "conv1.0", "classifier": "fc"}
    (tmp_path / "config.json").write_text(
        json.dumps({"architecture": "test_resnet", "num_classes": 5, "pretrained_cfg": config})
    )
    save_file(state, tmp_path / "model.safetensors")
    made = assemble(f"timm/local-dir:{tmp_path}", images=images(), weights="DEFAULT")
    assert (made.inputs.image_size, made.inputs.mean) == (64, (0.1, 0.2, 0.3))
    assert torch.equal(made.network.conv1[0].weight, state["conv1.0.weight"])
    assert made.network.get_classifier().out_features == 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("timm/resnet18.a9_in1k", "unknown weights of timm/resnet18: 'a9_in1k'; did you mean 'a[123]_in1k'"),
        ("timm/hf-hub:nobody/nothing", r"cannot fetch timm/hf-hub:nobody/nothing: .*; .*timm/local-dir:FOLDER"),
        ("timm/local-dir:no_such_folder", r"cannot fetch timm/local-dir:no_such_folder: "),
    ],
)
def test_wrong_names(monkeypatch, name, message):
    monkeypatch.setenv("ARELU_META_OFFLINE", "1")
    with pytest.raises(InputError, match=message) as raised:
        assemble(name, images=images())
    assert "\n" not in str(raised.value)


def test_a_tag_is_part_of_the_name():
    assert find_model("timm/resnet18.a1_in1k").bare == "resnet18.a1_in1k"
    assert find_model("levit_128s.fb_dist_in1k").family == "timm"


def test_what_timm_cannot_convert_raises():
    with pytest.raises(RuntimeError):
        convert_weights("test_resnet", {}, {"nothing": torch.zeros(1)}, classes=5, channels=0, image_size=0)


def test_features_of_a_network_with_two_classifiers(tmp_path):
    """A distilled one has no single head to replace, but one kind of features."""
    options = {"depth": 1, "embed_dim": 16, "num_heads": 2}
    state = timm.create_model("deit_tiny_distilled_patch16_224", **options).state_dict()
    save_file(state, tmp_path / "two.safetensors")
    given = ("timm/deit_tiny_distilled_patch16_224", str(tmp_path / "two.safetensors"))
    network, _, inputs = load_network(*given, options, images())
    assert feature_network(network, noise(inputs, 2))(noise(inputs, 2)).shape == (2, 16)
    with pytest.raises(InputError, match="which layer is the classifier"):
        assemble(given[0], images=images(), weights=given[1], model_options=options)


def test_weights_that_timm_cannot_bring_to_another_size(tmp_path):
    """The mixing layers of an MLP-Mixer are as wide as there are patches."""
    save_file(timm.create_model("mixer_s32_224").state_dict(), tmp_path / "mixer.safetensors")
    with pytest.raises(InputError, match=r"holds no weights of mixer_s32_224: .* there and .* here"):
        load_network("timm/mixer_s32_224", str(tmp_path / "mixer.safetensors"), {}, images(), image_size=96)
