"""A network put together: inputs as the weights want them, activations swapped, head replaced."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.inputs import Inputs
from arelu_meta.errors import InputError
from arelu_meta.pretrained.assembly import assemble, check_memory, check_takes, fit_to_inputs
from tests.tiny_networks import TINY, saved_state, tiny


def images(channels: int = 1, side: int = 12, count: int = 24) -> ImageSet:
    pixels = torch.randint(256, (count, channels, side, side), generator=torch.Generator().manual_seed(0))
    return ImageSet("noise", pixels.to(torch.uint8), torch.arange(count) % 3, ("a", "b", "c"))


@pytest.fixture
def weights(tmp_path) -> str:
    torch.save(saved_state(), tmp_path / "net.pth")
    return str(tmp_path / "net.pth")


def test_a_preserved_swap_keeps_answers_and_a_plain_one_does_not(weights):
    kept = assemble(TINY, images=images(), weights=weights, activation="prelu", preserve=True)
    assert kept.agreement == 1.0
    x = fit_to_inputs(images(), kept.inputs, resize="scale").pixels(torch.arange(24))
    network = tiny()
    network.load_state_dict(saved_state())
    with torch.no_grad():
        before = network.eval().act(network.norm(network.first(x)))
        after = kept.network.eval().act(kept.network.norm(kept.network.first(x)))
    assert torch.equal(before, after)
    assert [site.name for site in kept.report.sites] == ["act", "act_2"]
    free = assemble(TINY, images=images(), weights=weights, activation="arelu", preserve=False)
    assert free.network.act.alpha.item() == pytest.approx(0.9)
    near = assemble(TINY, images=images(), weights=weights, activation="arelu", preserve=True)
    assert near.network.act.alpha.item() == pytest.approx(0.01, rel=1e-5)


def test_head_and_start_depend_on_the_seed_alone(weights):
    one, two = (assemble(TINY, images=images(), weights=weights, activation=name, seed=2) for name in ("own", "arelu"))
    assert one.network.head.weight.shape == (3, 8)
    assert torch.equal(one.network.head.weight, two.network.head.weight)
    assert (one.report, one.agreement) == (None, None)
    other = assemble(TINY, images=images(), weights=weights, seed=3)
    assert not torch.equal(one.network.head.weight, other.network.head.weight)
    assert torch.equal(one.network.second.weight, other.network.second.weight)
    scratch = [assemble(TINY, images=images(), seed=seed).network.second.weight for seed in (2, 2, 3)]
    assert torch.equal(scratch[0], scratch[1])
    assert not torch.equal(scratch[0], scratch[2])


def test_inputs_as_the_weights_the_flags_or_the_images_have_them(tmp_path):
    """The network's first layer has three channels; the file's header says the rest; flags come before both."""
    header = Inputs(3, 20, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    save_file(saved_state(), tmp_path / "a.safetensors", metadata=header.metadata())
    source = str(tmp_path / "a.safetensors")
    assert assemble(TINY, images=images(), weights=source).inputs == header
    asked = assemble(TINY, images=images(), weights=source, image_size=16, mean=(0.5,), std=(0.25,))
    assert asked.inputs == Inputs(3, 16, (0.5,) * 3, (0.25,) * 3)
    unknown = assemble(TINY, images=images())
    assert (unknown.inputs, unknown.target_statistics) == (Inputs(3, 12), True)
    none = assemble(TINY, images=images(), weights=source, normalise="none")
    assert (none.inputs, none.target_statistics) == (Inputs(3, 20), False)
    assert assemble(TINY, images=images(), normalise="imagenet").inputs.mean == (0.485, 0.456, 0.406)


def test_torchvision_says_what_its_weights_want():
    """squeezenet1_1: 224 pixels, ImageNet's statistics, by the metadata of its published weights."""
    found = assemble("squeezenet1_1", images=images(), image_size=32)
    assert found.inputs == Inputs(3, 32, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert (found.head, found.network.classifier[1].out_channels) == ("classifier.1", 3)


def test_timm_says_it_in_the_network():
    found = assemble("timm/test_vit", images=images())
    assert found.inputs.image_size == 160
    assert (found.head, found.network.head.out_features) == ("head", 3)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (TINY, {"image_size": 5}, "cannot take images of 3x5x5: .*; change `image_size` or `channels`"),
        (TINY, {"channels": 1}, "cannot take images of 1x12x12: .*; change `image_size` or `channels`"),
        ("alexnet", {"image_size": 32}, "alexnet cannot take images of 3x32x32"),
        ("tests.tiny_networks:tuple_output", {}, "gives tuple in training, not logits"),
        (TINY, {"mean": (0.1, 0.2), "std": (1.0, 1.0)}, "2 means for 3 channels; give `mean` and `std`"),
        ("mnist_conv", {"weights": "none"}, "mnist_conv takes images of 28 to 35 pixels a side, not 12x12"),
    ],
)
def test_what_does_not_fit_is_refused(model, options, message):
    with pytest.raises(InputError, match=message) as raised:
        assemble(model, images=images(), **options)
    assert "\n" not in str(raised.value)


def test_images_that_are_not_square_need_a_size():
    wide = replace(images(), images=torch.zeros(24, 1, 12, 16, dtype=torch.uint8))
    with pytest.raises(InputError, match="noise has images of 12x16; bring them to a square by `image_size`"):
        assemble(TINY, images=wide)
    assert assemble(TINY, images=wide, image_size=12).inputs.image_size == 12


def test_a_last_batch_of_one_image_that_batch_norm_cannot_take():
    """At 5x5 the first layer leaves one value per channel; a batch of one has no deviation then."""
    network = torch.nn.Sequential(tiny().first, torch.nn.BatchNorm2d(6), torch.nn.Flatten(), torch.nn.Linear(6, 2))
    check_takes(network, Inputs(3, 5), model="it")
    with pytest.raises(InputError, match=r"it cannot take 1 images of 3x5x5 at once: .*; change `batch_size`"):
        check_takes(network, Inputs(3, 5), model="it", batch=1)


def test_a_set_that_does_not_fit_into_memory():
    """10,000 images of 3x100x100 are 0.3 GB."""
    check_memory(10_000, Inputs(3, 100), memory=10**9)
    with pytest.raises(InputError, match=r"10000 images of 100x100 take 0\.3 GB of 0\.4 GB; lower `image_size`"):
        check_memory(10_000, Inputs(3, 100), memory=4 * 10**8)
