import base64
import json
from html.parser import HTMLParser

import numpy as np
import pytest
from jinja2 import UndefinedError
from PIL import Image

from experiments.common.report import PAPER, Column, Figure, Section, Table, write_report

COLUMNS = [
    Column("Method"),
    Column("Mean", "ours"),
    Column("Med", "ours"),
    Column("Mean", PAPER),
    Column("Med", PAPER),
]
HOSTILE = '<script>alert("1 & 2")</script>'


class Page(HTMLParser):
    """Every tag with its attributes, and the texts of those that are asked for."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.texts, self.open = [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.open.append((tag, dict(attrs)))

    def handle_data(self, data):
        if data.strip():
            self.texts.append((*self.open[-1], data.strip()))

    def texts_of(self, tag, **attributes):
        return [
            text
            for name, found, text in self.texts
            if name == tag and attributes.items() <= found.items()
        ]


@pytest.fixture
def folder(tmp_path):
    config = {"settings": {"note": HOSTILE, "rate": 0.1}, "made_with": {}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    Image.fromarray(np.full((4, 6, 3), 200, np.uint8)).save(tmp_path / "plot.png")
    return tmp_path


@pytest.fixture
def written(folder):
    table = Table(
        "Angular errors.",
        COLUMNS,
        [["Net", "1.50", "1.20", "–", "–"], [HOSTILE, "1.71", "1.31", "2.11", "1.46"]],
        frozenset({0}),
    )
    sections = [
        Section("Results & more", [f"Read {HOSTILE}."], [table]),
        Section("Pictures", items=[Figure('A "plot"', folder / "plot.png")]),
    ]
    path = write_report(folder, f"Title {HOSTILE}", [("Data", HOSTILE)], sections)
    assert path == folder / "report.html"
    return path.read_text(encoding="utf-8")


def test_the_page_needs_nothing_but_itself(written, folder):
    page = Page(written)
    assert "http://" not in written
    assert "https://" not in written
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in page.tags}
    sources = [attributes["src"] for _, attributes in page.tags if "src" in attributes]
    assert len(sources) == 1
    prefix, encoded = sources[0].split(",")
    assert prefix == "data:image/png;base64"
    assert base64.b64decode(encoded) == (folder / "plot.png").read_bytes()
    assert not any("href" in attributes for _, attributes in page.tags)


def test_text_from_outside_is_escaped_everywhere(written):
    assert "<script" not in written
    page = Page(written)
    assert page.texts_of("h1") == [f"Title {HOSTILE}"]
    assert page.texts_of("dd") == [HOSTILE]
    assert f"Read {HOSTILE}." in page.texts_of("p")
    assert HOSTILE in page.texts_of("td")
    assert page.texts_of("h2") == ["Results & more", "Pictures", "Settings and versions"]
    (image,) = [attributes for tag, attributes in page.tags if tag == "img"]
    assert image["alt"] == 'A "plot"'


def test_the_papers_columns_are_set_apart_and_ours_are_not(written):
    page = Page(written)
    theirs = {"class": "paper"}
    assert page.texts_of("td", **theirs) == ["–", "–", "2.11", "1.46"]
    assert page.texts_of("th", **theirs) == ["paper", "Mean", "Med"]
    ours = [text for tag, found, text in page.texts if tag == "td" and "class" not in found]
    assert ours == ["Net", "1.50", "1.20", HOSTILE, "1.71", "1.31"]


def test_groups_span_their_columns_and_the_best_row_is_strong(written):
    page = Page(written)
    spans = [a["colspan"] for tag, a in page.tags if tag == "th" and "colspan" in a]
    assert spans == ["1", "2", "2"]
    rows = [a.get("class") for tag, a in page.tags if tag == "tr"]
    assert rows == ["groups", None, "strong", None]


def test_groups_are_runs_of_neighbours():
    names = ["a", "a", "b", "a"]
    table = Table("", [Column(str(i), group) for i, group in enumerate(names)], [])
    assert table.groups == [("a", 2), ("b", 1), ("a", 1)]


def test_settings_are_shown_as_they_were(written, folder):
    (shown,) = Page(written).texts_of("pre")
    assert json.loads(shown) == json.loads((folder / "config.json").read_text())


def test_a_table_of_one_group_has_no_heading_row(folder):
    table = Table("c", [Column("a"), Column("b")], [["1", "2"]])
    page = Page(write_report(folder, "t", [], [Section("s", items=[table])]).read_text())
    assert [a.get("class") for tag, a in page.tags if tag == "tr"] == [None, None]


def test_a_row_longer_than_the_columns_is_refused(folder):
    table = Table("c", [Column("a")], [["1", "2"]])
    with pytest.raises(UndefinedError):
        write_report(folder, "t", [], [Section("s", items=[table])])
    assert not (folder / "report.html").exists()
