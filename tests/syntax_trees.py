"""The syntax trees of all Python files, and the names in them."""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("lib", "data_pipelines", "experiments", "docs", "benchmarks")
READER = pytest.mark.xdist_group("syntax trees")
"""Mark of tests that read the trees, so that one process parses them."""
MIGRATION = ROOT / "docs" / "pages" / "migration.md"


@cache
def syntax_trees():
    """Return the syntax trees of all files by their paths; names in tests follow rules too.

    They are parsed at the first call, and not in processes that only import this file.
    """
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for folder in (*FOLDERS, "tests")
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


def tree_of(path):
    """Return the syntax tree of one of these files."""
    return syntax_trees()[path.relative_to(ROOT).as_posix()]


def argument_names(function):
    """Return the names of all arguments but self and cls."""
    rest = (function.args.vararg, function.args.kwarg)
    positional = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    names = [argument.arg for argument in (*positional, *filter(None, rest))]
    return [name for name in names if name not in ("self", "cls")]


def assigned_names(tree):
    """Yield line and name of every variable, argument, field, function and class of a file."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                yield node.lineno, name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield node.lineno, name


def fail_with_lines(problems):
    """Fail with one line per problem."""
    if lines := list(problems):
        pytest.fail("\n".join([f"{len(lines)} to correct", *lines]), pytrace=False)
