from types import SimpleNamespace

import torch

from arelu_meta.benchmarks import maml
from arelu_meta.benchmarks.meta_step import Setting
from arelu_meta.data.imageset import ImageSet

TINY = Setting(backbone="conv4", meta_batch=2, ways=2, inner_steps=1, image=16, filters=2)


def test_the_report_has_steps_and_iterations(monkeypatch):
    for name in ("NARROW", "WIDE"):
        monkeypatch.setattr(maml, name, TINY)
    monkeypatch.setattr(maml, "POOL", 3)
    images = torch.randint(0, 255, (40, 1, 16, 16), dtype=torch.uint8)  # of the size that the tiny network takes
    train = ImageSet("noise", images, torch.arange(4).repeat(10), tuple("abcd"))
    monkeypatch.setattr(maml, "local_or_bundled", lambda *_: SimpleNamespace(train=train))
    steps, wide, whole = maml.bench_maml()
    assert [row.name for row in steps.rows[:2]] == ["func, recorded", "func"]
    assert steps.rows[0].ratio == wide.rows[0].ratio == whole.rows[0].ratio == 1.0
    assert [row.name.rpartition(", ")[2] for row in whole.rows[1:]] in ([], ["3 fixed episodes", "new episodes"])
    assert all(row.seconds > 0 for report in (steps, wide, whole) for row in report.rows)
