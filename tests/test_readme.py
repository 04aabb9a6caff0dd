"""The README's snippets run and print what their comments say."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


SNIPPETS = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_snippet_prints_what_it_says(snippet, capsys):
    exec(compile(snippet, "README.md", "exec"), {})
    promised = re.findall(r"print\(.*\) +# (.*)", snippet)
    assert capsys.readouterr().out.splitlines() == promised
    assert promised
