"""Work that is shared out among threads: all of it, each part alone on a core, and torch's own threads as before."""

import multiprocessing
import threading

import pytest
import torch

from arelu_meta.runtime import sharing
from arelu_meta.runtime.hardware import threads
from arelu_meta.runtime.sharing import share_out


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sharing, "usable_cores", lambda: 2)
    with threads(2):
        yield


def test_every_part_is_done_once_by_threads_that_compute_on_one_core():
    done, counts, names = [0] * 40, set[int](), set[int]()

    def work(part: int) -> None:
        done[part] += 1
        counts.add(torch.get_num_threads())
        names.add(threading.get_ident())

    share_out(work, range(40))
    assert done == [1] * 40
    assert counts == {1}
    assert threading.get_ident() not in names
    assert torch.get_num_threads() == 2
    other = list[int]()
    thread = threading.Thread(target=lambda: other.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert other == [2]  # a thread that comes later begins as this one


def test_two_parts_are_worked_on_at_the_same_time():
    """Each waits for the other: one after the other, the barrier would break."""
    together = threading.Barrier(2, timeout=20)
    share_out(lambda _part: together.wait(), range(2))


def test_one_part_one_thread_and_work_inside_work_are_done_where_they_are():
    here = set[int]()
    share_out(lambda _part: here.add(threading.get_ident()), [0])
    with threads(1):
        share_out(lambda _part: here.add(threading.get_ident()), range(4))
    assert here == {threading.get_ident()}
    inner = list[int]()
    share_out(lambda _part: share_out(inner.append, range(3)), range(2))
    assert sorted(inner) == [0, 0, 1, 1, 2, 2]
    share_out(inner.append, [])


def test_the_first_error_is_raised_after_all_have_ended():
    done = list[int]()

    def work(part: int) -> None:
        if part in (1, 3):
            raise ValueError(f"part {part}")
        done.append(part)

    with pytest.raises(ValueError, match="part 1"):
        share_out(work, range(6))
    assert sorted(done) == [0, 2, 4, 5]


def _share_in_a_fork() -> None:
    done = list[int]()
    share_out(done.append, range(4))
    assert sorted(done) == [0, 1, 2, 3]


def test_a_fork_has_threads_of_its_own():
    """Those of the parent are not in it: it would wait for them for ever."""
    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("this system has no fork")
    share_out(lambda _part: None, range(4))
    process = multiprocessing.get_context("fork").Process(target=_share_in_a_fork)
    process.start()
    process.join(60)
    ended = process.exitcode
    process.kill()
    assert ended == 0
