from types import SimpleNamespace

import pytest
import torch

from arelu_meta.benchmarks import maml
from arelu_meta.benchmarks.growth import exponent
from arelu_meta.benchmarks.meta_step import Setting, check_equal, engines_at_hand
from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import RunError

TINY = Setting(backbone="conv4", tasks=2, ways=2, inner_steps=1, image=16, filters=2)


def test_all_engines_do_the_same_work():
    check_equal({name: TINY.step(name) for name in engines_at_hand()})


def test_unequal_work_is_not_timed():
    steps = {"one": TINY.step(), "other": Setting(**{**vars(TINY), "inner_lr": 0.5}).step()}
    with pytest.raises(RunError, match="other finds another outer gradient than one"):
        check_equal(steps)


def test_a_step_clears_the_gradients_of_the_one_before():
    step = TINY.step()
    step()
    first = step.gradients()
    step()
    assert all(torch.equal(one, other) for one, other in zip(first, step.gradients(), strict=True))


def test_chunks_find_the_same_gradient():
    check_equal({"whole": TINY.step(), "chunked": TINY.step(chunk=1)})


def test_the_report_has_steps_and_iterations(monkeypatch):
    for name in ("NARROW", "WIDE"):
        monkeypatch.setattr(maml, name, TINY)
    images = torch.randint(0, 255, (40, 1, 16, 16), dtype=torch.uint8)  # of the size that the tiny network takes
    train = ImageSet("noise", images, torch.arange(4).repeat(10), tuple("abcd"))
    monkeypatch.setattr(maml, "mnist_or_digits", lambda _: SimpleNamespace(train=train))
    steps, wide, whole = maml.bench_maml()
    assert [row.name for row in steps.rows[:2]] == ["func, recorded", "func"]
    assert steps.rows[0].ratio == wide.rows[0].ratio == whole.rows[0].ratio == 1.0
    assert all(row.seconds > 0 for report in (steps, wide, whole) for row in report.rows)


def test_exponents_of_known_growth():
    assert exponent([1, 10, 100], [5, 5, 5]) == pytest.approx(0)
    assert exponent([2, 4, 8], [1, 2, 4]) == pytest.approx(1)
    assert exponent([1, 2, 3], [1, 8, 27]) == pytest.approx(3)
