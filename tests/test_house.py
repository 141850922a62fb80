"""Files and functions keep sizes in which a reader finds the way, measured by `tests/house.py`."""

import re
from pathlib import Path

import pytest

from tests.house import measure

AIMS = {
    "file, median": (90, 130),
    "file, largest": (0, 300),
    "function, median": (9, 15),
    "function, largest": (0, 50),
}


@pytest.fixture(scope="module")
def figures(root: Path) -> dict[str, float]:
    return measure(root / "arelu_meta")


@pytest.mark.parametrize("name", AIMS)
def test_the_package_is_within_its_aims(figures: dict[str, float], name: str):
    low, high = AIMS[name]
    assert low <= figures[name] <= high


EXCEPTION = re.compile(r"# noqa: (?:[A-Z]+\d+, )*S\d+(?:, [A-Z]+\d+)*(.*)")


def test_exceptions_to_rules_of_security_stand_with_their_reason(root: Path):
    """Rules S of ruff are those of bandit; SECURITY.md says that each exception is reasoned."""
    files = sorted((root / "arelu_meta").rglob("*.py"))
    lines = [(path, line) for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    found = [(path, match[1]) for path, line in lines if (match := EXCEPTION.search(line))]
    assert len(found) >= 10  # it sees them
    assert [str(path) for path, reason in found if not re.fullmatch(r" +(- \w.+|\(\w.+\))", reason)] == []
    assert '"S"' in (root / "pyproject.toml").read_text(encoding="utf-8")


def test_the_measure_sees_what_is_there(tmp_path: Path):
    """Two modules of 3 and 5 lines; functions of 2 and 4 lines, the inner of them counted; one public name twice."""
    package = tmp_path / "arelu_meta"
    (package / "room").mkdir(parents=True)
    (package / "room" / "one.py").write_text('def f():\n    """Say."""\n\n')
    (package / "room" / "two.py").write_text("def f():\n    def g():\n        return 1\n    return g\n\n")
    figures = measure(package)
    assert (figures["modules"], figures["modules at the top"], figures["lines"]) == (2, 0, 8)
    assert (figures["file, median"], figures["file, largest"]) == (4, 5)
    assert (figures["functions"], figures["function, median"], figures["function, largest"]) == (3, 2, 4)
    assert figures["public names defined twice"] == 1
    assert figures["docstrings of public names"] == 1
