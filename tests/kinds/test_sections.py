import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from arelu_meta.console.flags import validated
from arelu_meta.errors import InputError
from arelu_meta.kinds.classify.spec import ClassifySpec
from arelu_meta.kinds.execution import Execution
from arelu_meta.kinds.few_shot.spec import FewShotSpec
from arelu_meta.kinds.segment.spec import SegmentSpec
from arelu_meta.kinds.supervised_spec import OptimizationSection
from arelu_meta.kinds.transfer.spec import TransferSpec
from tests.supervised_runs import classify_spec, finetune_spec, segment_spec, transfer_spec


def made(**sections) -> FewShotSpec:
    return FewShotSpec.model_validate({"task": "mine", "data": {"dataset": "digits"}, **sections})


def test_specs_are_frozen():
    spec = made()
    with pytest.raises(ValidationError, match="frozen"):
        spec.seed = 1
    with pytest.raises(ValidationError, match="frozen"):
        spec.episode.ways = 3


def test_unknown_keys_are_refused():
    with pytest.raises(InputError, match="unknown key 'colour'"):
        made(colour="blue")
    with pytest.raises(InputError, match="unknown key 'way'"):
        made(episode={"way": 5})


@pytest.mark.parametrize(
    "sections",
    [
        {"episode": {"ways": 1}},
        {"episode": {"shots": 0}},
        {"episode": {"queries": 0}},
        {"training": {"inner_lr": 0}},
        {"training": {"outer_lr": -1}},
        {"training": {"outer_lr": float("inf")}},
        {"training": {"inner_lr": float("nan")}},
        {"training": {"iterations": 0}},
        {"training": {"method": "reptil"}},
        {"evaluation": {"protocol": "both"}},
        {"evaluation": {"test_episodes": 1}},
        {"data": {"dataset": "digits", "test": 1.0}},
        {"data": {"dataset": "digit"}},
        {"network": {"backbone": "conv5"}},
        {"seed": -1},
        {"version": 0},
    ],
)
def test_values_out_of_range_are_refused(sections: dict):
    with pytest.raises(InputError):
        made(**sections)


def test_places_outside_the_package_are_accepted():
    assert made(network={"activation": "torch.nn:Hardswish"}).network.activation == "torch.nn:Hardswish"


def test_identity_is_the_hash_of_what_decides_the_result():
    """SHA-256 of the sorted JSON without the summary, and without what came later, made here anew."""
    spec = made(summary="words")
    content = json.loads(spec.model_dump_json())
    del content["summary"], content["fit"], content["data"]["split_seed"], content["network"]["init"]
    del content["network"]["weights"]
    for later in ("adapt", "lora_rank", "head", "loss", "episode_clip", "outer_clip", "precision"):
        del content["training"][later]
    assert spec.identity == hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    assert spec.identity == made(summary="other words").identity


@pytest.mark.parametrize(
    "sections",
    [
        {"seed": 1},
        {"version": 2},
        {"episode": {"shots": 2}},
        {"network": {"activation": "relu"}},
        {"network": {"init": "he"}},
        {"data": {"dataset": "digits", "split_seed": 1}},
    ],
)
def test_every_change_is_another_identity(sections: dict):
    assert made(**sections).identity != made().identity


def test_flat_has_every_setting_once():
    spec = made(seed=3, episode={"ways": 7})
    flat = spec.flat()
    sections = [spec.data, spec.fit, spec.episode, spec.network, spec.training, spec.evaluation]
    leaves = sum(len(type(section).model_fields) for section in sections) + len(FewShotSpec.model_fields) - 6
    assert len(flat) == leaves  # no two sections share a name, or a flag would have two meanings
    assert (flat["seed"], flat["ways"], flat["dataset"], flat["kind"]) == (3, 7, "digits", "few_shot")


def test_training_queries_of_the_protocols():
    episode = {"shots": 3, "queries": 7}
    assert made(episode=episode).train_queries == 7
    assert made(episode=episode, evaluation={"protocol": "paper"}).train_queries == 3


def test_round_trip_through_json():
    spec = made(network={"activation_options": {"alpha": 0.5, "clamp": "sigmoid"}})
    assert FewShotSpec.model_validate_json(spec.model_dump_json()) == spec


def test_defaults_are_the_papers():
    """Five inner steps, 32 tasks, 100 iterations, learning rate 0.005."""
    training = made().training
    assert (training.inner_steps, training.meta_batch, training.iterations) == (5, 32, 100)
    assert training.inner_lr == training.outer_lr == 0.005


def test_every_setting_says_what_it_is():
    spec = made()
    for section in (spec.data, spec.fit, spec.episode, spec.network, spec.training, spec.evaluation, Execution()):
        for name, field in type(section).model_fields.items():
            assert field.description, name


def test_execution_is_no_part_of_the_identity():
    assert not set(Execution.model_fields) & set(made().flat())


BAD: list[dict[str, Any]] = [
    {"lr": 0},
    {"lr": float("inf")},
    {"momentum": 1.0},
    {"weight_decay": -0.1},
    {"activation_lr_multiplier": -1},
    {"layer_decay": 0},
    {"layer_decay": 1.5},
    {"batch_size": 0},
    {"batch_size": 10**23},
    {"accumulate": 0},
    {"epochs": 0},
    {"warmup_epochs": -1},
    {"freeze_epochs": -1},
    {"label_smoothing": 1.0},
    {"clip_norm": 0},
    {"ema": 1.0},
    {"patience": 0},
    {"schedule": "linear"},
    {"augment": "flip"},
    {"precision": "fp8"},
    {"optimizer": "lion"},
    {"learning_rate": 0.1},
]


@pytest.mark.parametrize("settings", BAD, ids=str)
def test_training_values_out_of_range_are_refused(settings: dict[str, Any]):
    with pytest.raises(InputError, match=f"OptimizationSection: .*{next(iter(settings))}"):
        OptimizationSection(**settings)


@pytest.mark.parametrize("settings", [{"momentum": 0}, {"ema": 0}, {"layer_decay": 1}, {"weight_decay": 0}], ids=str)
def test_ends_of_the_ranges_are_accepted(settings: dict[str, Any]):
    ((name, value),) = settings.items()
    assert getattr(OptimizationSection(**settings), name) == value


def test_words_for_nothing():
    section = OptimizationSection(clip_norm="none", patience="none")
    assert section.clip_norm is None
    assert section.patience is None


def test_step_needs_milestones():
    with pytest.raises(InputError, match="schedule 'step' needs `milestones`, such as 50 75"):
        OptimizationSection(schedule="step")
    assert OptimizationSection(schedule="step", milestones=[5, 7]).milestones == (5, 7)


@pytest.mark.parametrize("settings", [{"optimizer": "adam"}, {"momentum": 0}])
def test_nesterov_needs_momentum_of_sgd(settings: dict[str, Any]):
    with pytest.raises(InputError, match="Nesterov momentum is for optimizer 'sgd' with momentum above 0"):
        OptimizationSection(nesterov=True, **settings)
    assert OptimizationSection(nesterov=True).nesterov


@pytest.mark.parametrize("epochs", [[], [0, 1], [1, 3]])
def test_reported_epochs_must_be_reached(epochs: list[int]):
    with pytest.raises(InputError, match="must lie between 1 and epochs = 2"):
        transfer_spec(report_epochs=epochs)


def test_one_line_for_wrong_values_in_python():
    """The section and the key, as in a file, whichever way the spec is made."""
    for values, message in (
        ({"episode": {"ways": 1}}, "FewShotSpec: ways = 1 must be at least 2"),
        ({"episode": {"way": 5}}, r"FewShotSpec \[episode\]: unknown key 'way', did you mean 'ways'\?"),
        ({"training": {"method": "reptil"}}, r"FewShotSpec \[training\]: unknown method 'reptil'; did you mean"),
        ({"training": {"inner_optimizer": "adam"}}, r"FewShotSpec.*: inner optimizer 'adam' runs .* `engine='higher'`"),
        ({"data": {}}, r"FewShotSpec \[data\]: dataset is missing"),
        ({"colour": 3}, "FewShotSpec: unknown key 'colour'"),
        (
            {"network": {"backbone_options": {"a": None}}},
            r"FewShotSpec \[network.backbone_options\]: a = None must be a number, text, true or false",
        ),
    ):
        sections = {"task": "mine", "data": {"dataset": "digits"}, **values}
        makers: tuple[Callable[[dict[str, Any]], FewShotSpec], ...] = (
            lambda given: FewShotSpec(**given),
            FewShotSpec.model_validate,
            lambda given: FewShotSpec.model_validate_json(json.dumps(given)),
            lambda given: made().model_copy(update=given),
        )
        for make in makers:
            with pytest.raises(InputError, match=message) as raised:
                make(sections)
            assert "\n" not in str(raised.value)


def test_a_copy_is_checked_like_a_new_one():
    spec = made()
    for update in ({"seed": -5}, {"episode": 5}, {"sede": 1}):
        with pytest.raises(InputError):
            spec.model_copy(update=update)
    copied = spec.model_copy(update={"episode": {"ways": 3}})
    assert copied == made(episode={"ways": 3})
    assert copied.identity == made(episode={"ways": 3}).identity


def test_a_spec_has_its_identity_where_its_folder_is_not(tmp_path, monkeypatch):
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path)
    spec = made(data={"dataset": "photos"})
    identity = spec.identity
    (tmp_path / "photos").rmdir()
    assert spec.identity == identity
    assert spec.model_copy(update={"seed": 1}).identity != identity


def test_a_head_is_for_methods_that_treat_one_apart():
    assert made(training={"method": "anil", "head": "fc"}).training.head == "fc"
    with pytest.raises(InputError, match="method 'maml' with adapt 'all' treats no layer apart; leave `head` out"):
        made(training={"method": "maml", "head": "fc"})


def test_one_line_for_wrong_files():
    values = {"task": "mine", "data": {"dataset": "digits"}, "training": {"epoch": 3}}
    with pytest.raises(InputError, match=r"mine.toml \[training\]: unknown key 'epoch', did you mean 'epochs'\?"):
        validated(ClassifySpec, values, "mine.toml")
    with pytest.raises(InputError, match=r"mine.toml \[domains\]: target is missing"):
        validated(TransferSpec, {"task": "mine", "domains": {"source": "digits"}}, "mine.toml")


@pytest.mark.parametrize("make", [classify_spec, transfer_spec, segment_spec])
def test_every_change_of_a_supervised_spec_is_another_identity(make):
    same = make()
    assert same.identity == make(summary="words").identity
    assert len({same.identity, make(seed=1).identity, make(training={"lr": 0.5}).identity}) == 3
    assert same.flat()["lr"] == same.training.lr


def test_a_segmenter_is_no_backbone_of_a_classifier():
    with pytest.raises(InputError, match="unknown backbone 'unet'"):
        classify_spec(network={"backbone": "unet"})


def test_a_setting_that_came_later_is_no_part_of_the_identity_at_its_default():
    """The identity of a segmentation run is what it was before its network could be chosen."""
    spec = SegmentSpec(task="mine", data={"dataset": "phantom"})
    content = json.loads(spec.model_dump_json())
    del content["summary"], content["network"]["backbone"], content["network"]["init"], content["data"]["split_seed"]
    del content["volumes"]
    for name in ("crop_scale", "randaugment", "color_jitter", "random_erasing", "mixup", "cutmix"):
        del content["training"][name]
    assert spec.identity == hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    other = spec.model_copy(update={"network": spec.network.model_copy(update={"backbone": "mine:Net"})})
    assert other.identity != spec.identity


@pytest.mark.parametrize("make", [classify_spec, transfer_spec, finetune_spec])
def test_augmentations_of_masks_are_refused_where_there_are_none(make):
    with pytest.raises(InputError, match="augment 'affine' is not for this kind of run; use none or shift"):
        make(training={"augment": "affine"})


def test_augmentations_that_move_no_masks_are_refused_where_there_are_some():
    with pytest.raises(InputError, match="augment 'shift' is not for this kind of run; use none or affine"):
        segment_spec(training={"augment": "shift"})


def test_augmentation_that_came_later_leaves_identities_as_they_were():
    """The hash of a classification run, made here anew without what came later."""
    spec = ClassifySpec(task="mine", data={"dataset": "digits"})
    content = json.loads(spec.model_dump_json())
    del content["summary"], content["data"]["split_seed"], content["network"]["init"]
    later = {"crop_scale": (0.5, 1.0), "randaugment": (2, 9), "color_jitter": (0.4, 0.4, 0.4), "random_erasing": 0.25}
    later |= {"mixup": 0.2, "cutmix": 1.0}
    for name, value in later.items():
        del content["training"][name]
        changed = ClassifySpec(task="mine", data={"dataset": "digits"}, training={name: value})
        assert changed.identity != spec.identity
    assert spec.identity == hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"crop_scale": (0.9, 0.5)}, "`crop_scale` 0.9 0.5 must be two, the lower one first"),
        ({"crop_scale": (0.9,)}, "`crop_scale` 0.9 must be two"),
        ({"randaugment": (2,)}, "`randaugment` 2 must be operations and level, such as 2 9"),
        ({"color_jitter": (0.4, 0.4)}, "`color_jitter` 0.4 0.4 must be brightness, contrast, saturation"),
        ({"color_jitter": (0.4, 0.4, 0.4, 0.7)}, "maybe a hue of at most 0.5"),
    ],
)
def test_augmentation_out_of_range(settings: dict[str, Any], message: str):
    with pytest.raises(InputError, match=re.escape(message)):
        ClassifySpec(task="mine", data={"dataset": "digits"}, training=settings)


@pytest.mark.parametrize("name", ["randaugment", "color_jitter", "random_erasing", "mixup", "cutmix"])
def test_segmentation_has_no_augmentation_that_leaves_masks_behind(name: str):
    values = {"randaugment": (2, 9), "color_jitter": (0.4, 0.4, 0.4)}
    with pytest.raises(InputError, match=f"`{name}` is for classes and does not move masks"):
        SegmentSpec(task="mine", data={"dataset": "phantom"}, training={name: values.get(name, 0.2)})
