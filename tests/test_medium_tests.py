"""The list of medium tests: it names tests that exist, and leaves every file a quick one."""

import ast
from pathlib import Path

from tests.choose_medium import medium_tests
from tests.conftest import MEDIUM

ROOT = Path(__file__).parents[1]


def names_in(path):
    """Return the names of a file's tests."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    functions = [node for node in body if isinstance(node, ast.FunctionDef)]
    return {node.name for node in functions if node.name.startswith("test_")}


def test_the_list_names_tests_and_leaves_every_file_a_quick_one():
    files = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/**/test_*.py")}
    names = {f"{file}::{name}" for file in files for name in names_in(ROOT / file)}
    assert MEDIUM
    assert names >= MEDIUM, "run tests/choose_medium.py again"
    assert files == {name.partition("::")[0] for name in names - MEDIUM}


def test_long_tests_and_long_cases_are_medium():
    seconds = {
        ("a.py", "quick"): [0.1, 0.2],
        ("a.py", "long_case"): [0.1, 1.2],
        ("a.py", "many_cases"): [0.5] * 9,
        ("b.py", "long"): [3.0],
        ("b.py", "longer"): [5.0],
    }
    assert medium_tests(seconds) == [
        ("a.py", "long_case"),
        ("a.py", "many_cases"),
        ("b.py", "longer"),
    ]
