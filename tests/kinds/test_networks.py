"""The network of a spec: built alike for a run and before it."""

import pytest
import torch
from torch import nn

from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import InputError
from arelu_meta.kinds.few_shot.spec import FewShotSpec
from arelu_meta.kinds.networks import (
    build_classifier,
    build_segmenter,
    check_classifier,
    check_few_shot,
    check_logits,
    check_segmenter,
)
from tests.supervised_runs import classify_spec, segment_spec

IMAGES = ImageSet("noise", torch.zeros(3, 1, 32, 32, dtype=torch.uint8), torch.arange(3), ("a", "b", "c"))


def test_initial_weights_are_those_of_the_seed_whatever_the_activation():
    spec = classify_spec()
    relu, arelu, other = (
        build_classifier(spec.network.model_copy(update={"activation": name}), IMAGES, seed=seed)
        for name, seed in (("relu", 1), ("arelu", 1), ("relu", 2))
    )
    weights = dict(arelu.named_parameters())
    for (name, weight), others in zip(relu.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(weights[name], weight)
        assert not torch.equal(weight, others)
    assert relu(IMAGES.pixels(torch.arange(3))).shape == (3, 3)


def test_initial_weights_of_a_kind_are_those_of_the_seed_too():
    """Unit variance goes by the images, and so by the activation; the directions are the same."""
    noise = torch.randint(256, (300, 1, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    images = ImageSet("noise", noise, torch.arange(300) % 3, ("a", "b", "c"))
    section = classify_spec(network={"init": "unit_variance"}).network
    relu, arelu, again, other = (
        build_classifier(section.model_copy(update={"activation": name}), images, seed=seed)
        for name, seed in (("relu", 1), ("arelu", 1), ("relu", 1), ("relu", 2))
    )
    weights = zip(
        *(
            [layer.weight for layer in net.modules() if hasattr(layer, "kernel_size") and hasattr(layer, "weight")]
            for net in (relu, arelu, again, other)
        ),
        strict=True,
    )
    for one, two, same, different in weights:
        assert torch.nn.functional.cosine_similarity(one.flatten(), two.flatten(), 0).item() == pytest.approx(
            1, abs=1e-5
        )
        assert torch.equal(one, same)
        assert not torch.allclose(one, different)
    check_classifier(classify_spec(network={"init": "unit_variance"}), IMAGES)  # blank images say nothing about it


def test_a_segmenter_marks_every_pixel():
    spec = segment_spec()
    network = build_segmenter(spec.network, IMAGES, seed=0)
    assert network(IMAGES.pixels(torch.arange(3))).shape == (3, 1, 32, 32)
    check_segmenter(spec, IMAGES)


def test_the_random_numbers_of_others_stay():
    state = torch.get_rng_state()
    check_classifier(classify_spec(network={"backbone": "tests.own_parts:TinyNet"}), IMAGES)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_check_leaves_the_running_statistics_alone():
    network = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(1024, 3))
    with torch.no_grad():
        network[0].running_mean.fill_(5.0)
    check_logits(network, IMAGES, (3,), "mine")
    assert network[0].running_mean.item() == 5.0
    assert network[0].num_batches_tracked.item() == 0


def test_more_ways_than_classes_are_refused():
    spec = FewShotSpec(task="mine", data={"dataset": "digits"}, episode={"ways": 4})
    with pytest.raises(InputError, match="noise has 3 classes, but ways = 4; lower `ways`"):
        check_few_shot(spec, IMAGES)


def test_logits_of_another_number_are_refused():
    spec = classify_spec(network={"backbone": "tests.own_parts:wrong_logits"})
    with pytest.raises(InputError, match=r"wrong_logits' gives \(2, 4\) for 2 images; it must give logits \(2, 3\)"):
        check_classifier(spec, IMAGES)
