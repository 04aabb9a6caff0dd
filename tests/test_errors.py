"""Errors of the library: every check raises `ArgumentError`, which commands show as one line."""

import ast
from pathlib import Path

import pytest

from everlight.checks import check_range
from everlight.errors import ArgumentError

LIBRARY = Path(__file__).parents[1] / "lib" / "everlight"


def raised(path: Path) -> list[int]:
    """Return the lines of a file that raise or subclass a bare ValueError."""
    lines = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        named = []
        if isinstance(node, ast.Raise):
            named = [node.exc.func if isinstance(node.exc, ast.Call) else node.exc]
        elif isinstance(node, ast.ClassDef):
            named = node.bases
        if any(isinstance(item, ast.Name) and item.id == "ValueError" for item in named):
            lines.append(node.lineno)
    return lines


def test_no_check_of_the_library_raises_a_bare_value_error():
    files = set(LIBRARY.rglob("*.py")) - {LIBRARY / "errors.py"}
    result = {str(path.relative_to(LIBRARY)): raised(path) for path in files}
    assert {name: lines for name, lines in result.items() if lines} == {}


def test_users_of_the_library_catch_it_as_a_value_error():
    with pytest.raises(ValueError, match="rate=-1") as caught:
        check_range("rate", -1.0, 0.0)
    assert type(caught.value) is ArgumentError
