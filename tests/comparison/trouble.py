"""Activations that make trouble when a cell builds a network with them, once or always.

The look at all networks before the first cell sees nothing of it: as where it is the machine that fails.
"""

import os
import signal
import traceback
from pathlib import Path

import torch


def _in_a_cell() -> bool:
    return all(frame.f_code.co_name != "check_cells" for frame, _ in traceback.walk_stack(None))


def _first_time(what: str) -> bool:
    mark = Path(os.environ["TROUBLE"]) / what
    if mark.exists():
        return False
    mark.touch()
    return True


class FailsOnce(torch.nn.ReLU):
    """Raises when the first network is built with it."""

    def __init__(self) -> None:
        super().__init__()
        if _in_a_cell() and _first_time("failed"):
            raise RuntimeError("the first time is hard")


class AlwaysFails(torch.nn.ReLU):
    """Raises whenever a network is built with it, and counts."""

    def __init__(self) -> None:
        super().__init__()
        if not _in_a_cell():
            return
        with (Path(os.environ["TROUBLE"]) / "failures").open("a") as file:
            file.write("x")
        raise RuntimeError("never works")


class TakesRunsAway(torch.nn.ReLU):
    """Renames the folder of all runs when it has the first checkpoint."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        runs = Path(os.environ["ARELU_META_RUNS"])
        if any(runs.glob("*/checkpoint.pt")) and _first_time("taken"):
            runs.rename(Path(os.environ["TROUBLE"]) / "elsewhere")
        return super().forward(x)


class KillsOnce(torch.nn.ReLU):
    """Kills the process of the first network in the middle of its training."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled() and _first_time("killed"):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)
