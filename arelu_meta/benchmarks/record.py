"""What was measured where: the machine, and the run in MLflow that keeps the figures."""

import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from arelu_meta import __version__
from arelu_meta.benchmarks.report import BenchReport


def machine() -> dict[str, str]:
    """The facts without which a time says nothing."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "threads": str(torch.get_num_threads()),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "arelu_meta": __version__,
    }


def record(reports: Sequence[BenchReport], facts: Mapping[str, str], *, experiment: str = "bench") -> str:
    """Keep the figures as a run's metrics and as a file of it; gives the run's id."""
    import mlflow

    from arelu_meta.store.connection import open_store

    _, experiment_id = open_store(experiment)
    with mlflow.start_run(experiment_id=experiment_id, run_name="bench", tags=dict(facts)) as run:
        mlflow.log_metrics({key: value for report in reports for key, value in metrics(report).items()})
        mlflow.log_text(json.dumps([report.plain() for report in reports], indent=2), "bench.json")
        mlflow.log_text("\n\n".join(report.text() for report in reports) + "\n", "bench.txt")
    return run.info.run_id


def metrics(report: BenchReport) -> dict[str, float]:
    """Seconds and ratio of every row, by names that MLflow takes."""
    found: dict[str, float] = {}
    for row in report.rows:
        name = f"{_plain(report.title)}/{_plain(row.name)}"
        found |= {f"{name}/seconds": row.seconds, f"{name}/ratio": row.ratio}
    return found


def _plain(text: str) -> str:
    """Keep what metric names may hold.

    >>> _plain("5 seeds, AReLU's (all)")
    '5 seeds AReLUs all'
    """
    return re.sub(r"[^\w\-. ]", "", text)[:100]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())
