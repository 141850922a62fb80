"""FineTuneClassifier: scikit-learn's own contract, and the same numbers as a plain loop on the same network."""

import pickle
from collections.abc import Iterator

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import InputError
from arelu_meta.estimators import FewShotClassifier, FineTuneClassifier
from arelu_meta.pretrained.assembly import assemble
from arelu_meta.pretrained.installed import NETWORKS
from arelu_meta.seeding import generator
from tests.own_parts import Squareplus
from tests.tiny_networks import TINY, Tiny, saved_state, tiny

needs_lite0 = pytest.mark.skipif(NETWORKS["efficientnet_lite0"].weights is None, reason="extra `pretrained`")
RANDOM = np.random.RandomState(0)
Y = np.array(["dark", "light"] * 12)
X = np.clip(RANDOM.rand(24, 3, 12, 12) * 0.3 + 0.6 * (Y == "light")[:, None, None, None], 0, 1)
X = np.rint(X * 255).astype(np.uint8)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def weights(tmp_path) -> str:
    torch.save(saved_state(), tmp_path / "net.pth")
    return str(tmp_path / "net.pth")


@parametrize_with_checks([FineTuneClassifier()])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_rows_without_a_model_are_the_network_of_the_few_shot_classifier():
    x, y = X.reshape(24, -1)[:, :5] / 255.0, Y
    tuned = FineTuneClassifier(epochs=7, lr=0.02, activation="arelu", random_state=1).fit(x, y)
    adapted = FewShotClassifier(steps=7, lr=0.02, activation="arelu", random_state=1).fit(x, y)
    np.testing.assert_array_equal(tuned.predict_proba(x), adapted.predict_proba(x))


def test_it_is_a_plain_loop_over_the_assembled_network(weights):
    """Plain SGD with momentum 0.9 over batches of 10 from the stream `batches`; the dropout is switched off."""
    settings = {"model_options": {"classes": 7}, "weights": weights, "activation": "arelu"}
    classifier = FineTuneClassifier(TINY, epochs=3, lr=0.05, batch_size=10, random_state=4, **settings)
    seed = int(np.random.RandomState(4).randint(2**31 - 1))
    labels = torch.from_numpy((Y == "light").astype(np.int64))
    images = ImageSet("X", torch.from_numpy(X), labels, ("dark", "light"))
    made = assemble(TINY, images=images, preserve=True, seed=seed, **settings)
    network = made.network
    network.drop.p = 0.0
    pixels = images.normalised_like(images).pixels(torch.arange(24))
    optimizer, order = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9), generator(seed, "batches")
    for _ in range(3):
        for numbers in torch.randperm(24, generator=order).split(10):
            optimizer.zero_grad()
            F.cross_entropy(network(pixels[numbers]), labels[numbers]).backward()
            optimizer.step()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.Dropout, "forward", lambda _self, x: x)
        classifier.fit(X, Y)
    with torch.no_grad():
        wanted = network.eval()(pixels).softmax(1).numpy()
    np.testing.assert_allclose(classifier.predict_proba(X), wanted, rtol=1e-4, atol=1e-5)


def test_it_learns_and_every_form_of_images_is_the_same(weights):
    options = {"weights": weights, "activation": "arelu", "epochs": 8, "random_state": 0}
    classifier = FineTuneClassifier(TINY, **options).fit(X[:16], Y[:16])
    assert classifier.score(X[16:], Y[16:]) == 1.0
    assert classifier.classes_.tolist() == ["dark", "light"]
    assert classifier.n_features_in_ == 3 * 12 * 12
    expected = classifier.predict_proba(X[16:])
    for form in (X.transpose(0, 2, 3, 1), X / 255.0, X.astype(np.int64)):
        found = FineTuneClassifier(TINY, **options).fit(form[:16], Y[:16]).predict_proba(form[16:])
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(classifier)).predict_proba(X[16:]), expected)
    np.testing.assert_array_equal(clone(classifier).fit(X[:16], Y[:16]).predict_proba(X[16:]), expected)
    grey = FineTuneClassifier(TINY, epochs=1, random_state=0).fit(X[:, 0], Y)
    assert grey.predict(X[:3, 0]).shape == (3,)


def test_the_seed_decides_and_nothing_else_is_touched():
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()

    def fit(seed):
        return FineTuneClassifier(TINY, epochs=1, random_state=seed).fit(X, Y).predict_proba(X)

    np.testing.assert_array_equal(fit(3), fit(3))
    assert not np.array_equal(fit(3), fit(4))
    assert torch.equal(torch.get_rng_state(), torch_state)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)


def test_settings_of_the_training_by_name(weights):
    """Frozen all along: the body stays as the file has it."""
    settings = {"freeze_epochs": 2, "optimizer": "adamw"}
    classifier = FineTuneClassifier(TINY, weights=weights, epochs=2, training=settings, random_state=0).fit(X, Y)
    assert torch.equal(classifier.network_.second.weight, saved_state()["second.weight"])
    assert torch.equal(classifier.network_.norm.running_mean, saved_state()["norm.running_mean"])


def failing() -> torch.nn.Module:
    return Tiny({"depth": 1}["width"])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"model": "resnet81"}, "unknown model 'resnet81'; did you mean 'resnet18'"),
        ({"activation": "arleu"}, "unknown activation 'arleu'; did you mean 'arelu'?"),
        ({"lr": 0}, "lr = 0 must be greater than 0"),
        ({"epochs": 0}, "epochs = 0 must be at least 1"),
        ({"training": {"optimiser": "sgd"}}, "unknown key 'optimiser', did you mean 'optimizer'"),
        ({"training": {"patience": 3}}, "`patience` stops by a validation part, and fit trains on all of X"),
        ({"model": None, "training": {"ema": 0.9}}, "`training` = {'ema': 0.9} is for a network; give `model`"),
        ({"weights": "no.pth"}, "no weights file 'no.pth'"),
        ({"model": None, "weights": "no.pth"}, "`weights` = 'no.pth' need a network; give `model`"),
        ({"image_size": 5}, "cannot take images of 3x5x5"),
        ({"batch_size": 23, "model": "tests.tiny_networks:one_value"}, "cannot take 1 images .*; change `batch_size`"),
        ({"model": Tiny().double()}, "of Tiny is torch.float64, and images are float32; give it .float()"),
        ({"model": failing}, "failing cannot be built with no options: KeyError: 'width'"),
        ({"model": 3}, "model is a int; give a name, a torch.nn.Module, a class or a function"),
        (
            {"model": Tiny(), "model_options": {"width": 3}},
            "`model_options` {'width': 3} are for what builds a network",
        ),
        ({"activation": 3}, "unknown activation '3'"),
        ({"device": "quantum"}, "device 'quantum' is not available here"),
    ],
)
def test_wrong_parameters_are_refused_by_fit(parameters, message):
    classifier = FineTuneClassifier(**{"model": TINY, "epochs": 1, **parameters})
    with pytest.raises(InputError, match=message.replace("?", r"\?").replace("()", r"\(\)")):
        classifier.fit(X, Y)


def test_wrong_images_are_refused():
    with pytest.raises(InputError, match=r"X is \(24, 432\); give \(N, H, W\)"):
        FineTuneClassifier(TINY, epochs=1).fit(X.reshape(24, -1), Y)
    with pytest.raises(InputError, match="y has one class, 'dark'"):
        FineTuneClassifier(TINY, epochs=1).fit(X, ["dark"] * 24)
    with pytest.raises(NotFittedError):
        FineTuneClassifier(TINY).predict(X)
    fitted = FineTuneClassifier(TINY, epochs=1, random_state=0).fit(X, Y)
    with pytest.raises(InputError, match=r"X has images of \(3, 10, 10\); it was fitted with \(3, 12, 12\)"):
        fitted.predict(X[:, :, :10, :10])


def test_cross_validation_of_scikit_learn():
    scores = cross_val_score(FineTuneClassifier(TINY, epochs=5, random_state=0), X, Y, cv=2)
    assert scores.shape == (2,)
    assert ((scores >= 0) & (scores <= 1)).all()


def given_module(seed: int = 3) -> Tiny:
    """A module with weights of its own, a frozen parameter, and a mode for each part."""
    network = Tiny()
    network.load_state_dict(saved_state(seed))
    network.first.bias.requires_grad_(False)
    network.norm.eval()
    return network


def test_a_module_is_fitted_as_its_weights_from_a_file_are(weights):
    """The same network by name with its weights from a file, by module, by class and function; new activations start
    where the old ones were, because the weights are trained.
    """
    options = {"activation": "arelu", "epochs": 2, "random_state": 0}
    network = Tiny()
    network.load_state_dict(saved_state())
    expected = FineTuneClassifier(TINY, weights=weights, **options).fit(X, Y).predict_proba(X)
    found = FineTuneClassifier(network, **options).fit(X, Y).predict_proba(X)
    np.testing.assert_array_equal(found, expected)
    for builder in (Tiny, tiny, "tests.tiny_networks:Tiny"):
        fitted = FineTuneClassifier(builder, weights=weights, model_options={"classes": 7}, **options).fit(X, Y)
        np.testing.assert_array_equal(fitted.predict_proba(X), expected)
    untouched = FineTuneClassifier(network, preserve="never", **options).fit(X, Y).predict_proba(X)
    assert not np.array_equal(untouched, expected)


def test_a_module_is_never_changed():
    network = given_module()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    modes = [module.training for module in network.modules()]
    kinds = [type(module) for module in network.modules()]
    needed = [parameter.requires_grad for parameter in network.parameters()]
    classifier = FineTuneClassifier(network, activation="arelu", epochs=1, random_state=0).fit(X, Y)
    assert classifier.model is network
    assert classifier.network_ is not network
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    assert modes == [module.training for module in network.modules()]
    assert kinds == [type(module) for module in network.modules()]
    assert needed == [parameter.requires_grad for parameter in network.parameters()]
    assert all(parameter.grad is None for parameter in network.parameters())


def test_a_module_is_cloned_pickled_and_searched_over():
    network = given_module()
    classifier = FineTuneClassifier(network, epochs=2, random_state=0)
    again = clone(classifier)
    assert again.model is not network
    expected = classifier.fit(X, Y).predict_proba(X)
    np.testing.assert_array_equal(again.fit(X, Y).predict_proba(X), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(classifier)).predict_proba(X), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(again)).fit(X, Y).predict_proba(X), expected)
    assert "Tiny" in repr(classifier)
    search = GridSearchCV(classifier, {"activation": ["own", Squareplus], "model": [network, Tiny]}, cv=2).fit(X, Y)
    assert len(search.cv_results_["params"]) == 4
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_an_activation_may_be_a_class():
    """By class or by place the network is the same; rows of numbers take a class too."""
    options = {"epochs": 1, "random_state": 0}
    by_class = FineTuneClassifier(TINY, activation=Squareplus, **options).fit(X, Y)
    by_place = FineTuneClassifier(TINY, activation="tests.own_parts:Squareplus", **options).fit(X, Y)
    assert any(isinstance(module, Squareplus) for module in by_class.network_.modules())
    np.testing.assert_array_equal(by_class.predict_proba(X), by_place.predict_proba(X))
    rows = X.reshape(24, -1)[:, :5] / 255.0
    assert FineTuneClassifier(activation=Squareplus, **options).fit(rows, Y).predict(rows).shape == (24,)


@pytest.mark.parametrize(
    ("model", "weights"),
    [
        ("timm/test_vit", "none"),
        pytest.param("installed/efficientnet_lite0", "DEFAULT", marks=[pytest.mark.slow, needs_lite0]),
    ],
)
def test_networks_are_those_of_adapt(model, weights):
    """With all epochs frozen only the head learns: a classifier on features of the network as it is."""
    options = {"weights": weights, "image_size": 64, "random_state": 0}
    classifier = FineTuneClassifier(model, epochs=2, lr=0.1, training={"freeze_epochs": 2}, **options).fit(X, Y)
    untouched = FineTuneClassifier(model, epochs=1, lr=1e-12, training={"freeze_epochs": 1}, **options).fit(X, Y)
    before, after = untouched.network_.state_dict(), classifier.network_.state_dict()
    moved = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert moved
    assert {name.rpartition(".")[0] for name in moved} == {"head" if model.startswith("timm") else "_fc"}
    assert classifier.predict_proba(X).shape == (24, 2)
    if weights != "none":
        assert classifier.score(X, Y) == 1.0  # dark and light
