"""Names say what a thing is: words that fit everything are not names."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BANNED = {
    *("alone", "asked", "each", "every", "found", "given", "gone", "how", "kept", "ours", "own"),
    *("said", "theirs", "told"),
}


def names_in(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of every variable, argument, field, function and class of a file."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                yield node.lineno, name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield node.lineno, name


@pytest.mark.parametrize("root", ["lib", "data_pipelines", "experiments", "docs", "benchmarks"])
def test_names_are_nouns_of_the_field(root):
    vague = [
        f"{path.relative_to(ROOT)}:{line}: {name}; use a noun that says what it is, such as path"
        for path in sorted((ROOT / root).rglob("*.py"))
        for line, name in names_in(path.read_text())
        if name.strip("_").lower() in BANNED
    ]
    assert not vague, "\n".join(vague)


def test_all_kinds_of_names_are_read():
    source = """
class told:
    gone: int
    asked = said

def own(given, *, kept=1, how=2):
    found = [each for each in given]
    ours, theirs = found
    self.every = found
    with alone() as said:
        alone = said
"""
    assert {name for _, name in names_in(source)} >= BANNED
