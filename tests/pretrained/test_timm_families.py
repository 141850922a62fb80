"""Families of timm from end to end: built with a head, features, another image size, swapped, trained, in use.

Smallest members with random weights on small images. What is refused is refused for the reason that is stated here.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from arelu_meta.activations.parameters import activation_modules
from arelu_meta.backbones.features import feature_network
from arelu_meta.data.batches import Batches
from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import InputError
from arelu_meta.pretrained.assembly import Assembled, assemble, fit_to_inputs
from arelu_meta.store.graphs import trace
from arelu_meta.store.predicting import LoadedModel
from arelu_meta.training.learning_rates import layer_groups
from arelu_meta.training.supervised import SupervisedTrainer
from tests.learners.families import TIMM

_SMALL: dict[str, Any] = {"depth": 2, "embed_dim": 48, "num_heads": 3}
FAMILIES = {
    **TIMM,
    "vit_small_patch14_dinov2": (28, _SMALL),
    "vit_small_patch14_reg4_dinov2": (28, _SMALL),
    "vit_base_patch16_clip_224": (32, _SMALL),
    "vit_base_patch16_224.mae": (32, _SMALL),
    "vit_base_patch16_siglip_224": (32, _SMALL),
    "crossvit_tiny_240": (48, {}),
    "resnet26t": (64, {}),
}
QUICK = ("vit_small_patch14_dinov2", "resnet10t", "deit_tiny_patch16_224")
REFUSED = {
    "levit_128s": "which layer is the classifier\\? 2 layers have 1000 outputs; name it by `head`",
    "crossvit_tiny_240": "cannot take images of 3x48x48: .*; change `image_size`",
}
"""families that need a word more, and which"""
_CONTROL_FLOW = "cannot be traced: symbolically traced variables cannot be used as inputs to control flow"
NO_SWAP = {
    "efficientvit_b0": _CONTROL_FLOW,
    "mobilevit_xxs": _CONTROL_FLOW,
    "selecsls42": r"features\.0 branches on the type of a value",
}
"""families whose activations cannot be swapped, and why"""
ONE_SIZE: dict[str, str] = {}
"""families that take images of one size, and why"""
EVERY = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in FAMILIES]
NAMES = ("ant", "bee", "cow")


def images(side: int) -> ImageSet:
    pixels = torch.randint(0, 256, (6, 3, side, side), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    return ImageSet("six", pixels, torch.tensor([0, 1, 2] * 2), NAMES)


def made(name: str, side: int, **options: Any) -> Assembled:
    built = {key: value for key, value in FAMILIES[name][1].items() if key != "img_size"}
    return assemble(f"timm/{name}", images=images(side), model_options=built, image_size=side, **options)


def other_size(name: str) -> int:
    side = FAMILIES[name][0]
    return side + (14 if "patch14" in name else 32)


@pytest.mark.parametrize("name", EVERY)
def test_family(name: str):
    side = FAMILIES[name][0]
    if name in REFUSED:
        with pytest.raises(InputError, match=REFUSED[name]):
            made(name, side)
        return
    if name in NO_SWAP:
        with pytest.raises(InputError, match=NO_SWAP[name]):
            made(name, side, activation="arelu")
    # Preserved, or random weights and a gain of two per layer would make logits that rounding alone turns around.
    one = made(name, side, activation="own" if name in NO_SWAP else "arelu", preserve=True)
    swapped = activation_modules(one.network)
    assert bool(swapped) == (name not in NO_SWAP)
    set_of = fit_to_inputs(images(side), one.inputs, resize="scale")
    x = set_of.pixels(torch.arange(6))
    one.network.eval()
    with torch.no_grad():
        assert one.network(x).shape == (6, 3)
        features = feature_network(one.network, x)(x)
    assert features.shape[0] == 6
    assert features.isfinite().all()
    train_one_step(one, set_of)
    check_answers(one, x)
    if name in ONE_SIZE:
        with pytest.raises(InputError, match=ONE_SIZE[name]):
            made(name, other_size(name))
        return
    other = made(name, other_size(name)).network.eval()
    with torch.no_grad():
        assert other(torch.zeros(2, 3, other_size(name), other_size(name))).shape == (2, 3)


def train_one_step(one: Assembled, set_of: ImageSet) -> None:
    """One step of SGD with decaying rates moves the head and more; some branches start at zero."""
    before = {key: value.detach().clone() for key, value in one.network.named_parameters()}
    batches = Batches(set_of, 6, torch.Generator().manual_seed(0))
    loss = nn.functional.cross_entropy
    trainer = SupervisedTrainer(one.network, batches, loss, epochs=1, lr=0.01, head=one.head, layer_decay=0.75)
    (epoch,) = trainer.train()
    assert np.isfinite(epoch.loss)
    after = dict(one.network.named_parameters())
    moved = {key for key, value in before.items() if not torch.equal(value, after[key])}
    assert any(key.startswith(one.head) for key in moved)
    assert not all(key.startswith(one.head) for key in moved)
    groups = layer_groups(one.network, lr=1.0, layer_decay=0.75)
    assert sum(len(group["params"]) for group in groups) == len(before)


def check_answers(one: Assembled, x: torch.Tensor) -> None:
    """The traced network answers raw images, one and several, as the network itself answers prepared ones."""
    network = one.network.eval()
    served = SimpleNamespace(network=trace(network, x[:2]).module(), inputs=one.inputs, class_names=NAMES)
    raw = images(x.shape[-1]).images.permute(0, 2, 3, 1).numpy()
    with torch.no_grad():
        expected = network(x).softmax(1)
    for count in (1, 6):
        table = LoadedModel("it", served).predict(raw[:count])
        np.testing.assert_allclose(table["probability"], expected[:count].amax(1), rtol=1e-3, atol=1e-4)
        for answer, shares in zip(table["class"], expected[:count], strict=True):
            assert shares[NAMES.index(answer)] > shares.max() - 1e-3  # two classes may be as good


def test_there_are_thirty():
    assert len(FAMILIES) >= 30
    assert {*NO_SWAP, *ONE_SIZE, *QUICK, *REFUSED} <= FAMILIES.keys()
