import subprocess
import sys
import textwrap

import pytest

from arelu_meta.allocator import keep_freed_memory

PROGRAM = """
    import resource, torch
    from arelu_meta.allocator import keep_freed_memory
    if {keep}:
        assert keep_freed_memory()
    def faults():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(20):
            tensors = [torch.ones(4 * 2**20) for _ in range(4)]  # 16 MB each
            del tensors
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    faults()
    print(faults())
"""


def page_faults(*, keep: bool) -> int:
    program = textwrap.dedent(PROGRAM.format(keep=keep))
    return int(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_large_tensors_find_their_memory_again():
    kept, default = page_faults(keep=True), page_faults(keep=False)
    assert kept < default / 10


def test_where_there_is_no_mallopt_nothing_happens(monkeypatch):
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    assert keep_freed_memory() is False
