import subprocess
import sys
import textwrap

import pytest

from arelu_meta.runtime.allocator import keep_freed_memory

PROGRAM = """
    from pathlib import Path
    import torch
    from arelu_meta.runtime.allocator import keep_freed_memory
    if {keep}:
        assert keep_freed_memory()
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    before = resident()
    tensors = [torch.ones(2**19) for _ in range(100)]  # 2 MB each
    del tensors
    print((resident() - before) // 2**20)
"""


def megabytes_after_freeing(*, keep: bool) -> int:
    program = textwrap.dedent(PROGRAM.format(keep=keep))
    return int(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_freed_tensors_leave_their_memory_for_the_next():
    assert megabytes_after_freeing(keep=False) < 50
    assert megabytes_after_freeing(keep=True) > 150


def test_where_there_is_no_mallopt_nothing_happens(monkeypatch):
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    assert keep_freed_memory() is False
