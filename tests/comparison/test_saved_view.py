"""The view that a comparison opens with: what is in it. How it is written is tested in tests/store."""

from dataclasses import replace

import pytest

from arelu_meta.comparison.saved_view import PICTURES, VIEW, comparison_view, experiment_tags
from arelu_meta.store.saved_view import PREFIX
from tests.reporting.sweeps import sweep
from tests.store.test_saved_view import decoded


def test_the_view_groups_by_arm_and_draws_what_there_is():
    findings = sweep({"relu": 66.0, "arelu": 80.0}, seeds=[0, 1], lrs=[0.1, 0.01], steps=3)
    tags = experiment_tags(findings, "0123")
    assert tags["mlflow.experiment.primaryMetric.name"] == "test/accuracy"
    assert tags["mlflow.experiment.primaryMetric.greaterIsBetter"] == "True"
    assert tags["mlflow.experimentKind"] == "custom_model_development"
    state = decoded(tags[PREFIX + VIEW])
    assert state == comparison_view(findings, "0123").state()
    assert [(key["mode"], key["groupByData"]) for key in state["groupBy"]["groupByKeys"]] == [
        *(("param", "activation"), ("param", "lr"))
    ]
    assert state["searchFilter"] == "tags.`mlflow.parentRunId` = '0123'"
    assert [chart["type"] for chart in state["compareRunCharts"]] == ["BAR", "LINE", "SCATTER"]
    assert state["compareRunCharts"][2]["xaxis"] == {"key": "lr", "type": "PARAM"}


@pytest.mark.parametrize(("higher", "ascending"), [(True, False), (False, True)])
def test_the_best_stands_first(higher: bool, ascending: bool):
    findings = sweep({"relu": 66.0, "arelu": 80.0}, seeds=[0, 1], higher_is_better=higher)
    assert comparison_view(findings, "0123").state()["orderByAsc"] == ascending


def test_pictures_have_a_view_of_their_own_with_a_card_for_each():
    findings = sweep({"relu": 66.0, "arelu": 80.0}, seeds=[0, 1])
    runs = findings.runs[(findings.runs["seed"] != 0) | (findings.runs["activation"] != "relu")]
    findings = replace(findings, runs=runs)  # one run of seed 0, two of seed 1
    assert PREFIX + PICTURES not in experiment_tags(findings, "0123")
    tags = experiment_tags(findings, "0123", {"overlays": 3, "activation_curves": 3})
    state, first = decoded(tags[PREFIX + PICTURES]), decoded(tags[PREFIX + VIEW])
    assert [(card["type"], card["imageKeys"], card["step"]) for card in state["compareRunCharts"]] == [
        ("IMAGE", ["activation_curves"], 3),
        ("IMAGE", ["overlays"], 3),
    ]
    assert (state["useGroupedValuesInCharts"], first["useGroupedValuesInCharts"]) == (False, True)
    assert state["searchFilter"] == "tags.`mlflow.parentRunId` = '0123' AND params.seed = '1'"
    assert state["groupBy"] is None
    ((pictures,), (answer,)) = (one["compareRunSections"] for one in (state, first))
    assert (state["runListHidden"], state["orderByAsc"], pictures["columns"]) == (True, True, 1)
    assert "columns" not in answer
