"""Errors of the library: every check raises `ArgumentError`, which commands show as one line."""

import ast
import copy
import pickle
from pathlib import Path

import pytest

from everlight.checks import check_range
from everlight.continual import Protocol
from everlight.errors import Argument, ArgumentError

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


def pickled(error):
    return pickle.loads(pickle.dumps(error))


def test_no_check_of_the_library_raises_a_bare_value_error():
    files = set(LIBRARY.rglob("*.py")) - {LIBRARY / "errors.py"}
    result = {str(path.relative_to(LIBRARY)): raised(path) for path in files}
    assert {name: lines for name, lines in result.items() if lines} == {}


@pytest.mark.parametrize("copied", [lambda error: error, copy.copy, pickled])
def test_an_error_has_its_arguments_and_its_remedy(copied):
    with pytest.raises(ArgumentError) as caught:
        Protocol(select="best", boundaries=False)
    error = copied(caught.value)
    assert error.description[0] == Argument("select", "best")
    assert error.remedy[1] == Argument("select", "last")
    assert str(error) == "select='best' needs boundaries; choose select='last' for a stream without"
    with pytest.raises(ArgumentError) as caught:
        Protocol(batch_size=0)
    assert Argument("batch_size", 0, "Protocol") in copied(caught.value).parts
    assert str(copied(caught.value)) == "Protocol: batch_size=0; give 1 or more"


def test_users_of_the_library_catch_it_as_a_value_error():
    with pytest.raises(ValueError, match="rate=-1") as caught:
        check_range("rate", -1.0, 0.0)
    assert type(caught.value) is ArgumentError
