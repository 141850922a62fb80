import os
import platform
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from arelu_meta.runtime import machine
from arelu_meta.runtime.machine import has_ended, process_name


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


def test_a_process_that_is_gone_is_told_from_a_living_one():
    """Also where a later process has its number: the start differs."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    name = process_name(process.pid)
    assert not has_ended(name)
    assert has_ended(name.rpartition(":")[0] + ":12345")
    process.communicate(b"\n")
    assert has_ended(name)


@pytest.mark.parametrize("name", ["", "elsewhere:1:1", f"{socket.gethostname()}:x:1", f"{socket.gethostname()}"])
def test_of_a_process_that_cannot_be_asked_nothing_is_said(name: str):
    assert not has_ended(name)


def test_on_windows_no_process_is_sent_a_signal(monkeypatch: pytest.MonkeyPatch):
    """There signal 0 is Ctrl-C."""
    gone = process_name().rpartition(":")[0] + ":0"
    assert has_ended(gone)
    sent: list[int] = []
    monkeypatch.setattr(os, "kill", lambda *_: sent.append(1))
    monkeypatch.setattr(os, "name", "nt")
    assert not has_ended(gone)
    assert sent == []
