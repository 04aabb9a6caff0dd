"""Links: the check of the built site's, and those that who reads the files follows."""

import re

import pytest

from docs.tools.check_links import broken_links
from docs.tools.measured import ROOT

PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/pages/guide/*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_of_a_clone(page):
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    own = [link for link in links if not link.startswith(("http://", "https://", "mailto:"))]
    assert [link for link in own if not (page.parent / link).exists()] == []


def test_on_the_site_they_lead_to_the_pages_made_of_these():
    to_made_pages = pytest.importorskip(
        "docs.site_pages", reason="needs the extra docs"
    ).to_made_pages
    strategies = "../../lib/everlight/continual/strategies"
    text = (
        f"[a]({strategies}/ewc.py) [b]({strategies}/__init__.py) [c](../../SECURITY.md#x) "
        "[d](data.md#e) [f](../../README.md) [g](https://h.i/ewc.py)"
    )
    assert to_made_pages(text, "guide/resuming.md") == (
        "[a](../strategies/ewc.md) [b](../strategies/index.md) [c](../security.md#x) "
        "[d](data.md#e) [f](../index.md) [g](https://h.i/ewc.py)"
    )
    assert to_made_pages("[a](tutorials/light.py)", "gallery.md") == "[a](tutorials/light.md)"


def test_links_that_lead_nowhere_are_found_and_no_others(tmp_path):
    (tmp_path / "guide").mkdir()
    (tmp_path / "picture 1.png").write_bytes(b"")
    (tmp_path / "index.html").write_text(
        '<h1 id="top">x</h1><a href="#top"></a><a href="guide/"></a><a href="https://a.b/c"></a>'
        '<img src="picture%201.png"><a href="guide/index.html#part"></a><a href="#none"></a>'
    )
    (tmp_path / "guide" / "index.html").write_text(
        '<a name="part" href="../index.html#top"></a><a href="../gone.html"></a><img src="no.png">'
    )
    count, broken = broken_links(tmp_path)
    assert count == 8
    assert broken == [
        "guide/index.html: ../gone.html",
        "guide/index.html: no.png",
        "index.html: #none",
    ]
