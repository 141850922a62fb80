import math
import re
import tempfile
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from arelu_meta.analysis import arms
from arelu_meta.analysis.findings import Findings
from arelu_meta.reporting import content, make_report, report_metrics, report_summary, write_report
from tests.reporting.sweeps import sweep

HOSTILE = '<script>alert("x")</script>&'
SVG = "{http://www.w3.org/2000/svg}"


def test_writes_everything(tmp_path: Path):
    findings = sweep(steps=3, episodes=20)
    paths = write_report(make_report(findings), tmp_path / "new" / "folder")
    names = {str(path.relative_to(tmp_path / "new" / "folder")) for path in paths}
    assert names == {
        "report.html",
        "report.md",
        "tables.tex",
        "runs.csv",
        "table.csv",
        "figures/arms.svg",
        "figures/curve-validation-accuracy.svg",
        "episodes.npz",
    }
    assert all(path.stat().st_size > 0 for path in paths)
    again = pd.read_csv(tmp_path / "new" / "folder" / "runs.csv")
    assert again["test/accuracy"].tolist() == pytest.approx(findings.runs["test/accuracy"].tolist())
    assert len(pd.read_csv(tmp_path / "new" / "folder" / "table.csv")) == 7
    with np.load(tmp_path / "new" / "folder" / "episodes.npz") as stored:
        assert set(stored) == set(again["run_id"])
        assert all(np.array_equal(stored[run], findings.episodes[run]) for run in stored)


def test_the_same_findings_give_the_same_report(tmp_path: Path):
    for name in ("a", "b"):
        write_report(make_report(sweep({"relu": 60.0, "arelu": 70.0})), tmp_path / name)
    for file in ("report.html", "report.md", "tables.tex", "table.csv", "figures/arms.svg"):
        assert (tmp_path / "a" / file).read_text() == (tmp_path / "b" / file).read_text()


def test_findings_are_analysed_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    calls = []
    monkeypatch.setattr(content, "analyse", lambda findings: calls.append(findings) or arms.analyse(findings))
    report = make_report(sweep({"relu": 60.0, "arelu": 70.0}))
    write_report(report, tmp_path)
    assert report_metrics(report)
    assert report_summary(report)
    assert len(calls) == 1


def test_metrics_rank_arms():
    findings = sweep({"relu": 60.0, "arelu": 70.0})
    found = report_metrics(make_report(findings))
    values = findings.runs[findings.runs["activation"] == "arelu"]["test/accuracy"]
    assert found["arelu/test/accuracy_mean"] == pytest.approx(values.mean())
    assert found["arelu/test/accuracy_ci95_low"] < values.mean() < found["arelu/test/accuracy_ci95_high"]
    assert found["arelu/test/accuracy_n"] == 5
    assert 0 <= found["arelu/test/accuracy_p_t_corrected"] <= 1
    assert "relu/test/accuracy_difference" not in found
    assert len(found) == 5 + 11  # of the baseline and of the other arm
    assert all(isinstance(value, float) for value in found.values())


def test_metric_names_are_valid_for_mlflow():
    from mlflow.utils.validation import _validate_metric_name

    paths = {"/abs/x.npz": 60.0, "./x": 61.0, "../x": 62.0, "a//b": 63.0, "..": 64.0}
    names = report_metrics(make_report(sweep({"relu": 60.0, "a(b=0.25)": 70.0, **paths}, lrs=(0.01, 0.1))))
    for name in names:
        _validate_metric_name(name)
    assert "a_b_0.25_/matched/test/accuracy_mean" in names
    assert "a_b_0.25_/lr_0.01/test/accuracy_mean" in names
    assert sum(name.endswith("_mean") for name in names) == 7 * 3  # none lost: two rates and the matched view


def test_arms_that_look_alike_keep_their_metrics():
    """`a(b)` and `a[b]` would have one name in MLflow."""
    found = report_metrics(make_report(sweep({"relu": 60.0, "a(b)": 70.0, "a[b]": 80.0}, seed_sd=0, arm_sd=0)))
    means = {name: value for name, value in found.items() if name.endswith("_mean") and name.startswith("a_")}
    assert sorted(means.values()) == [70.0, 80.0]


def test_one_seed_has_no_interval_among_the_metrics():
    found = report_metrics(make_report(sweep({"relu": 60.0, "arelu": 70.0}, seeds=[0])))
    assert {name.rpartition("accuracy_")[2] for name in found if name.startswith("relu/")} == {"mean", "n"}


def test_summary_for_the_terminal():
    text = report_summary(make_report(sweep(budget=0.1, lrs=(0.01, 0.1), missing=("elu, seed 3: diverged",))))
    assert text.splitlines()[0] == "Which activation adapts fastest? (simulated)"
    assert "each arm at its best lr" in text
    assert "lr = 0.01, n" not in text  # the tables at fixed rates are in the files
    assert "missing: elu, seed 3: diverged" in text
    assert len(re.findall("Reduced budget", text)) == 6  # at the top and over five tables
    assert not text.endswith("\n")


def test_nothing_finished(tmp_path: Path):
    report = make_report(replace(sweep(), runs=pd.DataFrame()))
    assert "no run has finished" in report_summary(report)
    assert report_metrics(report) == {}
    assert (tmp_path / "report.html") in write_report(report, tmp_path)


def written(findings: Findings) -> dict[str, str]:
    """The files of a report, by name."""
    with tempfile.TemporaryDirectory() as folder:
        return {
            path.name: path.read_text(encoding="utf-8") for path in write_report(make_report(findings), Path(folder))
        }


class Reader(HTMLParser):
    """Collects elements and text, and checks that every element is closed in its turn."""

    def __init__(self, findings: Findings) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.page = written(findings)["report.html"]
        self.feed(self.page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def count(self, tag: str, **attributes: str) -> int:
        return sum(name == tag and attributes.items() <= found.items() for name, found in self.elements)


@pytest.fixture(scope="module")
def findings():
    return sweep(steps=5, lrs=(0.01, 0.1), budget=0.1, missing=(f"elu {HOSTILE}",), question=HOSTILE)


def test_one_page_without_network(findings):
    reader = Reader(findings)
    assert reader.page.startswith("<!doctype html>")
    assert "http" not in reader.page
    assert "@import" not in reader.page
    assert "url(" not in reader.page
    assert not any({"src", "href"} & set(attributes) for _, attributes in reader.elements)
    assert "prefers-color-scheme: dark" in reader.page
    assert reader.count("meta", name="viewport", content="width=device-width, initial-scale=1") == 1


def test_what_comes_from_outside_is_escaped(findings):
    reader = Reader(findings)
    assert reader.count("script") == 1  # our own
    assert reader.text.count(HOSTILE) == 2


def test_names_of_any_kind_stay_text(tmp_path: Path):
    """Arms, controls, titles, reasons, paths and facts with tags, quotes, handlers, cells and links in them."""
    hostile = """"'><img src=x onerror="f()"><script>f()</script></td>|a|[b](javascript:f())"""
    names = {where: f"{where}{hostile}" for where in ("baseline", "arm", "control", "lacks", "title", "question")}
    names |= {where: f"{where}{hostile}" for where in ("missing", "fact", "value", "name", "published")}
    findings = sweep(
        {names["baseline"]: 60.0, names["arm"]: 70.0, names["control"]: 65.0},
        steps=3,
        lrs=(0.01, 0.1),
        name=names["name"],
        title=names["title"],
        question=names["question"],
        baseline=names["baseline"],
        explained=names["arm"],
        controls={names["control"]: names["lacks"]},
        missing=(names["missing"],),
        protocol={names["fact"]: names["value"], "command": f"python -m arelu_meta.compare {hostile}"},
    )
    reader = Reader(findings)
    plain = Reader(sweep({"a": 60.0, "b": 70.0, "c": 65.0}, steps=3, lrs=(0.01, 0.1), baseline="a"))
    assert {tag for tag, _ in reader.elements} <= {tag for tag, _ in plain.elements}
    assert reader.count("script") == 1
    assert not any(name.startswith("on") or name in ("src", "href") for _, found in reader.elements for name in found)
    for where in ("baseline", "arm", "control", "lacks", "title", "question", "missing", "fact", "value"):
        assert names[where] in reader.text, where
    paths = write_report(make_report(findings), tmp_path / "report")
    assert all(path.resolve().is_relative_to((tmp_path / "report").resolve()) for path in paths)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report"]
    tables = [line for line in (tmp_path / "report" / "report.md").read_text().splitlines() if line.startswith("|")]
    assert all("<" not in line and "](" not in line for line in tables)
    columns = [len(re.findall(r"(?<!\\)\|", line)) for line in tables]
    rules = [number for number, line in enumerate(tables) if set(line) <= set("|-:")]
    assert all(columns[number - 1] == columns[number] == columns[number + 1] for number in rules)


def test_shows_every_seed_mean_and_verdict(findings):
    reader, report = Reader(findings), make_report(findings)
    assert reader.count("circle", **{"class": "dot"}) == 5 * 7 + 5 * 6  # values, and differences but the baseline's
    assert reader.count("path", **{"class": "mean"}) == 7 + 6
    assert report.verdicts[0].sentences in reader.text
    assert report.verdicts[0].evidence in reader.text
    assert reader.text.count(report.banner) == 1 + len(report.primary_tables) + len(report.secondary_tables)
    assert reader.text.count("control: lacks gain") == 1 + len(report.main_tables)  # in the figure and below the name


def test_boxes_switch_the_lines_they_stand_for(findings):
    reader = Reader(findings)
    groups = [found["class"].split()[-1] for name, found in reader.elements if name == "g" and "data-points" in found]
    boxes = {found["id"] for name, found in reader.elements if name == "input"}
    assert groups
    assert set(groups) <= boxes
    assert all(f"section:has(#{box}:not(:checked)) .{box}{{display:none}}" in reader.page for box in boxes)


def test_those_behind_are_off_at_first():
    reader = Reader(sweep({"relu": 50.0} | {f"a{number}": 60.0 for number in range(9)}, steps=3))
    assert [("checked" in found) for name, found in reader.elements if name == "input"] == [True] * 7 + [False] * 3


def test_table_cells_carry_what_they_sort_by():
    found = sweep({"relu": 60.0, "arelu": 70.0})
    orders = [attributes["data-order"] for name, attributes in Reader(found).elements if name == "td"]
    mean = found.runs[found.runs["activation"] == "arelu"]["test/accuracy"].mean()
    assert float(orders[1]) == pytest.approx(mean, rel=1e-5)
    assert "nan" in orders  # the baseline has no difference


@pytest.mark.parametrize(
    "findings",
    [
        sweep({"relu": 60.0}),
        sweep({"relu": 60.0, "arelu": 60.0}, seeds=[3]),
        sweep({"arelu": 60.0, "elu": 60.0}, arm_sd=0.0, seed_sd=0.0),
        sweep(runs=pd.DataFrame()),
        sweep(runs=pd.DataFrame(), axes=("activation", "lr")),
    ],
    ids=["one arm", "one seed", "constant, no baseline", "nothing", "nothing, with rates"],
)
def test_little_to_show(findings):
    Reader(findings)


def figure_file(findings: Findings, name: str) -> ET.Element:
    """The root of a figure's file, after reading it as XML."""
    return ET.fromstring(written(findings)[f"{name}.svg"])  # noqa: S314 - our own


def test_files_hold_the_shapes_of_the_page():
    """The same coordinates, lines and points, drawn once."""
    findings = sweep(steps=4, lrs=(0.001, 0.01, 0.1))
    reader = Reader(findings)
    shapes = {
        (name, found.get("points") or found.get("cx"))
        for name, found in reader.elements
        if name in ("polyline", "polygon", "circle")
    }
    drawn = set()
    for text in (text for name, text in written(findings).items() if name.endswith(".svg")):
        for element in ET.fromstring(text).iter():  # noqa: S314 - our own
            name = element.tag.removeprefix(SVG)
            if name in ("polyline", "polygon", "circle"):
                drawn.add((name, element.get("points") or element.get("cx")))
    assert drawn == shapes


def test_files_stand_by_themselves():
    """Nothing is loaded, names are escaped, dark screens are thought of and paper is white."""
    root = figure_file(replace(sweep({"relu": 50.0, "<a> & $b$": 60.0}), title=HOSTILE), "arms")
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert HOSTILE in texts
    assert "<a> & $b$" in texts
    style = root.find(f"{SVG}style").text
    assert "prefers-color-scheme: dark" in style
    assert ".paper { fill: #fff; }" in style
    assert "var(" not in style  # programs other than browsers do not know it
    assert root.find(f"{SVG}script") is None


def test_arms_behind_are_grey_in_files_and_counted():
    root = figure_file(
        sweep({"relu": 50.0} | {f"a{number}": 60.0 for number in range(9)}, steps=3), "curve-validation-accuracy"
    )
    assert sum(element.get("class") == "behind" for element in root.iter(f"{SVG}g")) == 3
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert "Mean and 95 % t interval over n = 5 seeds; 3 more arms in grey." in texts
    assert sum(text in ("relu", *(f"a{number}" for number in range(9))) for text in texts) == 7  # the legend


def test_an_arm_without_a_result_is_called_so():
    findings = sweep({"relu": 60.0, "arelu": 70.0, "pau": 1.0})
    runs = findings.runs.copy()
    runs.loc[runs["activation"] == "pau", "test/accuracy"] = math.nan
    texts = [element.text for element in figure_file(replace(findings, runs=runs), "arms").iter(f"{SVG}text")]
    assert texts.count("no result") == 2  # no value and no difference
