"""What several test files share: one thread, a store of one's own, a run small enough to make often."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy and torch: the networks here are too small to share out
os.environ["GOMP_SPINCOUNT"] = "1000"  # where a test asks for two threads, they wait asleep: others test beside it
os.environ["MPLBACKEND"] = "agg"

from matplotlib.figure import Figure
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
SAVE = Figure.savefig
TINY = {
    "episode": {"ways": 5, "shots": 1, "queries": 2, "test_queries": 3},
    "training": {"iterations": 2, "meta_batch": 2, "inner_steps": 2, "inner_lr": 0.05},
    "evaluation": {"test_episodes": 4, "validation_episodes": 2, "validate_every": 1},
}


# A suite started in the background has SIGINT ignored, and every process it starts inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def _save_a_pixel(_figure: Figure, file: Any, **_: Any) -> None:
    Image.new("1", (1, 1)).save(file, format="PNG")


@pytest.hookimpl(tryfirst=True)  # before fixtures of every scope: most runs are made in those of a module
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Draw the figures that are saved only in tests marked `figures`: drawing takes a third of a tiny run.

    They are made all the same. `tests/kinds/test_contract.py` draws those of every kind, `tests/pictures` each one.
    """
    Figure.savefig = SAVE if item.get_closest_marker("figures") else _save_a_pixel  # type: ignore[method-assign]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the cases of learn2learn where it is not installed: it does not build on every Python."""
    if find_spec("learn2learn"):
        return
    for item in items:
        case = getattr(item, "callspec", None)  # of parametrised tests
        if case is not None and any("learn2learn" in str(value) for value in case.params.values()):
            item.add_marker(pytest.mark.skip(reason="learn2learn is not installed"))


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder of the checkout."""
    return ROOT


@pytest.fixture(scope="session", autouse=True)
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cache for all tests of a session, in all its processes: sets are drawn by the code under test, once."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARELU_META_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="session")
def published_data() -> Path:
    """The data root with the published sets: `ARELU_META_TEST_DATA`, or unpacked from beside the project."""
    if root := os.environ.get("ARELU_META_TEST_DATA"):
        return Path(root)
    script = ROOT.parent / "shared" / "data" / "unpack.py"
    if not script.exists():
        pytest.skip("no published images: ARELU_META_TEST_DATA is not set and ../shared/data/unpack.py is not there")
    root = Path(tempfile.gettempdir()) / "arelu_meta-test-data"
    with FileLock(f"{root}.lock"):  # two test sessions may unpack at the same moment
        subprocess.run([sys.executable, script, root], check=True, stdout=subprocess.DEVNULL)
    return root


@pytest.fixture(scope="session")
def tiny_spec() -> Callable[..., Any]:
    """Make the spec of a run of a second: `tiny_spec(seed=1, network={"activation": "relu"})`."""
    from arelu_meta.console import catalog
    from arelu_meta.kinds.few_shot.spec import FewShotSpec

    def make(**sections: Any) -> FewShotSpec:
        values = {**catalog.read("task", "digits"), **TINY}
        for name, given in sections.items():
            values[name] = {**values.get(name, {}), **given} if isinstance(given, dict) else given
        return FewShotSpec.model_validate(values)

    return make


@pytest.fixture(scope="session")
def new_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow database with all its tables and no runs: making one takes seconds, copying it none.

    It is made in a process of its own: MLflow leaves the address of a store it has opened in the environment, and
    whatever ran later without one would be recorded in what every test copies.
    """
    from mlflow.store.db import utils

    # MLflow would import its 67 migrations for every copy that is opened, to see which is the newest.
    utils._get_latest_schema_revision = cache(utils._get_latest_schema_revision)
    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    script = "from arelu_meta.store.connection import open_store; open_store('unused')"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MLFLOW_TRACKING_URI": f"sqlite:///{path}"}
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, cwd=path.parent, env=environment)
    return path


@pytest.fixture(scope="session")
def own_store(new_store: Path) -> Callable[[Path], AbstractContextManager[pytest.MonkeyPatch]]:
    """Work in a folder with a store of its own, for fixtures that several tests share: `with own_store(folder):`."""

    @contextmanager
    def working_in(folder: Path) -> Iterator[pytest.MonkeyPatch]:
        shutil.copy(new_store, folder / "mlflow.db")
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlflow.db'}")
            patch.setenv("ARELU_META_RUNS", str(folder / "runs"))
            yield patch

    return working_in


@pytest.fixture(scope="session")
def finetuned(tmp_path_factory: pytest.TempPathFactory, own_store: Callable[[Path], Any]) -> Any:
    """The result of a fine-tuning of one epoch, in a store of its own: what tests export and read."""
    from arelu_meta.kinds import run
    from tests.supervised_runs import finetune_spec

    with own_store(tmp_path_factory.mktemp("finetuned")):
        return run(finetune_spec(training={"epochs": 1}))


@pytest.fixture(autouse=True)
def no_store_of_another_test(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Record what a test without a store of its own runs where no other test looks."""
    if "mlflow" in sys.modules:
        sys.modules["mlflow"].set_tracking_uri(None)  # what a test before this one may have set
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path_factory.getbasetemp() / 'stray.db'}")


@pytest.fixture
def store(tmp_path: Path, new_store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The MLflow database of this test, in the working folder of this test."""
    shutil.copy(new_store, tmp_path / "mlflow.db")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.setenv("ARELU_META_RUNS", str(tmp_path / "runs"))
    return tmp_path / "mlflow.db"


@pytest.fixture
def store_uri(store: Path) -> str:
    """The address of this test's MLflow database."""
    return f"sqlite:///{store}"


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty folder with a store of its own, and one thread, for pages of the docs; all as before afterwards."""
    import mlflow
    import torch

    before, threads = mlflow.get_tracking_uri(), torch.get_num_threads()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.delenv("ARELU_META_RUNS", raising=False)
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    mlflow.set_tracking_uri(before)


@pytest.fixture
def statuses() -> Callable[[Path], list[str]]:
    """Read the status of every run from the database itself."""

    def read(path: Path) -> list[str]:
        connection = sqlite3.connect(path)
        try:
            return [row[0] for row in connection.execute("SELECT status FROM runs")]
        finally:
            connection.close()

    return read


@pytest.fixture
def python(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run Python in a new process, in this test's folder, with this checkout's package."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


@pytest.fixture
def blank_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save one pixel in place of a figure, in a test of a file that is marked `figures`."""
    monkeypatch.setattr(Figure, "savefig", _save_a_pixel)


@pytest.fixture
def hangups_heard() -> Iterator[None]:
    """Do not ignore SIGHUP, as a suite does that was started by nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[Callable[[list[str]], int], list[str]], str]:
    """Call a command that must refuse, and give its one line: exit code 2, and not even a store is made."""
    import torch  # noqa: F401  (a command that loads it says so first)

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    def call(main: Callable[[list[str]], int], words: list[str]) -> str:
        assert main(words) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("error: ")
        assert captured.err.count("\n") == 1
        assert list(tmp_path.iterdir()) == []
        return captured.err

    return call
