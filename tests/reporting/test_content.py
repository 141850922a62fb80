from arelu_meta.reporting.content import content
from tests.reporting.sweeps import sweep


def test_facts_in_order():
    facts = dict(content(sweep({"relu": 60.0, "arelu": 70.0}, budget=0.5, missing=("a", "b"))).facts)
    assert list(facts)[:3] == ["experiment", "task", "protocol"]
    assert facts["cost"] == "10.0 min of computing, all runs together"  # 10 runs of a minute
    assert facts["budget"] == "50 % of the full training"
    assert facts["finished runs"] == "10, 2 missing"


def test_unit_as_given_or_as_it_must_be():
    assert content(sweep(unit=None)).numbers.unit == "%"
    assert content(sweep({"relu": 0.5}, unit=None, seed_sd=0, arm_sd=0)).numbers.unit == ""
    assert content(sweep(unit="s")).numbers.unit == "s"


def test_title_falls_back_to_the_name():
    assert content(sweep(title="")).title == "simulated"
