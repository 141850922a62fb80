"""What decides the identity of a meta-learning run."""

import hashlib
import json

import pytest

from arelu_meta import learners
from arelu_meta.errors import InputError
from arelu_meta.kinds.few_shot.spec import FewShotSpec

OTHER = {"inner_lr": 0.3, "inner_steps": 7, "test_steps": 9, "clip_norm": 2.0}


def identity(method: str, **training: object) -> str:
    return FewShotSpec(task="t", data={"dataset": "digits"}, training={"method": method, **training}).identity


@pytest.mark.parametrize("method", learners.names())
@pytest.mark.parametrize("setting", OTHER)
def test_settings_of_the_inner_loop_count_where_there_is_one(method: str, setting: str):
    """A grid over what a method ignores would otherwise run equal cells as different ones."""
    changed = identity(method, **{setting: OTHER[setting]}) != identity(method)
    assert changed == (setting in learners.entry(method).settings)


@pytest.mark.parametrize("method", learners.names())
def test_bounds_on_the_outer_gradient_count_where_they_are_heeded(method: str):
    by_gradient = learners.entry(method).by_gradient
    assert (identity(method, episode_clip=2.0) != identity(method)) == by_gradient
    assert identity(method, outer_clip=2.0) != identity(method)
    assert identity(method, episode_clip=None, outer_clip=None) == identity(method)


@pytest.mark.parametrize("method", ["maml", "protonet"])
def test_metrics_of_clipping(method: str):
    spec = FewShotSpec(task="t", data={"dataset": "digits"}, training={"method": method, "episode_clip": 2.0})
    assert {"train/gradient_norm", "train/collapsed"} <= spec.metrics()
    assert ("train/clipped_episodes" in spec.metrics()) == (method == "maml")


def test_pixels_and_shape_of_images_count_where_they_are_not_as_before():
    spec = {"task": "t", "data": {"dataset": "digits"}}
    changes = ({"normalise": "unit"}, {"normalise": "none"}, {"image_size": 32}, {"channels": 3}, {"resize": "crop"})
    assert len({FewShotSpec(**spec, fit=fit).identity for fit in ({}, *changes)}) == 6
    assert FewShotSpec(**spec, fit={"normalise": "standardise"}).identity == FewShotSpec(**spec).identity


def test_runs_that_held_images_back_under_the_paper_are_others():
    """The identity at commit b55926e, when a share of the training images was left to validate, is not taken up."""
    spec = FewShotSpec(task="t", data={"dataset": "digits"}, evaluation={"protocol": "paper"})
    content = spec.model_dump(mode="json", exclude={"summary", "fit"})
    for later in ("adapt", "lora_rank", "head", "loss", "episode_clip", "outer_clip", "precision"):
        del content["training"][later]
    del content["data"]["split_seed"], content["network"]["init"], content["network"]["weights"]
    before = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    content["evaluation"]["protocol"] = "sound"
    sound = FewShotSpec(task="t", data={"dataset": "digits"})
    assert sound.identity == hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    assert spec.identity != before


def test_what_adapts_counts_where_it_is_not_all():
    parts = ("all", "head", "body", "norm", "activation", "head+activation", "lora")
    assert len({identity("maml", adapt=part) for part in parts}) == len(parts)
    assert identity("maml", adapt="all") == identity("maml")
    with pytest.raises(InputError, match="unknown part of the network in `adapt`: 'activations'; did you mean"):
        identity("maml", adapt="head+activations")
    with pytest.raises(InputError, match=r"what method 'anil' moves is fixed; leave `adapt` out \('norm'\)"):
        identity("anil", adapt="norm")
    with pytest.raises(InputError, match=r"'maml' with adapt 'norm' treats no layer apart; leave `head` out \('fc'\)"):
        identity("maml", adapt="norm", head="fc")
    assert identity("maml", adapt="body", head="fc") != identity("maml", adapt="body")
    assert identity("maml", adapt="lora", lora_rank=4) == identity("maml", adapt="lora")
    assert identity("maml", adapt="lora", lora_rank=2) != identity("maml", adapt="lora")
    with pytest.raises(InputError, match=r"'maml' with adapt 'head' has no adapters; leave `lora_rank` out \(2\)"):
        identity("maml", adapt="head", lora_rank=2)
    with pytest.raises(InputError, match=r"what method 'protonet' moves is fixed; leave `adapt` out \('lora'\)"):
        identity("protonet", adapt="lora")


def test_a_choice_on_validation_episodes_needs_some():
    paper = {"protocol": "paper"}
    with pytest.raises(InputError, match="'pmf' makes a choice on validation episodes, which protocol 'paper'"):
        FewShotSpec(task="t", data={"dataset": "digits"}, training={"method": "pmf"}, evaluation=paper)
    with pytest.raises(InputError, match="normalise 'weights' is for networks of others, not for 'mnist_conv'"):
        FewShotSpec(task="t", data={"dataset": "digits"}, fit={"normalise": "weights"})


def test_identities_of_earlier_runs_stand():
    """Computed at commit e3c9156: of a gradient method with settings of its own, and of a floor at the defaults."""
    assert identity("maml", **OTHER)[:16] == "7e77f43fbbd48e9e"
    assert identity("protonet")[:16] == "68110ea7f33b8c35"
