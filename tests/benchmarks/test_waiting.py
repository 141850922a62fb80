"""The benchmark of waiting, with steps that take no time or never end."""

import pytest

from arelu_meta.benchmarks import waiting
from arelu_meta.errors import RunError

ECHO = 'import os\nwhile True:\n    print(os.environ.get("GOMP_SPINCOUNT"), flush=True)\n    input()'


def test_ways_are_measured_alone_and_beside_busy_processes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(waiting, "STEP", ECHO)
    monkeypatch.setattr(waiting, "usable_cores", lambda: 1)
    idle, busy = waiting.bench_waiting()
    assert [row.name for row in idle.rows] == [row.name for row in busy.rows]
    assert idle.rows[0].name == "bounded spinning, 1 threads"
    assert idle.rows[0].ratio == busy.rows[0].ratio == 1.0
    assert all(0 < row.seconds < 60 for row in (*idle.rows, *busy.rows))
    assert "the same beside 2 busy processes" in busy.title
    # With one core and two others, the share is a third.
    assert f"{1000 * 3 * idle.rows[0].seconds:.0f} ms" in busy.title


def test_a_step_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(waiting, "LONGEST", 0.2)
    with waiting._process('import time; print("done", flush=True); time.sleep(60)', {}) as process:
        step = waiting.Stepper(process)
        assert waiting.times_in_turns({"stuck": step}, 1) == {"stuck": [0.2]}
        process.wait()
        assert step() == 0.2  # at once
    (row,) = waiting._rows({"stuck": [0.2, 0.2]}, "")
    assert (row.ratio, row.note) == (1.0, "no step ended in 0 s")


def test_a_process_that_dies_is_named():
    with waiting._process("import sys; sys.exit(3)", {}) as process, pytest.raises(RunError, match="ended with 3"):
        waiting.Stepper(process)
