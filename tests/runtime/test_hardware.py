import math
import os
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import pytest
import torch

from arelu_meta.errors import InputError
from arelu_meta.runtime.hardware import (
    available_memory,
    device_of_worker,
    keep_freed_memory,
    numerics,
    peak_memory,
    processor_time_of_children,
    resolve_device,
    threads,
    usable_cores,
)

PROGRAM = """
    from contextlib import nullcontext
    from pathlib import Path
    import torch
    from arelu_meta.runtime.hardware import keep_freed_memory
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    for keep in (False, True):
        for size in (2, 100):  # MB; 100: beyond the largest threshold that glibc takes
            before = resident()
            with keep_freed_memory() if keep else nullcontext(False) as kept:
                assert kept is keep
                with keep_freed_memory() if keep else nullcontext(False):
                    pass  # as when a run predicts: its end is not that of the block around it
                tensors = [torch.ones(size * 2**18) for _ in range(200 // size)]  # float32: 2**18 of them are 1 MB
                del tensors
                inside = (resident() - before) // 2**20
            print(inside, (resident() - before) // 2**20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_freed_tensors_leave_their_memory_for_the_next_until_the_block_ends():
    """What 200 MB of freed tensors leave, inside and after the block: of plain ones first, then of those that keep."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(PROGRAM)], capture_output=True, text=True, check=True)
    small, large, *kept = ([int(number) for number in line.split()] for line in done.stdout.splitlines())
    assert max(*small, *large) < 50
    assert len(kept) == 2
    for inside, after in kept:
        assert inside > 150
        assert after < 50


def test_where_there_is_no_mallopt_nothing_happens(monkeypatch):
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    with keep_freed_memory() as kept:
        assert kept is False


def test_cores_are_those_of_the_affinity(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 3, 5}, raising=False)
    assert usable_cores() == 3


@pytest.mark.parametrize(("count", "cores"), [(8, 8), (None, 1)])
def test_cores_without_an_affinity(monkeypatch, count, cores):
    """As on macOS and Windows."""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    assert usable_cores() == cores


def test_memory_is_pages_times_their_size(monkeypatch):
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1000}.__getitem__, raising=False)
    assert available_memory() == 4_096_000


def test_memory_without_sysconf_is_not_limited(monkeypatch):
    """As on Windows."""
    monkeypatch.delattr(os, "sysconf", raising=False)
    assert available_memory() == math.inf


def test_cpu():
    assert resolve_device("cpu") == torch.device("cpu")


def gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """A machine with so many GPUs, on which a tensor can be made, here of no numbers."""
    make = torch.zeros
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch, "zeros", lambda *shape, device: make(*shape))  # noqa: ARG005


@pytest.mark.parametrize(("present", "kind"), [(True, "cuda"), (False, "cpu")])
def test_auto_takes_a_gpu_when_there_is_one(monkeypatch: pytest.MonkeyPatch, present: bool, kind: str):
    gpus(monkeypatch, int(present))
    assert resolve_device("auto").type == kind


@pytest.mark.parametrize("name", ["cudda", "", "cpu:x", "meta", "cuda:99"])
def test_absent_devices_name_the_present_ones(name: str):
    with pytest.raises(InputError, match=f"device '{name}' is not available here; set `device` to cpu") as raised:
        resolve_device(name)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("asked", "inside"), [(3, 3), (0, 2)])
def test_threads_are_set_for_a_while(asked: int, inside: int):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with threads(asked):
            assert torch.get_num_threads() == inside
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("name", "rank", "device"),
    [
        ("auto", "0", "cuda"),
        ("auto", "1", "cuda:1"),
        ("cuda", "3", "cuda:3"),
        ("cuda:2", "1", "cuda:2"),
        ("cpu", "1", "cpu"),
    ],
)
def test_processes_of_one_machine_have_a_gpu_each(name: str, rank: str, device: str, monkeypatch: pytest.MonkeyPatch):
    gpus(monkeypatch, 4)
    monkeypatch.setenv("LOCAL_RANK", rank)
    assert resolve_device(name) == torch.device(device)


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch):
    """NCCL would say `Duplicate GPU detected`, after a minute."""
    gpus(monkeypatch, 2)
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(InputError, match=r"process 3 of this machine has no GPU of its own: there are 2; start 2"):
        resolve_device("auto")


@pytest.mark.parametrize(
    ("name", "count", "devices"),
    [
        ("auto", 2, ["cuda:0", "cuda:1", "cuda:0"]),
        ("cuda", 3, ["cuda:0", "cuda:1", "cuda:2"]),
        ("cuda:1", 2, ["cuda:1"] * 3),
        ("auto", 0, ["auto"] * 3),
        ("cpu", 2, ["cpu"] * 3),
    ],
)
def test_workers_are_spread_over_the_gpus(name: str, count: int, devices: list[str], monkeypatch: pytest.MonkeyPatch):
    gpus(monkeypatch, count)
    assert [device_of_worker(name, number) for number in range(3)] == devices


def test_numerics_are_set_for_a_while(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "own")

    def settings() -> list[object]:
        cudnn = torch.backends.cudnn
        return [torch.get_float32_matmul_precision(), cudnn.benchmark, torch.are_deterministic_algorithms_enabled()]

    before = settings()
    assert before == ["highest", False, False]
    with numerics():
        assert settings() == before
    with numerics(tf32=True, cudnn_benchmark=True, deterministic=True):
        assert settings() == ["high", True, True]
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert torch.backends.cudnn.allow_tf32
    assert settings() == before
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == "own"


@pytest.mark.parametrize(("platform", "unit"), [("linux", 1024), ("darwin", 1)])
def test_peak_memory_in_the_units_of_the_system(monkeypatch, platform, unit):
    """macOS counts bytes, Linux kibibytes."""
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrusage", lambda _who: SimpleNamespace(ru_maxrss=5000))
    monkeypatch.setattr(sys, "platform", platform)
    assert peak_memory() == 5000 * unit


def test_without_the_module_resource(monkeypatch):
    """As on Windows: the memory is unknown, the time is what `os.times` has."""
    monkeypatch.setitem(sys.modules, "resource", None)
    monkeypatch.setattr(os, "times", lambda: SimpleNamespace(children_user=1.5, children_system=0.25))
    assert peak_memory() == 0
    assert processor_time_of_children() == 1.75
