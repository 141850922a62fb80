import sys
from pathlib import Path

import pytest

from arelu_meta.benchmarks import memory
from arelu_meta.benchmarks.memory import exponent, peak_of_step
from arelu_meta.benchmarks.meta_step import Setting
from arelu_meta.errors import InputError


def test_exponents_of_known_growth():
    assert exponent([1, 10, 100], [5, 5, 5]) == pytest.approx(0)
    assert exponent([2, 4, 8], [1, 2, 4]) == pytest.approx(1)
    assert exponent([1, 2, 3], [1, 8, 27]) == pytest.approx(3)


def test_the_peak_holds_at_least_the_first_feature_maps():
    """32 episodes of 5 support images, 32 maps of 32x32 float32 each: 20 MB that the backward pass needs."""
    setting = Setting(backbone="conv4", meta_batch=32, image=32, filters=32, inner_steps=1)
    peak, seconds = peak_of_step(setting)
    assert 20 * 2**20 < peak < 2**32
    assert seconds > 0


def test_growth_has_a_row_for_each_size(monkeypatch: pytest.MonkeyPatch):
    """Memory that grows as the square of the ways is said to."""
    monkeypatch.setattr(memory, "BASE", Setting(backbone="conv4", meta_batch=1, inner_steps=1, image=16, filters=2))
    monkeypatch.setattr(memory, "AXES", {"ways": (2, 4)})
    monkeypatch.setattr(memory, "peak_of_step", lambda setting: (setting.ways**2 * 2**20, 0.0))
    (report,) = memory.bench_growth()
    small, large = report.rows
    assert (small.name, small.ratio, small.note) == ("ways 2", 1.0, "4 MB")
    assert large.ratio == pytest.approx(large.seconds / small.seconds)
    assert large.note.startswith("16 MB; time ~ ways^")
    assert large.note.endswith("memory ~ ways^2.00")


def test_a_system_that_does_not_tell_memory_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """As on Windows: neither /proc nor the module resource."""
    monkeypatch.setattr(memory, "STATUS", tmp_path / "none")
    monkeypatch.setattr(memory, "CLEAR", tmp_path / "none")
    monkeypatch.setitem(sys.modules, "resource", None)
    with pytest.raises(InputError, match="run it on Linux or macOS"):
        memory.peak_memory(restart=True)
