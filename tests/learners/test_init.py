"""Methods of one's own: registered, by place, or as they are; what is known of them."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from arelu_meta import learners
from arelu_meta.errors import InputError
from arelu_meta.learners.gradient_learner import GradientLearner
from arelu_meta.learners.prototypes import ProtoNet
from tests.learners.small_problems import episodes, own_net
from tests.own_parts import HalfProtoNet, slow_maml

INNER = {"inner_lr": 0.1, "inner_steps": 2}


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(learners._REGISTRY, "_entries", dict(learners._REGISTRY._entries))


@pytest.mark.usefixtures("registry")
def test_by_name_place_and_class():
    """Half of the logits of prototypes, whichever way it is named."""
    learners.register("half", summary="half of the logits")(HalfProtoNet)
    assert learners.names()[-1] == "half"
    batch = episodes(2)
    expected = ProtoNet(own_net()).query_logits(batch) / 2
    for given in ("half", "tests.own_parts:HalfProtoNet", HalfProtoNet):
        assert torch.equal(learners.build(given, own_net()).query_logits(batch), expected)


def test_a_function_that_adapts_by_gradient():
    """The rate is halved by the function: the same as maml at half the rate, on its second engine too."""
    batch = episodes(2)
    expected = learners.build("maml", own_net(), inner_lr=0.05, inner_steps=2).query_logits(batch)
    for given in ("tests.own_parts:slow_maml", slow_maml):
        assert torch.equal(learners.build(given, own_net(), **INNER).query_logits(batch), expected)
    on_higher = learners.build(slow_maml, own_net(), engine="higher", **INNER).query_logits(batch)
    torch.testing.assert_close(on_higher, expected)
    with pytest.raises(
        InputError, match="method 'slow_maml' does not run on engine 'learn2learn'; use `engine='func'`"
    ):
        learners.build(slow_maml, own_net(), engine="learn2learn", **INNER)


def test_facts_are_attributes_or_what_the_signature_says():
    by_gradient, by_features = learners.entry("tests.own_parts:slow_maml"), learners.entry(HalfProtoNet)
    assert (by_gradient.by_gradient, by_gradient.engines) == (True, ("func", "higher"))
    assert by_gradient.settings == learners.INNER_LOOP_SETTINGS
    assert (by_features.by_gradient, by_features.engines, by_features.needs_training) == (False, ("func",), True)
    assert by_features.settings == ()

    class Floor(HalfProtoNet):
        needs_training = False
        by_gradient = True
        engines = ("learn2learn",)

    facts = learners.entry(Floor)
    assert (facts.needs_training, facts.by_gradient, facts.engines) == (False, True, ("learn2learn",))


def test_a_class_that_hands_its_options_on_is_what_its_base_is():
    class Features(ProtoNet):
        def __init__(self, network, **options):
            super().__init__(network, **options)

    class Steps(GradientLearner):
        def __init__(self, network, **options):
            super().__init__(network, **options)

    assert [learners.entry(kind).by_gradient for kind in (Features, Steps)] == [False, True]
    assert isinstance(learners.build(Features, own_net(), chunk=0), Features)


def test_a_method_that_takes_a_head_is_given_one():
    def with_head(network, *, head="", **options):
        assert head == "second"
        return learners.build("anil", network, head=head, **options)

    assert learners.entry(with_head).takes == ("head",)
    assert learners.entry("tests.own_parts:slow_maml").takes == ()
    settings = learners.entry(with_head).settings
    assert settings == (*learners.INNER_LOOP_SETTINGS, "head")


@pytest.mark.parametrize("method", learners.names())
def test_the_facts_of_ours_are_what_would_be_found(method: str):
    """So that a copy of one of our methods is treated as the original: by_gradient follows from the signature."""
    declared = learners.entry(method)
    assert learners.entry(str(declared.target)).by_gradient == declared.by_gradient
    found = learners._with_facts(replace(declared, engines=()))
    assert found.settings == declared.settings


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("tests.own_parts:HalfProto", "unknown attribute of tests.own_parts 'HalfProto'; did you mean 'HalfProtoNet'"),
        ("tests.own_parts:not_a_learner", "gives a .*, not an arelu_meta.learners.learner.Learner"),
        ("half_protonet", "unknown method 'half_protonet'; did you mean 'protonet'"),
        ("builtins:len", r"method 'builtins:len' takes no argument 'chunk'; it is called with chunk="),
        ("maml", "method 'maml' cannot be made: .*missing .* required keyword-only arguments: 'inner_lr'"),
    ],
)
def test_what_cannot_be_built(method: str, message: str):
    with pytest.raises(InputError, match=message):
        learners.build(method, own_net(), chunk=0)


def test_an_option_that_a_method_does_not_have():
    with pytest.raises(InputError, match=r"method 'meta_sgd' cannot be made: .* keyword argument 'inner_lrr'"):
        learners.build("meta_sgd", own_net(), inner_lrr=3, **INNER)


@pytest.mark.usefixtures("registry")
def test_what_cannot_be_registered():
    class Elsewhere(HalfProtoNet):
        engines = ("fucn",)

    with pytest.raises(InputError, match="unknown engine of method 'mine': 'fucn'; did you mean 'func'"):
        learners.register("mine")(Elsewhere)
    with pytest.raises(InputError, match="method 'maml' is registered already"):
        learners.register("maml")(HalfProtoNet)


def test_losses_by_name():
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 1))
    learner = learners.build("maml", network, inner_lr=0.1, inner_steps=1, loss="mse")
    assert isinstance(learner, GradientLearner)
    assert learner.rule.loss is nn.functional.mse_loss
    with pytest.raises(InputError, match="unknown loss 'mes'; did you mean 'mse'"):
        learners.build("maml", network, inner_lr=0.1, inner_steps=1, loss="mes")
