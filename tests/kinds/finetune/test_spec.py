"""When new activations start where the old ones were, and what is refused."""

import pytest

from arelu_meta.errors import InputError
from arelu_meta.kinds.finetune.spec import FineTuneSpec, PretrainedInputSection, PretrainedSection


@pytest.mark.parametrize(
    ("preserve", "weights", "wanted"),
    [
        ("pretrained", "none", False),
        ("pretrained", "net.pth", True),
        ("always", "none", True),
        ("never", "net.pth", False),
    ],
)
def test_preserved(preserve, weights, wanted):
    assert PretrainedSection(preserve=preserve, weights=weights).preserved is wanted


def test_means_and_deviations_come_in_pairs():
    assert PretrainedInputSection(mean=(0.5,), std=(0.2,)).std == (0.2,)
    for wrong in ({"mean": (0.5,)}, {"mean": (0.5,), "std": (0.0,)}, {"mean": (0.5,), "std": (0.1, 0.2)}):
        with pytest.raises(InputError, match=r"PretrainedInputSection: `(mean|std)`"):
            PretrainedInputSection(**wrong)


def test_everything_that_decides_a_result_is_in_the_identity():
    def identity(**network):
        return FineTuneSpec(task="t", data={"dataset": "digits"}, network=network).identity

    plain = identity()
    for change in ({"weights": "a.pth"}, {"activation": "arelu"}, {"preserve": "never"}, {"keep_statistics": True}):
        assert identity(**change) != plain
