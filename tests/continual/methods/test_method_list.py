"""The list of methods against docstrings, memories and measured costs."""

import inspect
import re
import sys

import pytest

from docs.tools import make_methods
from docs.tools.measured import ROOT, pages_of_methods
from everlight.continual.methods.method import StrategyArguments
from everlight.continual.methods.method_list import method_rows
from everlight.continual.methods.registry import METHODS, ORDER

ROWS = {row.name: row for row in method_rows()}


def test_the_page_has_the_rows():
    text = make_methods.PAGE.read_text(encoding="utf-8")
    assert text == make_methods.render(), "python -m docs.tools.make_methods"
    row = next(line for line in text.splitlines() if line.startswith("| [EWC]"))
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells[0] == "[EWC](../../lib/everlight/continual/strategies/ewc.py)"
    assert cells[1:3] == [METHODS["EWC"].summary, "Kirkpatrick et al., PNAS 2017"]
    assert cells[3:5] == [ROWS["EWC"].keeps, ROWS["EWC"].applies]
    assert cells[5].startswith("[official code](official_code.md#ewc), [costs](costs.md#")


def test_the_page_links_every_page_with_a_measured_row():
    """Rows name methods in the first or second column, papers' "none" is finetuning."""
    pages = pages_of_methods()
    assert {"results/mnist_streams.md", "results/three_scenarios.md"} <= {*pages["naive"]}
    assert "results/two_cameras.md" not in set().union(*pages.values())
    assert not any("README" in page for links in pages.values() for page in links)


@pytest.mark.parametrize(
    ("name", "usual"),
    [
        ("LwF", "learning without forgetting"),
        ("DER", "dark experience replay"),
        ("GDumb", "greedy sampler and dumb learner"),
        ("iCaRL", "incremental classifier and representation learning"),
        ("ExpertGate", "expert gate"),
        ("streaming LDA", "SLDA"),
        ("nearest mean", "NCM"),
        ("LUCIR", "learning a unified classifier incrementally by rebalancing"),
        ("ER-tricks", "bag of tricks"),
        ("X-DER-RPC", "extended dark experience replay"),
        ("CLS-ER", "complementary learning systems"),
        ("naive", "finetuning"),
        ("CBP", "continual backpropagation"),
        ("PackNet", "prun"),
    ],
)
def test_a_search_for_a_usual_name_finds_the_row(name, usual):
    text = make_methods.PAGE.read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith(f"| [{name}]"))
    assert usual.casefold() in row.split(" | ")[1].casefold()


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
        ("HAT", "task identity at test, disjoint classes, named hidden layers"),
        ("RanPAC", "pretrained features, one label"),
        ("iCaRL-norm", "multi-label; in --methods all only with iirc"),
        ("TIES", "all benchmarks; in --methods all only with pretrained layers"),
    ],
)
def test_where_methods_apply(name, applies):
    assert ROWS[name].applies == applies


def test_rows_are_hashable_as_parts_of_keys():
    assert len({hash(method) for method in METHODS.values()}) > 50
