"""The migration page: every new name that it gives exists."""

import ast
import re

from tests.syntax_trees import (
    MIGRATION,
    READER,
    argument_names,
    assigned_names,
    fail_with_lines,
    syntax_trees,
)

pytestmark = READER


def test_new_names_of_the_migration_page_exist():
    text = MIGRATION.read_text(encoding="utf-8")
    rows = [
        row
        for table in re.findall(r"\| old \| new \|\n\|---\|---\|\n((?:\|.*\n)*)", text)
        for row in table.splitlines()
    ]
    assert len(rows) > 100
    defined = _endings_of_dotted_names()
    fail_with_lines(
        f"{MIGRATION.name}: {row}: {item} is no module, name or argument"
        for row in rows
        for item in row.split("|")[2].strip().split(", ")
        if re.sub(r"\((\w+)=\)$", r".\1", item) not in defined
    )


def _endings_of_dotted_names():
    """Return `b.c` and `c` of every `a.b.c`, a module, name, attribute or argument."""
    names = []
    for path, tree in syntax_trees().items():
        if path.startswith("tests/"):
            continue
        parts = re.sub(r"(/__init__)?\.py$", "", path).split("/")
        module = ".".join(parts)
        names += [module, ".".join(parts[:-1]), *_dotted_names(module, tree.body)]
    dots = [(name, at.end()) for name in names for at in re.finditer(r"^|\.", name)]
    return {name[start:] for name, start in dots}


def _dotted_names(prefix, nodes):
    """Yield the names that statements define, import and take as arguments."""
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name):
                yield f"{prefix}.{name}"
                owner = prefix if name in ("__init__", "__call__") else f"{prefix}.{name}"
                yield from (f"{owner}.{argument}" for argument in argument_names(node))
            case ast.ClassDef(name=name):
                yield f"{prefix}.{name}"
                yield from _dotted_names(f"{prefix}.{name}", node.body)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                yield from (f"{prefix}.{alias.asname or alias.name}" for alias in aliases)
            case ast.Assign() | ast.AnnAssign():
                yield from (f"{prefix}.{name}" for _, name in assigned_names(node))
