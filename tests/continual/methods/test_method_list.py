"""The list of methods against docstrings, memories and measured costs."""

import inspect
import re
import sys

import pytest

from docs.tools import make_methods
from docs.tools.measured import ROOT
from everlight.continual.methods.method import StrategyArguments
from everlight.continual.methods.method_list import method_rows
from everlight.continual.methods.registry import METHODS, ORDER

ROWS = {row.name: row for row in method_rows()}


def test_the_page_has_the_rows():
    text = make_methods.PAGE.read_text(encoding="utf-8")
    assert text == make_methods.render()
    assert f"| {' | '.join(ROWS['EWC'])} |" in text.splitlines()


def test_papers_are_those_of_docstrings_and_summaries():
    """They have the first author's name and the year; the glossary names forms in IIRC's paper."""
    glossary = (ROOT / "docs" / "pages" / "glossary.md").read_text(encoding="utf-8")
    for name, row in ROWS.items():
        factory = inspect.unwrap(METHODS[name].factory)
        if not row.year:
            file = factory.__module__.rpartition(".")[2]
            assert name in ("naive", "cumulative", "joint") or file not in ORDER
            continue
        message = f"{sys.modules[factory.__module__].__doc__} {METHODS[name].summary} {glossary}"
        author = re.split(r" et al\.| and |, ", row.paper)[0]
        assert re.search(rf"{author}\b[^()]{{0,60}}\b{row.year}", " ".join(message.split())), row


def test_stored_samples_are_those_of_the_arguments():
    """Their arguments change with the number of stored samples that a benchmark sets."""
    for name, method in METHODS.items():
        one, two = (
            method.row_arguments(StrategyArguments(1, 1, exemplars_per_class=n)) for n in (1, 2)
        )
        assert (one != two) == method.stores_samples, name
        assert ("samples" in ROWS[name].keeps.split(", ")) == method.stores_samples, name


def test_methods_that_keep_nothing_hold_no_memory():
    """The sizes are those of the traced memory in `docs/pages/costs.md`."""
    text = (ROOT / "docs" / "pages" / "costs.md").read_text(encoding="utf-8")
    held = dict(re.findall(r"^\| (.+?) \| [\d,]+ \| [\d.]+ \| ([\d,]+) \|", text, re.MULTILINE))
    assert len(held) > 50
    for name, size in held.items():
        assert (ROWS[name].keeps in ("nothing", "all samples")) == (size == "0"), name


@pytest.mark.parametrize(
    ("name", "applies"),
    [
        ("ER", "all benchmarks"),
        ("iCaRL", "disjoint classes, one label"),
        ("HAT", "task identity at test, named hidden layers"),
        ("RanPAC", "pretrained features, one label"),
        ("iCaRL-norm", "multi-label; in --methods all only with iirc"),
        ("TIES", "all benchmarks; in --methods all only with pretrained layers"),
    ],
)
def test_where_methods_apply(name, applies):
    assert ROWS[name].applies == applies


def test_rows_are_hashable_as_parts_of_keys():
    assert len({hash(method) for method in METHODS.values()}) > 50
