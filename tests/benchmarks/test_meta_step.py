import pytest
import torch

from arelu_meta.benchmarks.meta_step import Setting, check_same_gradient, installed_engines
from arelu_meta.errors import RunError

TINY = Setting(backbone="conv4", meta_batch=2, ways=2, inner_steps=1, image=16, filters=2)


def test_all_engines_do_the_same_work():
    check_same_gradient({name: TINY.step(name) for name in installed_engines()})


def test_unequal_work_is_not_timed():
    steps = {"one": TINY.step(), "other": Setting(**{**vars(TINY), "inner_lr": 0.5}).step()}
    with pytest.raises(RunError, match="other finds another outer gradient than one"):
        check_same_gradient(steps)


def test_a_step_clears_the_gradients_of_the_one_before():
    step = TINY.step()
    step()
    first = step.gradients()
    step()
    assert all(torch.equal(one, other) for one, other in zip(first, step.gradients(), strict=True))


def test_chunks_find_the_same_gradient():
    check_same_gradient({"whole": TINY.step(), "chunked": TINY.step(chunk=1)})
