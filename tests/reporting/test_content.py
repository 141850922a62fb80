from arelu_meta.reporting.content import make_report
from tests.reporting.sweeps import sweep


def test_facts_in_order():
    facts = dict(make_report(sweep({"relu": 60.0, "arelu": 70.0}, budget=0.5, missing=("a", "b"))).facts)
    assert list(facts)[:3] == ["experiment", "task", "protocol"]
    assert facts["cost"] == "10.0 min of computing, all runs together"  # 10 runs of a minute
    assert facts["budget"] == "50 % of the full training"
    assert facts["finished runs"] == "10, 2 missing"


def test_title_falls_back_to_the_name():
    assert make_report(sweep(title="")).title == "simulated"


def test_budget_is_named_over_the_tables():
    assert "25 % of the full training" in make_report(sweep(budget=0.25)).banner
    assert make_report(sweep()).banner == ""


def test_units_as_given():
    assert make_report(sweep(units={"test/accuracy": "%"})).numbers.unit == "%"
    assert make_report(sweep(units={})).numbers.unit == ""  # not guessed from the size of the values
