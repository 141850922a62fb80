import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from arelu_meta.runtime import waiting
from arelu_meta.runtime.waiting import CoreWatch, bound_spinning, threads_are_given, waiting_policy


@pytest.fixture(autouse=True)
def nothing_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who has chosen neither threads nor how they wait, in a process without torch."""
    for name in (*waiting.WAITING_VARIABLES, *waiting.THREAD_VARIABLES):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.delitem(sys.modules, "torch", raising=False)


def test_spinning_is_bounded_once():
    assert waiting_policy() == "default"
    assert bound_spinning() is True
    assert os.environ["GOMP_SPINCOUNT"] == "1000"
    assert waiting_policy() == "GOMP_SPINCOUNT=1000"
    assert bound_spinning() is False


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY"])
def test_what_the_user_has_chosen_stays(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(name, "own")
    assert bound_spinning() is False
    assert waiting_policy() == f"{name}=own"


def test_it_is_too_late_where_torch_is_loaded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch", sys)
    assert bound_spinning() is False
    assert "GOMP_SPINCOUNT" not in os.environ


@pytest.mark.skipif(sys.platform != "linux", reason="libgomp is in the wheels for Linux")
def test_the_library_of_torch_takes_what_is_set_before_it_is_loaded(
    python: Callable[..., subprocess.CompletedProcess[str]],
):
    """libgomp prints what it has read from the environment; setting it later changes nothing."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    libraries = sorted(Path(spec.origin).parent.glob("lib/libgomp*"))
    if not libraries:
        pytest.skip("this torch has another OpenMP")
    load = f"ctypes.CDLL({str(libraries[0])!r})"
    code = f"import ctypes; from arelu_meta.runtime.waiting import bound_spinning; bound_spinning(); {load}"
    assert "GOMP_SPINCOUNT = '1000'" in python("-c", code, OMP_DISPLAY_ENV="verbose").stderr


def test_commands_bound_it_before_torch_is_loaded(python: Callable[..., subprocess.CompletedProcess[str]]):
    code = (
        "import os, sys; from arelu_meta.console.command_line import main\n"
        "main(lambda _: print(os.environ['GOMP_SPINCOUNT'], 'torch' in sys.modules), [])"
    )
    assert python("-c", code).stdout == "1000 False\n"


@pytest.mark.parametrize(("threads", "name", "given"), [(0, "", False), (2, "", True), (0, "OMP_NUM_THREADS", True)])
def test_threads_are_given_by_flag_or_in_the_environment(
    threads: int, name: str, given: bool, monkeypatch: pytest.MonkeyPatch
):
    if name:
        monkeypatch.setenv(name, "1")
    assert threads_are_given(threads) is given


@pytest.mark.parametrize(
    ("idle", "own", "free", "threads"),
    [
        (3.0, 1.0, 4.0, 4),  # nobody else: three cores idle and one is ours
        (2.1, 1.0, 3.1, 4),  # a quarter of the cores at most
        (1.0, 1.0, 2.0, 2),
        (0.0, 0.2, 0.2, 1),  # many others, and a fifth of one core is ours
    ],
)
def test_free_cores_are_those_that_idled_or_were_ours(
    idle: float, own: float, free: float, threads: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Of four cores in two seconds; the fifth is not for this process. 100 ticks are a second, half are for a disk."""
    clock, used, stat = [50.0], [7.0], tmp_path / "stat"

    def show(ticks: float) -> None:
        lines = [f"cpu{core} 5 5 5 {1000 + ticks / 8:.0f} {ticks / 8:.0f} 9" for core in range(4)]
        stat.write_text("\n".join(["cpu 0 0 0 0 0 0", *lines, f"cpu4 5 5 5 {9 * ticks:.0f} 0 9", "intr 3", ""]))

    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(waiting, "STAT", stat)
    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: clock[0], process_time=lambda: used[0]))
    show(0)
    watch = CoreWatch()
    assert watch.free_cores() is None  # too early
    clock[0], used[0] = 52.0, 7.0 + 2 * own
    show(200 * idle)
    assert watch.free_cores() == pytest.approx(free, abs=0.05)
    assert watch.threads(4) == threads


def test_where_the_system_does_not_say_all_cores_are_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """As on macOS."""
    monkeypatch.setattr(waiting, "STAT", tmp_path / "none")
    assert CoreWatch().free_cores() is None
    assert CoreWatch().threads(8) == 8
