"""Start commands of this package the way a user does, so that trials can kill them.

A trial takes seconds, and the import of torch and MLflow most of them: `warm_up` imports both once, and `start` forks
the command from there. With `real=True` it is a new interpreter, `python -m ...`, at its true cost.
"""

import gc
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

ROOT = Path(__file__).resolve().parents[2]
STANDBY = 3  # workers of a comparison that are forked before it needs them


@dataclass(frozen=True)
class Started:
    """A command under way, in a process group of its own; `out` and `err` are what it wrote."""

    pid: int
    folder: Path
    name: str
    began: float

    @property
    def out(self) -> str:
        """What it has written to stdout."""
        return (self.folder / f"{self.name}.out").read_text(errors="replace")

    @property
    def err(self) -> str:
        """What it has written to stderr."""
        return (self.folder / f"{self.name}.err").read_text(errors="replace")

    def wait(self, seconds: float) -> int | None:
        """Wait for its end; gives its exit code, negative for a signal, or None where it has not ended by then."""
        end = time.monotonic() + seconds
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() >= end:
                return None
            time.sleep(0.005)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the process and all that it started."""
        os.killpg(self.pid, number)

    def workers(self) -> list[int]:
        """Processes that it started itself."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return [int(word) for word in children.read_text().split()] if children.exists() else []


def warm_up() -> None:
    """Import what commands import; to be called before the first `start`, in a process that computes nothing."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell has background commands ignore
    os.environ.update(OMP_NUM_THREADS="1", MLFLOW_DISABLE_TELEMETRY="true", MPLBACKEND="agg")
    for kind in ("few_shot", "classify", "transfer", "finetune", "segment", "adapt"):
        importlib.import_module(f"arelu_meta.kinds.{kind}.run")
    for module in ("torch.export", "matplotlib.pyplot", "mlflow.pyfunc", "sklearn.datasets", "scipy.stats"):
        importlib.import_module(module)
    for module in ("torch._dynamo", "torch._inductor", "arelu_meta.comparison.runner", "arelu_meta.store.models"):
        importlib.import_module(module)
    importlib.import_module("mlflow.store.tracking.sqlalchemy_store")
    import matplotlib.pyplot as plt
    import torch

    figure, axes = plt.subplots(layout="constrained")
    axes.plot([0, 1])
    figure.savefig(os.devnull, format="png")
    plt.close(figure)
    torch.export.export(torch.nn.Sequential(torch.nn.Conv2d(1, 1, 3), torch.nn.ReLU()), (torch.zeros(2, 1, 4, 4),))
    gc.collect()
    gc.freeze()  # else the collector of each forked process would touch, and so copy, all of it


def start(
    words: Sequence[str],
    folder: Path,
    name: str,
    environment: Mapping[str, str] | None = None,
    *,
    real: bool = False,
    pictures: bool = True,
    prepare: Callable[[], None] | None = None,
) -> Started:
    """Start a command in a folder.

    Args:
        words: the module and its arguments: `["maml", "--ways", "2"]`
        folder: its working folder
        name: of the files that take what it writes
        environment: variables to set beside those of this process
        real: start a new interpreter; else fork this one
        pictures: draw figures; without, a forked command stores one pixel in their place
        prepare: called in the forked process before the command
    """
    variables = {"PYTHONPATH": str(ROOT), "ARELU_META_CACHE": str(folder / "cache"), **(environment or {})}
    began = time.monotonic()
    with (folder / f"{name}.out").open("wb") as out, (folder / f"{name}.err").open("wb") as err:
        if real:
            command = [sys.executable, "-m", f"arelu_meta.{words[0]}", *words[1:]]
            process = subprocess.Popen(
                command, cwd=folder, env={**os.environ, **variables}, stdout=out, stderr=err, start_new_session=True
            )
            process.returncode = 0  # waited for by its number, in `Started.wait`
            return Started(process.pid, folder, name, began)
        pid = os.fork()
        if not pid:
            _become(words, folder, variables, out.fileno(), err.fileno(), pictures, prepare)
    return Started(pid, folder, name, began)


def _save_no_figure(_figure: object, file: str | Path | BinaryIO, **_options: object) -> None:
    from PIL import Image

    Image.new("1", (1, 1)).save(file, format="PNG")


def _become(
    words: Sequence[str],
    folder: Path,
    variables: Mapping[str, str],
    out: int,
    err: int,
    pictures: bool,
    prepare: Callable[[], None] | None,
) -> None:
    """Be the command; this is the forked process, and does not return."""
    code = 1
    try:
        os.setsid()
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.chdir(folder)
        os.environ.update(variables)
        if not pictures:
            import matplotlib.figure

            matplotlib.figure.Figure.savefig = _save_no_figure  # type: ignore[assignment, method-assign]
        if prepare is not None:
            prepare()
        if words[0] == "compare":
            _have_workers_ready()
        code = importlib.import_module(f"arelu_meta.{words[0]}").main(list(words[1:]))
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


class _Standby:
    """Stands in for the context that a comparison starts its workers in: they were forked before it had threads."""

    def __init__(self, count: int) -> None:
        from arelu_meta.comparison.pool import _work

        context = multiprocessing.get_context("fork")
        self._ready: list[tuple[Any, Any]] = []
        for number in range(count):
            mine, other = context.Pipe()
            process = context.Process(target=_work, args=(other, number), daemon=True)
            process.start()
            other.close()
            self._ready.append((mine, process))

    def Pipe(self) -> tuple[Any, Any]:  # noqa: N802  # the name in multiprocessing
        """Give the pipe to the next worker; its other end is with the worker already."""
        return self._ready[0][0], open(os.devnull, "rb")  # closed by who asked

    def Process(self, **_given: Any) -> Any:  # noqa: N802
        """Give the next worker, which runs already."""
        process = self._ready.pop(0)[1]
        process.start = lambda: None
        return process


def _have_workers_ready() -> None:
    standby, original = _Standby(STANDBY), multiprocessing.get_context
    multiprocessing.get_context = lambda method=None: standby if method == "spawn" else original(method)  # type: ignore
