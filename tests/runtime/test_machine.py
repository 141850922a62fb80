import platform
from pathlib import Path

import pytest

from arelu_meta.runtime import machine


def test_the_model_of_the_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    told = tmp_path / "cpuinfo"
    told.write_text("processor\t: 0\nvendor_id\t: Mine\nmodel name\t: Mine 9000 @ 3 GHz\n")
    monkeypatch.setattr(machine, "CPUINFO", told)
    assert machine.processor_name() == "Mine 9000 @ 3 GHz"


@pytest.mark.parametrize("text", [None, "processor\t: 0\n"])
def test_systems_that_do_not_tell(text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    told = tmp_path / "cpuinfo"
    if text is not None:
        told.write_text(text)
    monkeypatch.setattr(machine, "CPUINFO", told)
    assert machine.processor_name() == (platform.processor() or platform.machine())
