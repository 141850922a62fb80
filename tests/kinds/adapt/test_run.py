"""Adaptation runs: the protocol, paired draws, the stored classifier, wrong input before a run is opened."""

import copy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from mlflow import MlflowClient
from PIL import Image
from torchvision.transforms import CenterCrop, Compose, InterpolationMode, Resize

from arelu_meta.comparison.judging import judge
from arelu_meta.data.raw_images import prepare_images
from arelu_meta.errors import InputError
from arelu_meta.kinds import run
from arelu_meta.kinds.adapt.choosing import Choice, Support, best_of, choose_strength, stratified_folds
from arelu_meta.kinds.adapt.run import _outcome, prepare
from arelu_meta.kinds.adapt.spec import AdaptSpec
from arelu_meta.kinds.execution import Execution
from arelu_meta.learners.frozen_heads import HEADS
from arelu_meta.pretrained.assembly import fit_to_inputs
from arelu_meta.store.predicting import find_images, load_model
from tests.photographs import SIZES, write_photographs
from tests.supervised_runs import ADAPT, artifacts, interrupted_after, merged, no_model
from tests.tiny_images import DISCS
from tests.tiny_runs import MLFLOW_WARNINGS, metric_history

pytestmark = MLFLOW_WARNINGS
__all__ = ["no_model"]  # a fixture
DIGITS = {"dataset": "tests.tiny_images:digits"}
LANCZOS = InterpolationMode.LANCZOS


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("ARELU_META_CACHE", str(tmp_path / "cache"))


def adapt_spec(**sections: Any) -> AdaptSpec:
    return AdaptSpec.model_validate(merged(copy.deepcopy(ADAPT), sections))


def features_of(spec: AdaptSpec) -> tuple[Any, torch.Tensor]:
    """Draws and features of a spec, computed apart."""
    made = prepare(spec)
    fitted = made.drawn.images
    x = made.inputs.normalise(fitted.images.expand(-1, 3, -1, -1).float() / 255)
    with torch.no_grad():
        return made.drawn, made.network(x)


@pytest.mark.usefixtures("store", "no_model")
def test_every_choice_is_made_without_the_held_out_images():
    """Chosen and fitted again by hand from the images that are learned from alone: the same answers to the others."""
    spec = adapt_spec(data={**DIGITS, "shots": 6})
    result = run(spec)
    drawn, features = features_of(spec)
    draw = drawn.draws[0]
    given = Support(features, drawn.images.labels, 10).part(draw.support)
    assert len(given.labels) == 60
    for method in HEADS:
        choice = choose_strength(method, given, 5, seed=0, stream="folds/0/0")
        assert choice == result.draws[0].choices[method]
        answers = choice.fit(given)(features[draw.test]).argmax(1)
        assert (answers.numpy() == result.draws[0].answers[method]).mean() > 0.99  # but for rounding
    best = max(result.draws[0].choices.values(), key=lambda choice: (choice.accuracy, -choice.loss))
    assert result.choice == best
    assert np.array_equal(result.draws[0].selected, result.draws[0].answers[best.method])


@pytest.mark.usefixtures("store", "no_model")
def test_held_out_labels_change_nothing_but_the_score(monkeypatch):
    """With all labels of test images exchanged, the same is chosen and the same classifier stored."""
    import arelu_meta.kinds.adapt.run as module

    spec = adapt_spec(data={**DIGITS, "shots": 6})
    before = run(spec)
    draw = module.draw_supports

    def exchanged(images, section):
        drawn = draw(images, section)
        labels = drawn.images.labels.clone()
        labels[drawn.draws[0].test] = (labels[drawn.draws[0].test] + 1) % 10
        return replace(drawn, images=replace(drawn.images, labels=labels))

    monkeypatch.setattr(module, "draw_supports", exchanged)
    after = run(spec)
    assert after.choice == before.choice
    assert np.array_equal(after.draws[0].selected, before.draws[0].selected)
    assert after.test.mean < before.test.mean


@pytest.mark.usefixtures("no_model")
def test_without_held_out_images_all_choices_are_repeated_in_every_fold(store_uri):
    """Made again by hand without the images of each fold: the same answers to these."""
    result = run(adapt_spec(data={"dataset": "tests.tiny_images:digits"}))
    assert not result.held_out
    assert len(result.draws[0].labels) == 200
    assert "over images; all choices made anew in every fold" in result.report()
    metrics = MlflowClient(store_uri).get_run(result.run_id).data.metrics
    assert "test/accuracy" not in metrics
    assert metrics["cross_validation/accuracy"] == pytest.approx(result.draws[0].accuracy())
    assert result.support_size == 200
    drawn, features = features_of(result.spec)
    whole = Support(features, drawn.images.labels, 10)
    outer = stratified_folds(whole.labels, 5, seed=0, stream="outer folds/0")
    expected = []
    for position, (fitted, held) in enumerate(outer, start=1):
        given = whole.part(fitted)
        choices = [choose_strength(method, given, 5, seed=0, stream=f"folds/0/{position}") for method in HEADS]
        expected.append(best_of(choices).fit(given)(features[held]).argmax(1).numpy())
    assert (np.concatenate(expected) == result.draws[0].selected).mean() > 0.99  # but for rounding


def test_the_method_is_chosen_anew_in_every_fold():
    """By all images knn is chosen, in the first fold linear, in the second knn; knn answers 0, linear 1."""
    inside = {0: {"knn": 0.9, "linear": 0.8}, 1: {"knn": 0.7, "linear": 0.8}, 2: {"knn": 0.9, "linear": 0.8}}
    numbers = {0: torch.tensor([], dtype=torch.int64), 1: torch.tensor([0, 2]), 2: torch.tensor([1])}
    records = [
        {
            "draw": 0,
            "split": split,
            "numbers": numbers[split],
            "logits": torch.eye(2)[[int(method == "linear")] * len(numbers[split])],
            "choice": vars(Choice(method, 1, accuracy, 0.5, 1.0)),
        }
        for split, methods in inside.items()
        for method, accuracy in methods.items()
    ]
    drawn = SimpleNamespace(held_out=False, images=SimpleNamespace(labels=torch.tensor([0, 1, 1])))
    found = _outcome(drawn, 0, records)
    assert (found.best.method, found.selected.tolist()) == ("knn", [1, 1, 0])
    assert found.labels.tolist() == [0, 1, 1]


@pytest.mark.usefixtures("store", "no_model")
def test_labels_without_meaning_stay_at_chance(monkeypatch):
    """The choice of the best of ten does not pass for skill, as it is made inside the folds."""
    import arelu_meta.kinds.adapt.run as module

    draw = module.draw_supports

    def shuffled(images, section):
        drawn = draw(images, section)
        order = torch.randperm(len(drawn.images), generator=torch.Generator().manual_seed(1))
        return replace(drawn, images=replace(drawn.images, labels=drawn.images.labels[order]))

    monkeypatch.setattr(module, "draw_supports", shuffled)
    result = run(adapt_spec(data=DIGITS))
    assert result.test.mean < 0.17  # chance is 0.1 with a deviation of 0.021


@pytest.mark.usefixtures("no_model")
def test_methods_are_paired_on_draws(store_uri):
    result = run(adapt_spec(data={**DIGITS, "shots": 5, "draws": 4}))
    assert len(result.draws) == 4
    accuracies = {name: [draw.accuracy(name) for draw in result.draws] for name in HEADS}
    pair = result.differences()["prototypes"]
    assert pair.estimate.mean == pytest.approx(np.subtract(accuracies["prototypes"], accuracies["linear"]).mean())
    chosen = [draw.accuracy() for draw in result.draws]
    assert (result.test.n, result.test.mean) == (4, pytest.approx(np.mean(chosen)))
    history = metric_history(store_uri, result.run_id)
    assert [value for _, value in history["test/accuracy_linear"][:4]] == pytest.approx(accuracies["linear"])
    assert history["test/accuracy"][-1] == (4, pytest.approx(np.mean(chosen)))
    report = result.report()
    assert "95 % interval over draws" in report
    assert "less linear, points" in report
    below = f"tags.`mlflow.parentRunId` = '{result.run_id}'"
    children = MlflowClient(store_uri).search_runs([result.experiment_id], below)
    found = {(child.data.tags["method"], child.data.tags["draw"]): child for child in children}
    assert set(found) == {(name, str(draw)) for name in HEADS for draw in range(4)}
    own = [found["linear", str(draw)].data.metrics["test/accuracy"] for draw in range(4)]
    assert own == pytest.approx(accuracies["linear"])
    assert {child.info.status for child in children} == {"FINISHED"}
    judged = judge(result.experiment_id, arm="tag:method", seed="tag:draw", metric="test/accuracy", baseline="linear")
    assert judged.report.analysis.primary[0].arm("prototypes").test.difference.p_t == pytest.approx(pair.p_t)
    assert {"draws.csv", "report.md", "figures/confusion.png", "split.json"} <= artifacts(store_uri, result.run_id)


@pytest.mark.usefixtures("store", "no_model")
def test_the_network_of_the_result_gives_the_answers():
    result = run(adapt_spec(data={**DIGITS, "shots": 6}))
    made = prepare(result.spec)
    test = made.drawn.draws[0].test
    x = made.inputs.normalise(made.drawn.images.images[test].expand(-1, 3, -1, -1).float() / 255)
    with torch.no_grad():
        answers = result.network(x).argmax(1).numpy()
    assert (answers == result.draws[0].selected).mean() > 0.99


@pytest.mark.usefixtures("store", "no_model")
def test_networks_that_move_are_compared_with_frozen_ones():
    """All seven methods on one draw; the network of the result is the chosen one, moved or not."""
    methods, few = {"method": ["all"], "epochs": 2, "folds": 2}, {**DIGITS, "shots": 4, "test_per_class": 3}
    result = run(adapt_spec(data=few, methods=methods))
    assert list(result.draws[0].answers) == ["prototypes", "knn", "linear", "norm", "activation", "lora", "full"]
    for method in ("norm", "activation", "lora", "full"):
        alone = run(
            adapt_spec(data={**DIGITS, "shots": 4, "test_per_class": 3}, methods={**methods, "method": [method]})
        )
        assert alone.choice == result.draws[0].choices[method]
        made = prepare(alone.spec)
        x = made.drawn.images.images[made.drawn.draws[0].test].expand(-1, 3, -1, -1).float() / 255
        with torch.no_grad():
            answers = alone.network(made.inputs.normalise(x)).argmax(1).numpy()
        assert np.array_equal(answers, alone.draws[0].selected)
        assert np.array_equal(alone.draws[0].selected, result.draws[0].answers[method])


@pytest.mark.usefixtures("store", "no_model")
def test_a_second_run_computes_no_features():
    spec = adapt_spec()
    first, second = run(spec), run(spec)
    assert (first.computed, second.computed) == ((200, 200), (0, 200))
    assert first.test.mean == second.test.mean


@pytest.mark.usefixtures("store")
def test_the_graph_of_a_frozen_network_is_traced_once(monkeypatch):
    """A second run stores the graph of the first with its own tensors; a head of other shapes is traced."""
    import arelu_meta.store.models as module

    few = {"methods": {"method": ["linear"]}, "input": {"normalise": "none"}, "data": {**DIGITS, "shots": 6}}
    traced, trace = [], module.trace
    monkeypatch.setattr(module, "trace", lambda *arguments: traced.append(1) or trace(*arguments))
    counts, images = [], torch.randint(256, (5, 28, 28, 1), generator=torch.Generator().manual_seed(0)).numpy()
    for sections in ({}, {"data": {"split_seed": 1}}, {"data": {"ways": 4}}):
        result = run(adapt_spec(**merged(copy.deepcopy(few), sections)))
        counts.append(len(traced))
        with torch.no_grad():
            expected = result.network(prepare_images(images, prepare(result.spec).inputs)).softmax(1).amax(1)
        found = load_model(result.run_id).predict(images.astype(np.uint8))["probability"]
        assert found.to_numpy() == pytest.approx(expected.numpy(), abs=1e-5)
    assert counts == [1, 1, 2]


@pytest.mark.usefixtures("store", "no_model")
def test_answers_to_other_images_are_not_resumed(monkeypatch):
    """A folder of the same name may hold other images by the time that a run is resumed."""
    import arelu_meta.kinds.adapt.run as module

    spec = adapt_spec()
    with pytest.raises(KeyboardInterrupt):
        run(spec, bar=interrupted_after(9))  # seven parts of the features, then the second method
    draw = module.draw_supports

    def inverted(images, section):
        return draw(replace(images, images=255 - images.images), section)

    monkeypatch.setattr(module, "draw_supports", inverted)
    with pytest.raises(InputError, match=r"the images are not those that the checkpoint in .* was trained on"):
        run(spec, Execution(resume=True))


@pytest.mark.parametrize("resize", ["scale", "squash", "crop"])
@pytest.mark.parametrize("sizes", [SIZES, ((40, 60),)])
def test_photographs_are_to_the_model_what_they_were_to_adapt(tmp_path, resize, sizes):
    files = write_photographs(tmp_path / "photos", sizes=sizes)
    made = prepare(adapt_spec(data={"dataset": str(tmp_path / "photos")}, input={"image_size": 30, "resize": resize}))
    fitted = fit_to_inputs(made.drawn.images, made.inputs, resize=resize)
    found = prepare_images(files, made.inputs)
    assert torch.equal(found, fitted.pixels(torch.arange(len(files))))
    ways = {"scale": [Resize(30, LANCZOS), CenterCrop(30)], "squash": [Resize((30, 30), LANCZOS)]}
    if resize in ways:
        for image, file in zip(fitted.images, files, strict=True):
            assert np.array_equal(image.permute(1, 2, 0), Compose(ways[resize])(Image.open(file)))


@pytest.mark.usefixtures("store", "no_model")
def test_photos_of_any_size_are_read_at_the_size_of_the_network(tmp_path):
    random = np.random.default_rng(0)
    for name, low in (("dark", 0), ("light", 128)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(6):
            pixels = random.integers(low, low + 128, (20 + number, 30, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    spec = adapt_spec(data={"dataset": str(tmp_path / "photos")}, input={"image_size": 16})
    result = run(spec)
    assert result.class_names == ("dark", "light")
    assert result.test.mean > 0.8
    made = prepare(spec)
    assert made.inputs.read_size == 16
    files = find_images([tmp_path / "photos"])
    read = made.inputs.normalise(made.drawn.images.images.float() / 255)  # what was learned from, in the same order
    assert torch.equal(prepare_images(files, made.inputs), read)


WRONG = [
    ({"data": {"dataset": DISCS}}, "discs has one class, 'disc'; a classifier needs two or more"),
    ({"data": {**DIGITS, "shots": 3}}, "class '0' has 3 images to learn from, fewer than `folds` 5; set `folds=3`"),
    ({"data": {**DIGITS, "shots": 1}}, r"class '0' has 1 image\(s\) to learn from; choices need 2 at least"),
    (
        {"data": {"dataset": "tests.tiny_images:few"}, "methods": {"folds": 2}},
        "class 'a' has 3 images, of which `folds` 2",
    ),
    ({"network": {"model": "tests.tiny_networks:no_features"}}, "which layer is the classifier"),
    ({"network": {"model": "resnet81"}}, "unknown model 'resnet81'; did you mean 'resnet18'"),
    ({"network": {"model": "tests.tiny_networks:two_heads"}}, "which layer is the classifier"),
    ({"network": {"weights": "no.pth"}}, "no weights file 'no.pth'"),
    ({"methods": {"method": ["activation"], "activation": "maxout"}}, "'maxout' takes 2 inputs per output"),
    ({"input": {"image_size": 5}}, "cannot take images of 3x5x5"),
]


@pytest.mark.usefixtures("store", "no_model")
def test_features_that_say_nothing():
    with pytest.raises(InputError, match="all images have the same features of tests"):
        run(adapt_spec(network={"model": "tests.tiny_networks:same_features"}))


@pytest.mark.parametrize(("sections", "message"), WRONG, ids=[message for _, message in WRONG])
def test_wrong_input_opens_no_run(store, statuses, sections, message):
    with pytest.raises(InputError, match=message):
        run(adapt_spec(**sections))
    assert statuses(store) == []
