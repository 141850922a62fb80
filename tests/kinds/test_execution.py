import pytest

from arelu_meta.errors import InputError
from arelu_meta.kinds.execution import (
    EXECUTION_TAGS,
    BatchExecution,
    EpisodeExecution,
    Execution,
    TrainingExecution,
    seed_numbers,
)


def test_seed_numbers():
    assert seed_numbers("") == []
    assert seed_numbers("7") == [7]
    assert seed_numbers("0-4") == [0, 1, 2, 3, 4]
    assert seed_numbers("9, 0-1") == [9, 0, 1]


@pytest.mark.parametrize("text", ["a", "0-", "-1", "4-0", "0,,1", "1.5", "0-2-4"])
def test_what_is_no_list_of_seeds(text: str):
    with pytest.raises(InputError, match="are not numbers and ranges such as 0-4"):
        seed_numbers(text)


def test_a_seed_named_twice():
    with pytest.raises(InputError, match="name a seed twice"):
        seed_numbers("0-3,2")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"together": True}, 'name them, such as `seeds="0-4"`'),
        ({"together": True, "seeds": "0-1", "channels_last": True}, "does not go with `channels_last`"),
        ({"together": True, "seeds": "0-1", "compile": True}, "does not go with `compile`"),
        ({"together": True, "seeds": "0-1", "resume": True}, "does not go with `resume`"),
        ({"seeds": "x"}, "are not numbers"),
        ({"log_layers": True, "layer_statistics": False}, "drop one of them"),
    ],
)
def test_settings_that_do_not_go_together(flags: dict[str, object], message: str):
    with pytest.raises(InputError, match=message):
        TrainingExecution(**flags)


def test_plain_settings_get_the_defaults():
    given = TrainingExecution.of(Execution(device="cpu", threads=2))
    assert (given.device, given.threads, given.seeds, given.layer_statistics) == ("cpu", 2, "", True)
    own = TrainingExecution(fused=True)
    assert TrainingExecution.of(own) is own


def test_speed_settings_go_to_the_kinds_that_have_them():
    """As `compare` passes them on: a run on episodes has no memory layout, and how cuDNN chooses is for all."""
    given = BatchExecution(channels_last=True, compile=True, fused=True, tf32=True)
    assert TrainingExecution.of(given) == TrainingExecution(channels_last=True, compile=True, fused=True, tf32=True)
    assert EpisodeExecution.of(given) == EpisodeExecution(tf32=True)
    assert given.trainer_options() == {"channels_last": True, "compile": True, "fused": True}


def test_stacked_networks_keep_their_layout():
    assert TrainingExecution().trainer_options()["channels_last"] is None  # the trainer's choice
    assert TrainingExecution(together=True, seeds="0-1").trainer_options()["channels_last"] is False


def test_settings_of_one_kind_of_run_serve_another():
    training = TrainingExecution(threads=2, experiment="mine", fused=True)
    episodes = EpisodeExecution.of(training)
    assert (episodes.threads, episodes.experiment, episodes.chunk) == (2, "mine", 0)
    assert TrainingExecution.of(EpisodeExecution(chunk=4, resume=True)) == TrainingExecution(resume=True)
    assert TrainingExecution.of(training) is training


def test_tags_say_how_a_run_is_carried_out():
    tags = TrainingExecution(fused=True).run_tags(threads=3, processes=2, precision="bf16")
    assert tags == {
        "exec.threads": "3",
        "exec.processes": "2",
        "exec.workers": "1",
        "exec.precision": "bf16",
        "exec.compile": "False",
        "exec.together": "False",
        "exec.channels_last": "auto",
        "exec.fused": "True",
    }
    episodes = EpisodeExecution(chunk=4).run_tags(threads=1, processes=1, precision="fp32")
    assert (episodes["exec.chunk"], episodes["exec.record_steps"]) == ("4", "True")
    assert set(tags) | set(episodes) == set(EXECUTION_TAGS)
    exact = EpisodeExecution(deterministic=True).run_tags(threads=1, processes=1, precision="fp32")
    assert set(exact) - set(episodes) == {"exec.deterministic"}
