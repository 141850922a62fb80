"""A few-shot model as MLflow serves it: supports with names, images in any form, one line for what is wrong."""

import numpy as np
import pytest
import torch

from arelu_meta.errors import InputError
from arelu_meta.kinds.few_shot.served import ServedFewShotModel
from tests.data.test_raw_images import FORMS
from tests.tiny_model import tiny_model

NAMES = np.array(["owl", "cat", "dog", "owl", "cat", "dog"])
NUMBERS = torch.tensor([2, 0, 1, 2, 0, 1])  # of the names in the order of the alphabet


def pixels(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 1, 28, 28), np.uint8)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_names_come_back_with_the_answers(form):
    model, support, query = tiny_model(), pixels(6), pixels(4, seed=1)
    answer = ServedFewShotModel(model).predict({"support_x": form(support), "support_y": NAMES, "query_x": form(query)})
    expected = model.probabilities(support, NUMBERS, query).numpy()
    columns = ["probability_cat", "probability_dog", "probability_owl"]
    assert list(answer) == ["class", "probability", *columns]
    np.testing.assert_allclose(answer[columns], expected, rtol=1e-4, atol=1e-6)
    assert answer["class"].tolist() == [("cat", "dog", "owl")[number] for number in expected.argmax(1)]


def test_classes_may_be_any_numbers():
    labels = [7, 3, 3]
    answer = ServedFewShotModel(tiny_model()).predict(
        {"support_x": pixels(3), "support_y": labels, "query_x": pixels(2, seed=1)}
    )
    assert list(answer)[2:] == ["probability_3", "probability_7"]
    assert set(answer["class"]) <= {3, 7}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (pixels(2), "the input is ndarray; give a mapping of support_x, support_y and query_x"),
        ({"support_x": pixels(2)}, r"the input is \['support_x'\]; give a mapping of support_x, support_y and query_x"),
        (
            {"support_x": pixels(2), "support_y": ["a", "b"], "query_x": pixels(2) * 1.0},
            "pixels run from 0 to 255; give floats in",
        ),
        *(
            ({"support_x": pixels(2), "support_y": wrong, "query_x": pixels(2)}, "support_y is .*; give one name each")
            for wrong in (
                [1, "a"],
                ["1", 1],
                ["a", None],
                [1.0, float("nan")],
                np.array([1, "1"], dtype=object),
                [[1], 2],
            )
        ),
        (
            {"support_x": pixels(2), "support_y": ["a"], "query_x": pixels(2)},
            r"2 support images have labels \(1,\); give one label each",
        ),
        (
            {"support_x": pixels(2), "support_y": ["a", "b"], "query_x": ["file.png"]},
            "query images 0 is text and no base64",
        ),
        (
            {"support_x": pixels(4), "support_y": list("abcd"), "query_x": pixels(2)},
            "the support has 4 classes, but the network's head was trained for 3",
        ),
    ],
)
def test_wrong_input_is_one_line(inputs, message):
    with pytest.raises(InputError, match=f"^{message}") as raised:
        ServedFewShotModel(tiny_model()).predict(inputs)
    assert "\n" not in str(raised.value)
