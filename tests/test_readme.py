"""The README's snippet runs and prints what its comments say."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_snippet_prints_what_it_says(capsys):
    (snippet,) = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    exec(compile(snippet, "README.md", "exec"), {})
    promised = re.findall(r"print\(.*\) +# (.*)", snippet)
    assert capsys.readouterr().out.splitlines() == promised
    assert len(promised) == 2
