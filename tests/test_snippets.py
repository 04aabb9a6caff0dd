"""The snippets of README and the guide run and print what their comments say."""

import io
import re
from functools import partial
from pathlib import Path

import matplotlib as mpl
import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SNIPPETS = [
    pytest.param(snippet, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, snippet in enumerate(
        re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    )
]


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_snippet_prints_what_it_says(snippet, tmp_path, monkeypatch):
    if "import equinox" in snippet:
        pytest.importorskip("equinox", reason="Equinox is not installed (the extra equinox)")
    monkeypatch.chdir(tmp_path)  # Some save a picture.
    mpl.use("Agg")
    said = io.StringIO()
    # What a run says of its progress is not the snippet's.
    named = {"print": partial(print, file=said), "__name__": "__main__"}
    exec(compile(snippet, "snippet", "exec"), named)
    promised = re.findall(r"print\(.*\) +# (.*)", snippet)
    assert said.getvalue().splitlines() == promised
    assert promised


def test_readme_can_be_read_in_one_go():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
