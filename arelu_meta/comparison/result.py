"""What a comparison gives back."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arelu_meta.comparison.parent_run import ParentRun
from arelu_meta.console.output import plain
from arelu_meta.reporting import Report
from arelu_meta.reporting.table import numbers_frame
from arelu_meta.store.sources import store_uri


@dataclass(frozen=True)
class ComparisonResult:
    """What came of a comparison.

    Attributes:
        report: verdicts and tables over `report.analysis.findings`; None while other shards' cells are missing.
        missing: cells without a result, each with the reason.
        own_missing: those of them that this call was to run; without a shard, the same.
        parent: the parent run in MLflow.
        folder: where the report is.
    """

    report: Report | None
    missing: tuple[str, ...]
    own_missing: tuple[str, ...]
    parent: ParentRun
    folder: Path

    def as_dict(self) -> dict[str, Any]:
        """Everything for a script, as plain values for JSON; without a report, verdict and arms are None."""
        from arelu_meta.kinds.results import places  # and torch, which a runner does without

        found = self.report if self.report is not None and len(self.report.analysis.findings.runs) else None
        return {
            "verdict": found.verdicts[0].sentences if found else None,
            "evidence": found.verdicts[0].evidence if found else None,
            "arms": plain(numbers_frame(found.analysis).to_dict("records")) if found else None,
            "runs": len(found.analysis.findings.runs) if found else 0,
            "missing": list(self.missing),
            "report": str(self.folder) if self.report is not None else None,
            **places(self.parent.run_id, self.parent.experiment_id, store_uri()),
        }
