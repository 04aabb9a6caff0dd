"""Print the measured tables whose code changed after the commit that made their oldest rows.

    python -m docs.tools.measured_age
    python -m docs.tools.measured_age results/iirc.md

The code of a table is the folder of its command, and the files of the strategies in its rows with
the parts that these import, themselves or by other parts. Renamed files are followed. Docstrings,
comments, layout, imports and annotations do not count as changes, nor do those between two commits
at which a smaller run of the same code has equal arrays (`equal_runs.toml`). Another change need
not change numbers: it is a reason to read the difference, or to measure again. Code that all
training shares, which changes often, is left out; `python -m tests.golden check --commit NUMBER`
compares the arrays of all commands with those of a commit.
"""

import ast
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from docs.tools import measured
from docs.tools.measured import OTHER_NAMES, ROOT, STRATEGIES, Entry, Table
from everlight.continual.methods.method import Method
from everlight.continual.methods.registry import METHODS
from everlight_experiments.cli import COMMANDS
from everlight_experiments.commands.benchmark_registry import BENCHMARKS
from everlight_experiments.images.benchmark import image_benchmarks

EXPERIMENTS = "experiments/everlight_experiments"
OF_BENCHMARKS = ("run", "tune", "grid")
"""Commands whose module only reads options; their code is that of the benchmark they name."""
EQUAL_RUNS = Path(__file__).with_name("equal_runs.toml")


@dataclass(frozen=True)
class EqualRun:
    """A command whose arrays are equal at two commits."""

    command: str
    commit: str
    until: str

    @cached_property
    def files(self) -> frozenset[str]:
        """Paths of the files that the command runs: of its folder, and of strategies it names.

        Without the files of other methods, of which a named one may import a part.
        """
        words = [OTHER_NAMES.get(word.casefold(), word) for word in shlex.split(self.command)]
        methods = [METHODS[word] for word in words if word in METHODS]
        named, of_methods = map(factory_files, (methods, METHODS.values()))
        files = files_with_strategies([self.command], methods)
        return frozenset(files) - (of_methods - named)

    def covers(self, file: str, commit: str) -> bool:
        """Return True if the command runs a file that has at a commit the code of its first one.

        A commit between its two with other code was not compared.
        """
        return (
            file in self.files
            and is_ancestor(commit, self.until)
            and code_at(file, commit) == code_at(file, self.commit)
        )


def main(pages: list[str]) -> None:
    """Print the entries of the pages, all without any, whose code changed; the rest is counted."""
    tables, runs, missing = measured.all_tables(), equal_runs(), set()
    known = {entry.page for entry in measured.entries()}
    if other := sorted(set(pages) - known):
        sys.exit(f"no measured table in {other[0]}; pages are {', '.join(sorted(known))}")
    equal = outside = 0
    for entry in measured.entries():
        if pages and entry.page not in pages:
            continue
        table = next(table for table in tables if measured.names_table(entry, table))
        lacking = {commit for commit in commits_of(entry) if not has_commit(commit)}
        missing |= lacking
        if lacking:
            continue
        if not entry.rows and not files_of(entry, table):
            outside += 1
            continue
        files = changed_of(entry, table, runs)
        equal += not files
        if files:
            print(f"{entry.page}, {entry.heading} ({entry.header or 'its table'})")
            print(f"  oldest rows: {commits_of(entry)[0]}, measured {entry.date}")
            print("".join(f"    {file}\n" for file in files), end="")
    print(f"{equal} tables have the code of their commit")
    if outside:
        print(f"{outside} were made by programs outside of the project, or by hand")
    if missing:
        print(f"not in this clone, so not compared: {', '.join(sorted(missing))}; fetch them")


def commits_of(entry: Entry) -> list[str]:
    """Return the commit of an entry's oldest rows, then those of rows that were measured apart."""
    return [entry.since or entry.commit, *entry.rows]


def changed_of(entry: Entry, table: Table, runs: Iterable[EqualRun] = ()) -> list[str]:
    """Return the files of a table that changed since the commits of its rows, with their notes.

    Args:
      entry: entry of the manifest.
      table: table of the entry.
      runs: commands with equal arrays, in the order of their commits.
    """
    oldest, *others = commits_of(entry)
    apart = [
        (commit, sorted(with_imports(factory_files(METHODS[name] for name in entry.rows[commit]))))
        for commit in others
    ]
    dates = [(oldest, files_of(entry, table)), *apart]
    return sorted({file for commit, files in dates for file in changed(files, commit, runs)})


def files_of(entry: Entry, table: Table) -> list[str]:
    """Return the paths of the files that make a table's oldest rows: its command's, its methods'.

    Args:
      entry: entry of the manifest; without a command only the strategies are known.
      table: table of the entry.
    """
    apart = {name for names in entry.rows.values() for name in names}
    names = {measured.method_of(table, row) for row in table.rows} - {None} - apart
    return files_with_strategies(entry.commands, [METHODS[name] for name in names])


def files_with_strategies(commands: Sequence[str], methods: Iterable[Method]) -> list[str]:
    """Return the paths of the files of commands, and of methods with the parts they import."""
    folders = [folder for command in commands if (folder := folder_of(command))]
    return [*python_files(folders), *sorted(with_imports(factory_files(methods)))]


def factory_files(methods: Iterable[Method]) -> set[str]:
    """Return the paths of the files of the methods' factories."""
    return {path_of(method.factory.__module__) for method in methods}


def folder_of(command: str) -> str:
    """Return the folder or file, relative to the root, of the program of a command; or ""."""
    words = [word for word in shlex.split(command) if "=" not in word or word.startswith("-")]
    if words[:2] == ["python", "-m"]:
        path = words[2].replace(".", "/")
        return path if (ROOT / path).is_dir() else f"{path}.py"
    named = [name for name in COMMANDS if words[1 : 1 + len(name.split())] == name.split()]
    if words[:1] != ["everlight"] or not named:
        return ""
    name = max(named, key=len)
    if name in OF_BENCHMARKS:
        named = [BENCHMARKS[word].make for word in words if word in BENCHMARKS]
        make = getattr(named[0], "func", named[0]) if named else image_benchmarks
        return f"{EXPERIMENTS}/{make.__module__.split('.')[1]}"
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


def with_imports(paths: Iterable[str]) -> set[str]:
    """Return files of strategies with the strategies and parts that they import at any depth."""
    files, open_paths = set(), set(paths)
    while open_paths:
        path = open_paths.pop()
        files.add(path)
        open_paths |= {*imported_parts(path)} - files
    return files


@cache
def imported_parts(path: str) -> tuple[str, ...]:
    """Return the files of strategies and their parts that a file imports by name."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    modules = {
        module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{STRATEGIES}.")
        for name in node.names
        for module in (node.module, f"{node.module}.{name.name}")
    }
    return tuple(sorted({path for path in map(path_of, modules) if (ROOT / path).exists()}))


@cache
def has_commit(commit: str) -> bool:
    """Return True if the clone has a commit; a shallow one may not have it."""
    return bool(_git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"))


def equal_runs() -> list[EqualRun]:
    """Return the commands that are known to have equal arrays at two commits of this clone."""
    with EQUAL_RUNS.open("rb") as file:
        runs = [EqualRun(**row) for row in tomllib.load(file)["equal"]]
    return [run for run in runs if has_commit(run.commit) and has_commit(run.until)]


@cache
def is_ancestor(commit: str, other: str) -> bool:
    """Return True if a commit is another one or was made before it."""
    return _git("merge-base", commit, other) == _git("rev-parse", commit)


def counted_since(file: str, commit: str, runs: Iterable[EqualRun]) -> str:
    """Return the commit since which changes of a file count, for a table of `commit`."""
    for run in runs:
        if run.covers(file, commit):
            commit = run.until
    return commit


def changed(files: list[str], commit: str, runs: Iterable[EqualRun] = ()) -> list[str]:
    """Return the files whose code differs from that of a commit, with a note on new files.

    Args:
      files: paths relative to the root.
      commit: commit of the table's oldest rows.
      runs: commands with equal arrays, in the order of their commits.
    """
    today = {file: code_of((ROOT / file).read_text(encoding="utf-8")) for file in files}
    since = {file: counted_since(file, commit, runs) for file in files}
    former = {file: code_at(file, number) for file, number in since.items()}
    return [
        file if former[file] is not None else f"{file} (new)"
        for file in files
        if today[file] != former[file]
    ]


def code_at(file: str, commit: str) -> str | None:
    """Return the code of a file of today at a commit, by its name there; None without it."""
    return former_code(commit, former_names(commit).get(file, file))


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
    return ast.dump(_CodeAlone().visit(ast.parse(text)))


class _CodeAlone(ast.NodeTransformer):
    """Removal of docstrings, imports and annotations at any depth."""

    def visit_Import(self, node: ast.Import) -> None:
        return None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        return None

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Return the assignment without its type; a field without a value keeps its name."""
        node = self.generic_visit(node)
        if node.value is None:
            return ast.Expr(node.target)
        return ast.Assign([node.target], node.value)


if __name__ == "__main__":
    main(sys.argv[1:])
