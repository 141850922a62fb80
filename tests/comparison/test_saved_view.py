"""The view that a comparison opens with, decoded as the UI decodes it."""

import base64
import json
import zlib

from arelu_meta.comparison.saved_view import MOST, PREFIX, VIEW, experiment_tags, view_state
from tests.reporting.sweeps import sweep


def decoded(text: str) -> dict:
    """As the UI does: JSON, in it `deflate;` and base64 of a zlib stream, in that JSON again."""
    header, _, packed = json.loads(text)["state"].partition(";")
    assert header == "deflate"
    return json.loads(zlib.decompress(base64.b64decode(packed)))


def test_the_view_groups_by_arm_and_draws_what_there_is():
    findings = sweep({"relu": 66.0, "arelu": 80.0}, seeds=[0, 1], lrs=[0.1, 0.01], steps=3)
    tags = experiment_tags(findings, "0123", 1_700_000_000_000)
    assert tags["mlflow.experiment.primaryMetric.name"] == "test/accuracy"
    assert tags["mlflow.experiment.primaryMetric.greaterIsBetter"] == "True"
    state = decoded(tags[PREFIX + VIEW])
    assert state == view_state(findings, "0123")
    assert [(key["mode"], key["groupByData"]) for key in state["groupBy"]["groupByKeys"]] == [
        *(("param", "activation"), ("param", "lr"))
    ]
    assert state["searchFilter"] == "tags.`mlflow.parentRunId` = '0123'"
    assert [chart["type"] for chart in state["compareRunCharts"]] == ["BAR", "LINE", "SCATTER"]
    assert state["compareRunCharts"][2]["xaxis"] == {"key": "lr", "type": "PARAM"}
    assert {chart["metricSectionId"] for chart in state["compareRunCharts"]} == {state["compareRunSections"][0]["uuid"]}
    assert len({chart["uuid"] for chart in state["compareRunCharts"]}) == 3


def test_a_view_that_is_too_long_is_left_out():
    findings = sweep({"relu": 66.0, "arelu": 80.0}, seeds=[0, 1], metric="test/accuracy", name="n" * (MOST + 1))
    assert PREFIX + VIEW not in experiment_tags(findings, "0123", 0)
