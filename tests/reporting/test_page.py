from html.parser import HTMLParser

import pandas as pd
import pytest

from arelu_meta.reporting.content import content
from arelu_meta.reporting.page import page
from tests.reporting.sweeps import sweep

HOSTILE = '<script>alert("x")</script>&'


class Reader(HTMLParser):
    """Collects elements and text, and checks that every element is closed in its turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def count(self, tag: str, **attributes: str) -> int:
        return sum(name == tag and attributes.items() <= found.items() for name, found in self.elements)


@pytest.fixture(scope="module")
def findings():
    return sweep(steps=5, lrs=(0.01, 0.1), budget=0.1, missing=(f"elu {HOSTILE}",), question=HOSTILE)


def test_one_file_without_network(findings):
    text = page(content(findings))
    reader = Reader(text)
    assert "http" not in text
    assert "@import" not in text
    assert "url(" not in text
    assert not any({"src", "href"} & set(attributes) for _, attributes in reader.elements)
    assert "prefers-color-scheme: dark" in text
    assert reader.count("meta", name="viewport", content="width=device-width, initial-scale=1") == 1


def test_what_comes_from_outside_is_escaped(findings):
    reader = Reader(page(content(findings)))
    assert reader.count("script") == 1  # our own
    assert reader.text.count(HOSTILE) == 2


def test_shows_every_seed_mean_and_verdict(findings):
    said = content(findings)
    reader = Reader(page(said))
    assert reader.count("circle", **{"class": "dot"}) == 5 * 7 + 5 * 6  # values, and differences but the baseline's
    assert reader.count("path", **{"class": "mean"}) == 7 + 6
    assert said.verdicts[0].sentences in reader.text
    assert said.verdicts[0].grounds in reader.text
    assert reader.text.count(said.banner) == 1 + len(said.tables)


def test_boxes_switch_the_lines_they_stand_for(findings):
    text = page(content(findings))
    reader = Reader(text)
    groups = [found["class"].split()[-1] for name, found in reader.elements if name == "g" and "data-points" in found]
    boxes = {found["id"] for name, found in reader.elements if name == "input"}
    assert set(groups) <= boxes
    assert all(f"section:has(#{box}:not(:checked)) .{box}{{display:none}}" in text for box in boxes)


def test_table_cells_carry_what_they_sort_by():
    found = sweep({"relu": 60.0, "arelu": 70.0})
    reader = Reader(page(content(found)))
    orders = [attributes["data-order"] for name, attributes in reader.elements if name == "td" and attributes]
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
    ],
    ids=["one arm", "one seed", "constant, no baseline", "nothing"],
)
def test_little_to_show(findings):
    Reader(page(content(findings)))
