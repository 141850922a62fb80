import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from arelu_meta.runtime import waiting
from arelu_meta.runtime.waiting import bound_spinning, others_at_work, threads_are_given, waiting_policy


@pytest.fixture(autouse=True)
def nothing_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who has chosen neither threads nor how they wait, in a process without torch."""
    for name in (*waiting.WAITING_VARIABLES, *waiting.THREAD_VARIABLES):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(waiting, "others_at_work", lambda: 1)
    monkeypatch.setattr(waiting, "usable_cores", lambda: os.cpu_count())


def test_others_on_cores_that_this_process_may_not_use_do_not_count(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.setattr(waiting, "usable_cores", lambda: 2)
    monkeypatch.setattr(waiting, "others_at_work", lambda: 6)
    assert bound_spinning() is False
    monkeypatch.setattr(waiting, "others_at_work", lambda: 7)
    assert bound_spinning() is True


def test_on_an_idle_machine_threads_wait_as_they_do(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(waiting, "others_at_work", lambda: 0)
    assert bound_spinning() is False
    assert waiting_policy() == "default"


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_process_that_is_always_running_is_seen():
    """And nothing is seen where a single sample finds nobody else."""
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE
    ) as busy:
        assert busy.stdout is not None
        busy.stdout.readline()
        try:
            assert others_at_work() >= 1
        finally:
            busy.kill()


def test_one_free_moment_is_enough(monkeypatch: pytest.MonkeyPatch):
    lines = iter(["0.1 0.1 0.1 3/400 1", "0.1 0.1 0.1 2/400 1", "0.1 0.1 0.1 1/400 1"])
    monkeypatch.setattr(Path, "read_text", lambda _: next(lines))
    assert others_at_work(samples=2, pause=0.0) == 1
    assert others_at_work(samples=2, pause=0.0) == 0


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
    busy = "from arelu_meta.runtime import waiting; waiting.others_at_work = lambda: 10**6"
    code = f"import ctypes; {busy}; waiting.bound_spinning(); {load}"
    assert "GOMP_SPINCOUNT = '1000'" in python("-c", code, OMP_DISPLAY_ENV="verbose").stderr


def test_commands_bound_it_before_torch_is_loaded(python: Callable[..., subprocess.CompletedProcess[str]]):
    code = (
        "import os, sys; from arelu_meta.console.command_line import main\n"
        "from arelu_meta.runtime import waiting; waiting.others_at_work = lambda: 10**6\n"
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
