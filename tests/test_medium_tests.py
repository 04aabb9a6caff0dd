"""The list of medium tests: it names tests and fixtures, and leaves every folder a quick test."""

import ast
from pathlib import Path

from tests.choose_medium import medium_tests
from tests.conftest import MEDIUM

ROOT = Path(__file__).parents[1]


def functions_in(path):
    """Return the functions of a file, by name, with the names of their parameters."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    functions = [node for node in body if isinstance(node, ast.FunctionDef)]
    return {node.name: {argument.arg for argument in node.args.args} for node in functions}


def test_the_list_names_tests_and_fixtures_and_leaves_every_folder_a_quick_test():
    files = [path.relative_to(ROOT) for path in ROOT.glob("tests/**/test_*.py")]
    functions = {
        f"{file.as_posix()}::{name}": (file, parameters)
        for file in files
        for name, parameters in functions_in(ROOT / file).items()
    }
    assert MEDIUM
    assert functions.keys() >= MEDIUM, "run tests/choose_medium.py again"
    quick = {
        file.parent
        for name, (file, parameters) in functions.items()
        if "::test_" in name
        and MEDIUM.isdisjoint({name, *(f"{file.as_posix()}::{fixture}" for fixture in parameters)})
    }
    assert quick == {file.parent for file in files}


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
