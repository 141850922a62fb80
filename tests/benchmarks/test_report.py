from arelu_meta.benchmarks.report import BenchReport, Row, machine_facts, timing_rows
from arelu_meta.benchmarks.timing import Timing


def test_a_table_says_what_its_ratios_are_to():
    rows = [Row("ours", 0.001, 1.0), Row("theirs", 0.0025, 2.5, "slow")]
    for of, header in (("ours", "ratio to ours"), ("memory", "memory, ratio to ours"), ("without", "of the rest")):
        title, head, *lines = BenchReport("title", rows, of).text().splitlines()
        assert title == "title"
        assert head.split(maxsplit=1) == ["ms", header]
        assert [line.split() for line in lines] == [["ours", "1.000", "1.00"], ["theirs", "2.500", "2.50", "slow"]]


def test_timings_are_relative_to_the_first():
    ours, theirs = timing_rows([Timing("ours", 0.5, 0.6, 3), Timing("theirs", 2.0, 2.5, 3)])
    assert (ours.ratio, ours.note) == (1.0, "median 600.0 ms of 3")
    assert (theirs.ratio, theirs.note) == (4.0, "median 2500.0 ms of 3")


def test_metric_names_hold_what_mlflow_takes():
    report = BenchReport("MAML: 5-way, 1-shot", [Row("func (ours)", 0.5, 1.0)])
    assert report.metrics() == {"MAML 5-way 1-shot/func ours/seconds": 0.5, "MAML 5-way 1-shot/func ours/ratio": 1.0}


def test_the_machine_is_described():
    facts = machine_facts()
    assert list(facts) == ["processor", "cores", "threads", "python", "torch", "arelu_meta"]
    assert all(facts.values())
