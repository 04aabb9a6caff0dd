"""The glossary has every name that reports and pages use without explanation."""

import re

from docs.tools.measured import ROOT
from everlight.color import ESTIMATORS
from everlight.continual.registry import METHODS, ORDER
from everlight.metrics import CRITERIA, WEIGHTINGS
from everlight_experiments.continual.metrics import DIAGNOSTICS
from everlight_experiments.plasticity.problems import ERROR, ONLINE, TESTED

PAGE = (ROOT / "docs" / "pages" / "glossary.md").read_text(encoding="utf-8")
ROWS = [line.split("|")[1:-1] for line in PAGE.splitlines() if re.match(r"\| (?!term )", line)]
TERMS = [term for row in ROWS for term in re.split(r", | \(|\)", row[0].strip()) if term]


def test_every_method_criterion_and_estimator_has_a_line():
    known = {term.casefold() for term in TERMS}
    published = [
        name
        for name, method in METHODS.items()
        if method.factory.__module__.rpartition(".")[2] in ORDER
    ]
    names = [*published, *CRITERIA, *WEIGHTINGS, *ESTIMATORS]
    # A name may be a longer form of a term: "CWR as coded", "iCaRL, herding".
    missing = [name for name in names if not {name.casefold(), name.split()[0].casefold()} & known]
    assert missing == []


def test_every_diagnostic_and_score_of_plasticity_has_a_line():
    known = {term.casefold() for term in TERMS}
    assert {name.casefold() for name in (*DIAGNOSTICS, ERROR, ONLINE, TESTED)} - known == set()


def test_a_line_has_a_term_and_a_meaning_and_no_term_comes_twice():
    assert all(len(row) == 2 and row[1].strip() for row in ROWS)
    assert sorted(TERMS) == sorted(set(TERMS))


def test_the_site_shows_it():
    assert "glossary.md" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
