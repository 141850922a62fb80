"""FewShotClassifier: scikit-learn's own contract, and numbers from plain loops."""

import pickle
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris, make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.neighbors import NearestCentroid
from sklearn.utils.estimator_checks import parametrize_with_checks

from arelu_meta import activations
from arelu_meta.errors import InputError, RunError
from arelu_meta.estimators import FewShotClassifier
from arelu_meta.estimators.classifier import adapt_tabular
from tests.tiny_model import images, tiny_model

X, Y = make_blobs(n_samples=[8, 7, 9], n_features=4, cluster_std=0.3, random_state=0)
WORDS = np.array(["dog", "cat", "owl", "dog", "cat", "owl"])


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@parametrize_with_checks([FewShotClassifier()])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def adam_by_hand(x, y, parameters, *, steps, lr):
    """One hidden layer of ReLU, cross-entropy, Kingma and Ba's update, all written out; gives the logits' function."""
    hot, moments = np.eye(3)[y], [(np.zeros_like(p), np.zeros_like(p)) for p in parameters]

    def forward(rows):
        w1, b1, w2, b2 = parameters
        before = rows @ w1.T + b1
        return before, np.maximum(before, 0) @ w2.T + b2

    def softmax(logits):
        powers = np.exp(logits - logits.max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)

    for step in range(1, steps + 1):
        before, logits = forward(x)
        error = (softmax(logits) - hot) / len(x)  # gradient of the mean cross-entropy by the logits
        back = (error @ parameters[2]) * (before > 0)
        gradients = [back.T @ x, back.sum(0), error.T @ np.maximum(before, 0), error.sum(0)]
        for number, gradient in enumerate(gradients):
            first, second = moments[number]
            first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
            moments[number] = first, second
            update = (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
            parameters[number] = parameters[number] - lr * update
    return lambda rows: softmax(forward(rows)[1])


def test_without_a_model_it_is_adam_on_standardised_columns():
    seed = int(np.random.RandomState(5).randint(2**31 - 1))
    rows, labels = torch.from_numpy(X), torch.from_numpy(Y)
    start = adapt_tabular(rows, labels, ways=3, activation="relu", hidden=6, steps=0, seed=seed)
    parameters = [parameter.numpy().copy() for parameter in start.network.parameters()]
    mean, deviation = X.mean(0), X.std(0)
    answer = adam_by_hand((X - mean) / deviation, Y, parameters, steps=12, lr=0.05)
    found = FewShotClassifier(activation="relu", hidden=6, steps=12, lr=0.05, random_state=5).fit(X, Y)
    query = X + 0.5
    np.testing.assert_allclose(found.predict_proba(query), answer((query - mean) / deviation), rtol=1e-9, atol=1e-12)


def test_defaults_are_200_steps_at_a_hundredth():
    default = FewShotClassifier(random_state=0).fit(X, Y).predict_proba(X)
    stated = FewShotClassifier(steps=200, lr=0.01, hidden=64, activation="arelu", random_state=0).fit(X, Y)
    np.testing.assert_array_equal(default, stated.predict_proba(X))
    other = FewShotClassifier(steps=199, random_state=0).fit(X, Y)
    assert not np.array_equal(default, other.predict_proba(X))


@pytest.mark.parametrize("activation", activations.names())
def test_every_activation_learns_three_far_groups(activation):
    classifier = FewShotClassifier(activation=activation, random_state=0).fit(X[::2], Y[::2])
    assert classifier.score(X[1::2], Y[1::2]) == 1.0


def test_iris_five_shots():
    """Five flowers of each kind are enough to do about as well as the nearest class mean."""
    x, y = load_iris(return_X_y=True)
    support = np.concatenate([np.flatnonzero(y == kind)[:5] for kind in range(3)])
    rest = np.setdiff1d(np.arange(len(y)), support)
    floor = NearestCentroid().fit(x[support], y[support]).score(x[rest], y[rest])
    assert FewShotClassifier(random_state=0).fit(x[support], y[support]).score(x[rest], y[rest]) > floor - 0.05


def test_constant_columns_and_single_rows():
    x = np.column_stack([X, np.full(len(X), 7.0)])
    classifier = FewShotClassifier(random_state=0).fit(x, Y)
    assert np.isfinite(classifier.predict_proba(x)).all()
    assert FewShotClassifier(random_state=0).fit([[1.0, 2.0]], ["only"]).predict([[3.0, 4.0]]).tolist() == ["only"]


def test_the_seed_decides_and_nothing_else_is_touched():
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    threads, grad = torch.get_num_threads(), torch.is_grad_enabled()

    def fit(seed):
        return FewShotClassifier(steps=5, random_state=seed).fit(X, Y).predict_proba(X)

    np.testing.assert_array_equal(fit(3), fit(3))
    np.testing.assert_array_equal(fit(np.random.RandomState(3)), fit(3))
    assert not np.array_equal(fit(3), fit(4))
    assert not np.array_equal(fit(None), fit(None))
    FewShotClassifier(tiny_model(), random_state=None).fit(images(6), WORDS).predict(images(2))
    assert torch.equal(torch.get_rng_state(), torch_state)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)
    assert (torch.get_num_threads(), torch.is_grad_enabled()) == (threads, grad)


def test_fit_works_where_gradients_are_off():
    with torch.no_grad():
        inside = FewShotClassifier(steps=5, random_state=0).fit(X, Y).predict_proba(X)
    np.testing.assert_array_equal(inside, FewShotClassifier(steps=5, random_state=0).fit(X, Y).predict_proba(X))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"activation": "arleu"}, "unknown activation 'arleu'; did you mean 'arelu'?"),
        ({"hidden": 0}, "hidden = 0; give a whole number"),
        ({"hidden": True}, "hidden = True"),
        ({"hidden": None}, "hidden = None"),
        ({"steps": 2.5}, "steps = 2.5"),
        ({"steps": 0}, "steps = 0"),
        ({"lr": 0.0}, "lr = 0.0; give a number above 0"),
        ({"lr": float("nan")}, "lr = nan"),
        ({"lr": "fast"}, "lr = 'fast'"),
        ({"random_state": "x"}, "'x' cannot be used to seed"),
        ({"model": 3}, "model is a int; give a FewShotModel, a folder"),
        ({"model": "nowhere"}, "no folder, MLflow run or model URI: 'nowhere'"),
    ],
)
def test_wrong_parameters_are_refused_by_fit_not_by_the_constructor(parameters, message):
    classifier = FewShotClassifier(**parameters)
    with pytest.raises(ValueError) as error:  # noqa: PT011
        classifier.fit(X, Y)
    assert message in str(error.value)


def test_a_loss_that_runs_away_says_so():
    with pytest.raises(RunError, match=r"the support loss is nan at step \d+; lower lr \(1e\+200\)"):
        FewShotClassifier(activation="slaf", lr=1e200, random_state=0).fit(X, Y)


def test_with_a_model_it_answers_as_the_model_does():
    model, query = tiny_model(), images(5, seed=1)
    labels = torch.tensor([1, 0, 2, 1, 0, 2])  # cat 0, dog 1, owl 2: the order of the alphabet
    expected = model.probabilities(images(6), labels, query).numpy()
    classifier = FewShotClassifier(model).fit(images(6), WORDS)
    np.testing.assert_array_equal(classifier.predict_proba(query), expected)
    assert classifier.classes_.tolist() == ["cat", "dog", "owl"]
    assert classifier.predict(query).tolist() == [["cat", "dog", "owl"][best] for best in expected.argmax(1)]
    assert classifier.n_features_in_ == 28 * 28
    truth = np.array(["cat"] * 5)
    assert classifier.score(query, truth) == (expected.argmax(1) == 0).mean()
    absent = FewShotClassifier(model, device="cuda:99")
    with pytest.raises(InputError, match="device 'cuda:99' is not available here"):
        absent.fit(images(6), WORDS)


def test_images_come_in_three_shapes_and_two_kinds():
    model = tiny_model()
    bytes_ = (images(8).numpy() * 255).round().astype(np.uint8)
    expected = FewShotClassifier(model).fit(bytes_[:6], WORDS).predict_proba(bytes_[6:])
    floats = bytes_.astype(np.float32) / np.float32(255)
    for form in (floats, floats.reshape(8, -1), floats[:, 0], bytes_.reshape(8, -1), bytes_[:, 0]):
        found = FewShotClassifier(model).fit(form[:6], WORDS).predict_proba(form[6:])
        np.testing.assert_array_equal(found, expected)
    black_and_white = bytes_ > 127
    found = FewShotClassifier(model).fit(black_and_white[:6], WORDS).predict_proba(black_and_white[6:])
    stated = black_and_white.astype(float)
    np.testing.assert_array_equal(found, FewShotClassifier(model).fit(stated[:6], WORDS).predict_proba(stated[6:]))


def test_images_of_another_shape_are_fitted_as_the_model_does():
    """Colour, 40x40, channels last; the model was trained on grey ones of 28x28."""
    model, colour = tiny_model(), images(8, channels=3, side=40)
    found = FewShotClassifier(model).fit(colour[:6].permute(0, 2, 3, 1), WORDS).predict_proba(colour[6:])
    classes, labels = np.unique(WORDS, return_inverse=True)
    expected = model.probabilities(colour[:6], torch.from_numpy(labels), colour[6:])
    assert len(classes) == 3
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (
            images(6, side=30)[:, 0],
            r"X is \(6, 30, 30\); the model takes \(n, 1, 28, 28\) or \(n, 784\) or \(n, 28, 28\)",
        ),
        (images(6, channels=2), r"images are \(6, 2, 28, 28\); the network takes \(N, 1, 28, 28\)"),
        (images(6).reshape(6, -1)[:, :700], r"X is \(6, 700\)"),
        (images(6) * 255, r"give floats in \[0, 1\]"),
        ((images(6) * 999).long(), "give whole numbers of 0 to 255"),
        (images(6) * float("nan"), "contains NaN"),
        (images(5), r"inconsistent numbers of samples: \[5, 6\]"),
    ],
)
def test_wrong_images_are_refused(x, message):
    with pytest.raises(ValueError, match=message):
        FewShotClassifier(tiny_model()).fit(x, WORDS)


def test_wrong_queries_are_refused():
    classifier = FewShotClassifier(tiny_model(channels=3, side=28)).fit(images(6, channels=3), WORDS)
    with pytest.raises(InputError, match=r"X is \(2, 28, 28\); the model takes \(n, 3, 28, 28\) or \(n, 2352\)$"):
        classifier.predict(images(2)[:, 0])
    with pytest.raises(NotFittedError):
        FewShotClassifier(tiny_model()).predict(images(2))


def test_fewer_classes_than_the_head_has_are_fine_more_are_not():
    two = FewShotClassifier(tiny_model(ways=3)).fit(images(4), [True, False, True, False])
    assert two.predict_proba(images(3, seed=1)).shape == (3, 2)
    np.testing.assert_allclose(two.predict_proba(images(3, seed=1)).sum(1), 1, rtol=1e-6)
    with pytest.raises(InputError, match="the support has 4 classes, but the network's head was trained for 3"):
        FewShotClassifier(tiny_model(ways=3)).fit(images(4), ["a", "b", "c", "d"])
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        FewShotClassifier(tiny_model()).fit(images(4), [0.1, 0.2, 0.3, 0.4])


def test_steps_and_rate_go_to_the_model():
    model, query = tiny_model(), images(5, seed=1)
    labels = torch.tensor([1, 0, 2, 1, 0, 2])
    expected = model.adapt(images(6), labels, steps=9, lr=0.02).probabilities(query).numpy()
    found = FewShotClassifier(model, steps=9, lr=0.02).fit(images(6), WORDS).predict_proba(query)
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(InputError, match="prototypes take no gradient steps"):
        FewShotClassifier(tiny_model(method="protonet"), steps=9).fit(images(6), WORDS)


@pytest.mark.parametrize("method", ["maml", "protonet"])
def test_predict_does_not_adapt_again(method, monkeypatch):
    classifier = FewShotClassifier(tiny_model(method=method)).fit(images(6), WORDS)
    expected = classifier.predict_proba(images(3))

    def refuse(*_args, **_options):
        raise AssertionError("adapted a second time")

    monkeypatch.setattr(type(classifier.adapted_.model.learner), "adapt", refuse)
    np.testing.assert_array_equal(classifier.predict_proba(images(3)), expected)


@pytest.mark.parametrize("method", ["maml", "anil", "meta_sgd", "protonet"])
def test_clones_and_pickles_answer_alike_and_later_training_changes_nothing(method):
    model, query = tiny_model(method=method), images(3, seed=1)
    classifier = FewShotClassifier(model).fit(images(6), WORDS)
    assert classifier.get_params()["model"] is model
    expected = classifier.predict_proba(query)
    copied = clone(classifier)
    assert not hasattr(copied, "adapted_")
    np.testing.assert_array_equal(copied.fit(images(6), WORDS).predict_proba(query), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(classifier)).predict_proba(query), expected)
    with torch.no_grad():
        for parameter in model.learner.network.parameters():
            parameter.mul_(0.5)
    np.testing.assert_array_equal(classifier.predict_proba(query), expected)


def test_a_folder_is_a_model(tmp_path):
    model, query = tiny_model(), images(3, seed=1)
    model.save(tmp_path / "model")
    expected = FewShotClassifier(model).fit(images(6), WORDS).predict_proba(query)
    for source in (tmp_path / "model", str(tmp_path / "model")):
        np.testing.assert_array_equal(FewShotClassifier(source).fit(images(6), WORDS).predict_proba(query), expected)


def test_transduction_is_declared():
    def fitted(norm):
        network = {"backbone": "conv4", "backbone_options": {"filters": 8}, "norm": norm}
        return FewShotClassifier(tiny_model(side=16, network=network)).fit(images(6, side=16), WORDS)

    assert fitted("batch").transductive_
    assert not fitted("batch_support").transductive_
    assert not FewShotClassifier().fit(X, Y).transductive_


def test_cross_validation_and_search_of_scikit_learn():
    folds = StratifiedKFold(2)
    x, y = images(12).numpy(), np.tile(WORDS, 2)
    scores = cross_val_score(FewShotClassifier(tiny_model()), x, y, cv=folds)
    assert scores.shape == (2,)
    assert ((scores >= 0) & (scores <= 1)).all()
    search = GridSearchCV(
        FewShotClassifier(random_state=0), {"activation": ["relu", "arelu"], "steps": [1, 50]}, cv=folds
    )
    assert search.fit(X, Y).best_params_["steps"] == 50
