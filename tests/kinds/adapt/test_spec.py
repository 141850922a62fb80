"""The settings of an adaptation."""

import pytest

from arelu_meta.errors import InputError
from arelu_meta.kinds.adapt.spec import AdaptSpec


def test_methods_in_their_own_order_each_once():
    spec = AdaptSpec(task="t", data={"dataset": "digits"}, methods={"method": ["linear", "knn", "linear"]})
    assert spec.methods.arms == ("knn", "linear")
    whole = AdaptSpec(task="t", data={"dataset": "digits"}, methods={"method": ["all"]})
    assert whole.methods.arms == ("prototypes", "knn", "linear", "norm", "activation", "lora", "full")
    assert AdaptSpec(task="t", data={"dataset": "digits"}).methods.arms == ("prototypes", "knn", "linear")


def test_what_a_run_can_be_judged_by():
    """Without `shots` the set decides whether there is a test or a cross-validation."""
    methods = {"method": ["knn"]}
    held = AdaptSpec(task="t", data={"dataset": "digits", "shots": 5}, methods=methods).metrics()
    assert held == {"test/accuracy", "test/accuracy_knn", "validation/selected_accuracy"}
    every = AdaptSpec(task="t", data={"dataset": "digits"}, methods=methods).metrics()
    assert every == held | {"cross_validation/accuracy", "cross_validation/accuracy_knn"}


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"methods": {"method": ["svm"]}}, "svm"),
        ({"methods": {"method": []}}, "should have at least 1 item"),
        ({"methods": {"folds": 1}}, "folds = 1 must be at least 2"),
        ({"evaluation": {"protocol": "sound"}}, "support_only"),
    ],
)
def test_wrong_settings(sections, message):
    with pytest.raises(InputError, match=message):
        AdaptSpec.model_validate({"task": "t", "data": {"dataset": "digits"}, **sections})
