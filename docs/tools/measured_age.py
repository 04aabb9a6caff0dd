"""Print the measured tables whose code changed after the commit that made their oldest rows.

    python -m docs.tools.measured_age
    python -m docs.tools.measured_age results/iirc.md

The code of a table is the folder of its command, and the files of the strategies in its rows with
the parts that these import. Renamed files are followed. Docstrings, comments, layout, imports and
annotations do not count as changes. A change need not change numbers: it is a reason to read the
difference, or to measure again. Code that all training shares, which changes often, is left out;
`python -m tests.golden check --commit NUMBER` compares the arrays of all commands with those of a
commit.
"""

import ast
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

from docs.tools import measured
from docs.tools.measured import ROOT, STRATEGIES, Entry, Table
from everlight.continual.methods.registry import METHODS
from everlight_experiments.cli import COMMANDS

EXPERIMENTS = "experiments/everlight_experiments"
SHARED = {"run": "images", "tune": "images", "grid": "images"}
"""Folders of commands whose module only reads options."""


def main(pages: list[str]) -> None:
    """Print the entries of the pages, all without any, whose code changed; the rest is counted."""
    tables, equal = measured.all_tables(), 0
    for entry in measured.entries():
        if pages and entry.page not in pages:
            continue
        table = next(table for table in tables if measured.names_table(entry, table))
        oldest = entry.since or entry.commit
        files = changed(files_of(entry, table), oldest)
        equal += not files
        if files:
            print(f"{entry.page}, {entry.heading} ({entry.header or 'its table'})")
            print(f"  oldest rows: {oldest}, measured {entry.date}")
            print("".join(f"    {file}\n" for file in files), end="")
    print(f"{equal} tables have the code of their commit")


def files_of(entry: Entry, table: Table) -> list[str]:
    """Return the paths of the files that make a table: of its command, and of its rows' strategies.

    Args:
      entry: entry of the manifest; without a command only the strategies are known.
      table: table of the entry.
    """
    folders = [folder for command in entry.commands if (folder := folder_of(command))]
    names = {measured.method_of(table, row) for row in table.rows} - {None}
    modules = {METHODS[name].factory.__module__ for name in names}
    strategies = {path_of(module) for module in modules}
    parts = {part for path in strategies for part in imported_parts(path)}
    return [*python_files(folders), *sorted(strategies | parts)]


def folder_of(command: str) -> str:
    """Return the folder or file, relative to the root, of the program of a command; or ""."""
    words = [word for word in shlex.split(command) if "=" not in word or word.startswith("-")]
    if words[:2] == ["python", "-m"]:
        path = words[2].replace(".", "/")
        return path if (ROOT / path).is_dir() else f"{path}.py"
    name = next((name for name in COMMANDS if " ".join(words[1:]).startswith(name)), None)
    if words[:1] != ["everlight"] or name is None:
        return ""
    if name in SHARED:
        return f"{EXPERIMENTS}/{SHARED[name]}"
    path = Path(EXPERIMENTS, *COMMANDS[name].target.partition(":")[0].split("."))
    return f"{path}.py" if path.parent.name == "commands" else path.parent.as_posix()


def python_files(paths: tuple[str, ...] | list[str]) -> list[str]:
    """Return the Python files at paths and below them, relative to the root."""
    matches = [
        file
        for path in paths
        for file in ([ROOT / path] if path.endswith(".py") else sorted((ROOT / path).rglob("*.py")))
    ]
    return list(dict.fromkeys(file.relative_to(ROOT).as_posix() for file in matches))


def path_of(module: str) -> str:
    """Return the file of a module of the library."""
    return f"lib/{module.replace('.', '/')}.py"


@cache
def imported_parts(path: str) -> tuple[str, ...]:
    """Return the files of strategies and their parts that a file imports by name."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    modules = [
        f"{node.module}.{name.name}" if node.module.endswith("parts") else node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{STRATEGIES}.")
        for name in node.names
    ]
    return tuple(sorted({path for path in map(path_of, modules) if (ROOT / path).exists()}))


def changed(files: list[str], commit: str) -> list[str]:
    """Return the files whose code differs from that of a commit, with a note on new files."""
    today = {file: code_of((ROOT / file).read_text(encoding="utf-8")) for file in files}
    names = former_names(commit)
    former = {file: former_code(commit, names.get(file, file)) for file in files}
    return [
        file if former[file] is not None else f"{file} (new)"
        for file in files
        if today[file] != former[file]
    ]


@cache
def former_names(commit: str) -> dict[str, str]:
    """Return the paths that files of today had at a commit, where git finds that they moved."""
    lines = _git("diff", "-M40%", "-l0", "--diff-filter=R", "--name-status", commit, "--", "*.py")
    return {new: old for _, old, new in (line.split("\t") for line in lines.splitlines())}


@cache
def former_code(commit: str, file: str) -> str | None:
    """Return a file's code at a commit; None if the file was not there."""
    text = _git("show", f"{commit}:{file}")
    return code_of(text) if text else None


def _git(*words: str) -> str:
    """Return the output of git; empty where it fails, as for a file that was not there."""
    command = ("git", "-C", str(ROOT), *words)
    return subprocess.run(command, capture_output=True, check=False, text=True).stdout


@cache
def code_of(text: str) -> str:
    """Return a program's syntax tree as text, without docstrings, comments, imports and types."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [part for part in node.body if not _is_left_out(part)]
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
    return ast.dump(tree)


def _is_left_out(node: ast.stmt) -> bool:
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_text or isinstance(node, ast.Import | ast.ImportFrom)


if __name__ == "__main__":
    main(sys.argv[1:])
