"""The page of a report: escaping, groups of columns, settings and tables."""

import base64
import json
import shutil
import subprocess
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from jinja2 import UndefinedError
from PIL import Image

from everlight_experiments.report import writer as report
from everlight_experiments.report.writer import (
    PUBLISHED_GROUP,
    Column,
    Figure,
    Report,
    Section,
    Summary,
    Table,
    write_report,
)
from everlight_experiments.run_folder.options import in_words

COLUMNS = [
    Column("Method"),
    Column("Mean", "ours"),
    Column("Med", "ours"),
    Column("Mean", PUBLISHED_GROUP),
    Column("Med", PUBLISHED_GROUP),
]
SORTING = (Path(report.__file__).parent / "pages" / "sorting.js").read_text()
HOSTILE = '<script>alert("1 & 2")</script>'
RULE = ("Selection rule", "nothing was chosen")


class Page(HTMLParser):
    """Every tag with its attributes, and the texts of those that are requested."""

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
            for name, actual, text in self.texts
            if name == tag and attributes.items() <= actual.items()
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
    path = write_report(folder, f"Title {HOSTILE}", Report([("Data", HOSTILE), RULE], sections))
    assert path == folder / "report.html"
    return path.read_text(encoding="utf-8")


def test_the_page_needs_nothing_but_itself(written, folder):
    page = Page(written)
    assert "http://" not in written
    assert "https://" not in written
    assert not {"link", "iframe", "object"} & {tag for tag, _ in page.tags}
    sources = [attributes["src"] for _, attributes in page.tags if "src" in attributes]
    assert len(sources) == 1
    prefix, encoded = sources[0].split(",")
    assert prefix == "data:image/png;base64"
    assert base64.b64decode(encoded) == (folder / "plot.png").read_bytes()
    assert not any("href" in attributes for _, attributes in page.tags)


def test_text_from_outside_is_escaped_everywhere(written):
    page = Page(written)
    assert page.texts_of("script") == [SORTING.strip()]
    assert page.texts_of("h1") == [f"Title {HOSTILE}"]
    assert page.texts_of("dd") == [HOSTILE, RULE[1]]
    assert f"Read {HOSTILE}." in page.texts_of("p")
    assert HOSTILE in page.texts_of("td")
    assert page.texts_of("h2") == ["Results & more", "Pictures", "Settings and versions"]
    (image,) = [attributes for tag, attributes in page.tags if tag == "img"]
    assert image["alt"] == 'A "plot"'


def test_options_and_text_between_backticks_are_code(folder):
    section = Section("Words", ["Give `everlight run <x>` --seeds 3, well--known."])
    page = write_report(folder, "Title", Report([RULE], [section])).read_text()
    code = "<code>everlight run &lt;x&gt;</code> <code>--seeds</code>"
    assert f"<p>Give {code} 3, well--known.</p>" in page


def test_the_papers_columns_are_set_apart_and_measured_ones_are_not(written):
    page = Page(written)
    reference = {"class": "paper"}
    assert page.texts_of("td", **reference) == ["–", "–", "2.11", "1.46"]
    assert page.texts_of("th", **reference) == ["paper", "Mean", "Med"]
    measured = [text for tag, actual, text in page.texts if tag == "td" and "class" not in actual]
    assert measured == ["Net", "1.50", "1.20", HOSTILE, "1.71", "1.31"]


def test_groups_span_their_columns_and_the_best_row_is_strong(written):
    page = Page(written)
    spans = [a["colspan"] for tag, a in page.tags if tag == "th" and "colspan" in a]
    assert spans == ["1", "2", "2"]
    rows = [a.get("class") for tag, a in page.tags if tag == "tr"]
    assert rows == ["groups", None, "strong", None]


def test_groups_are_runs_of_neighbors():
    names = ["a", "a", "b", "a"]
    table = Table("", [Column(str(i), group) for i, group in enumerate(names)], [])
    assert table.groups == [("a", 2), ("b", 1), ("a", 1)]


def test_settings_are_shown_as_they_were(written, folder):
    (shown,) = Page(written).texts_of("pre")
    assert json.loads(shown) == json.loads((folder / "config.json").read_text())


def test_a_table_of_one_group_has_no_heading_row(folder):
    table = Table("c", [Column("a"), Column("b")], [["1", "2"]])
    page = Page(
        write_report(folder, "t", Report([RULE], [Section("s", items=[table])])).read_text()
    )
    assert [a.get("class") for tag, a in page.tags if tag == "tr"] == [None, None]


def test_a_row_longer_than_the_columns_is_refused(folder):
    table = Table("c", [Column("a")], [["1", "2"]])
    with pytest.raises(UndefinedError):
        write_report(folder, "t", Report([RULE], [Section("s", items=[table])]))
    assert not (folder / "report.html").exists()


def test_a_column_of_dashes_alone_is_left_out(folder):
    table = Table(
        "c",
        [Column("a"), Column("b"), Column("c", PUBLISHED_GROUP), Column("d", PUBLISHED_GROUP)],
        [["–", "–", "–", "1"], ["–", "2", "–", "–"]],
    )
    empty = Table("e", [Column("f"), Column("g")], [])
    page = Page(
        write_report(folder, "t", Report([RULE], [Section("s", items=[table, empty])])).read_text()
    )
    assert page.texts_of("th") == ["paper", "a", "b", "d", "f", "g"]
    assert page.texts_of("th", **{"class": "paper"}) == ["paper", "d"]
    assert page.texts_of("td", **{"class": "paper"}) == ["1", "–"]


def test_a_caption_defines_only_what_its_table_shows(folder):
    columns = [
        Column("method"),
        Column("a", meaning="A: first."),
        Column("b", meaning="B: second."),
        Column("c", meaning="A: first."),
    ]
    marks = {"flat": "Flat: all alike.", "edge": "Edge: at the end.", "–": "–: unknown."}
    table = Table(
        "Scores.", columns, [["m", "1 (flat)", "–", "2"], ["n", "3", "–", "4"]], marks=marks
    )
    page = Page(
        write_report(folder, "t", Report([RULE], [Section("s", items=[table])])).read_text()
    )
    assert page.texts_of("caption") == ["Scores. A: first. Flat: all alike."]


def test_the_summary_stands_before_all_sections(folder):
    summary = Summary(
        ("Which is best?", f"Best is {HOSTILE}."),
        Figure("the first figure", folder / "plot.png"),
        Table("the first table", [Column("a")], [["1"]]),
        ("A further sentence.",),
    )
    sections = [Section("s", ["below"])]
    page = Page(
        write_report(folder, "t", Report([("Data", "d"), RULE], sections, summary)).read_text()
    )
    texts = [text for tag, _, text in page.texts if tag not in ("title", "style")]
    assert texts[:2] == ["t", f"Which is best? Best is {HOSTILE}."]
    assert texts.index("the first figure") < texts.index("the first table") < texts.index("Data")
    assert texts.index("the first table") < texts.index("A further sentence.") < texts.index("Data")
    assert texts.index("Data") < texts.index("below")


def test_settings_are_stated_in_words():
    @dataclass
    class Settings:
        steps: int = 20_000
        learning_rate: float = 3e-3
        first_epochs: int | None = None
        new_optimizer: bool = True
        select: str = "best"

    assert in_words(Settings()) == (
        "steps 20,000, learning rate 0.003, new optimizer yes, select best"
    )


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node, to run the page's script")
@pytest.mark.parametrize(
    ("cells", "named", "up", "down"),
    [
        (
            ["10.5 ± 0.1", "–", "9.25 ± 3", "−1", "1,200", "not run", ".5", "2e-3"],
            False,
            ["−1", "2e-3", ".5", "9.25 ± 3", "10.5 ± 0.1", "1,200", "–", "not run"],
            ["1,200", "10.5 ± 0.1", "9.25 ± 3", ".5", "2e-3", "−1", "not run", "–"],
        ),
        (["1.50–2.00", "1.05–9", "12%"], False, ["1.05–9", "1.50–2.00", "12%"], None),
        (["2026-11-22", "2025-12-30", "2026-02-01"], False, None, None),
        (["Net 1460", "net 200", "GW", "10"], True, ["10", "GW", "net 200", "Net 1460"], None),
    ],
)
def test_columns_sort_as_numbers_where_they_are(cells, named, up, down):
    up = sorted(cells) if up is None else up
    down = up[::-1] if down is None else down
    program = SORTING + (
        f"const cells = {json.dumps(cells)};"
        "console.log(JSON.stringify([1, -1].map(sign => "
        f"[...cells].sort((a, b) => compareCells(a, b, sign, {json.dumps(named)})))));"
    )
    ran = subprocess.run(["node", "-e", program], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == [up, down]


def test_a_report_without_the_rule_of_selection_is_refused(folder):
    with pytest.raises(ValueError, match="the report 't' states no selection rule"):
        write_report(folder, "t", Report([("Data", "d")]))
