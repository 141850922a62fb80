"""Saved views of the MLflow UI, decoded as the UI decodes them."""

import base64
import json
import zlib
from typing import Any

import mlflow
import numpy as np
import pytest

from arelu_meta.store.saved_view import MOST, PREFIX, SavedView, bar, line, scatter


def decoded(text: str) -> dict[str, Any]:
    """As the UI does: `deflate;` and base64 of a zlib stream with JSON, since MLflow 3.15 in JSON with a name."""
    header, _, packed = (text if text.startswith("deflate;") else json.loads(text)["state"]).partition(";")
    assert header == "deflate"
    state: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed)))
    return state


def view(**other: Any) -> SavedView:
    given = {"name": "mine", "condition": "tags.a = 'b'", "metric": "val/acc", "groups": [("tag", "method")]}
    charts = [bar("val/acc", "method"), line("train/loss"), scatter("val/acc", "size", "METRIC")]
    return SavedView(**{**given, "charts": charts, **other})


@pytest.mark.parametrize(("version", "named"), [("3.13.0", False), ("3.14.0", False), ("3.15.0", True), ("4.0", True)])
def test_a_name_where_the_ui_reads_it(version: str, named: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mlflow, "__version__", version)
    ((key, text),) = view().tags("mine-1").items()
    assert key == PREFIX + "mine-1"
    assert decoded(text) == view().state()
    assert text.startswith("deflate;") != named
    if named:
        assert json.loads(text)["name"] == "mine"


def test_what_the_ui_is_told():
    state = view(columns=["params.lr", "tags.method"], higher_is_better=False).state()
    assert state["selectedColumns"] == ["metrics.`val/acc`", "params.`lr`", "tags.`method`"]
    assert (state["orderByKey"], state["orderByAsc"]) == ("metrics.`val/acc`", True)
    assert state["groupBy"]["groupByKeys"] == [{"mode": "tag", "groupByData": "method"}]
    charts, (section,) = state["compareRunCharts"], state["compareRunSections"]
    assert [chart["type"] for chart in charts] == ["BAR", "LINE", "SCATTER"]
    assert charts[2]["xaxis"] == {"key": "size", "type": "METRIC"}
    assert {chart["metricSectionId"] for chart in charts} == {section["uuid"]}
    assert len({chart["uuid"] for chart in charts}) == 3


def test_too_long_for_a_tag():
    noise = np.random.default_rng(0).bytes(MOST).hex()  # which cannot be packed into less
    assert view(condition=noise).tags("mine-1") == {}
