"""Ages of measured tables: which files make a table, and what counts as a change of them."""

import subprocess
from pathlib import Path

import pytest

from docs.tools import measured, measured_age
from docs.tools.measured import ROOT, Entry, Table
from docs.tools.measured_age import EqualRun
from everlight_experiments.cli import Command


@pytest.mark.parametrize(
    ("text", "is_same"),
    [
        ('"""Other words."""\n\n\ndef f(x):\n    # Why.\n    return x + 1\n', True),
        ("def f(x):\n    return x + 2\n", False),
        ("def f(y):\n    return y + 1\n", False),
    ],
)
def test_words_and_layout_are_no_change(text, is_same):
    code = measured_age.code_of('def f(x):\n    """Words."""\n    return x + 1\n')
    assert (measured_age.code_of(text) == code) == is_same


@pytest.mark.parametrize(
    ("before", "after", "is_same"),
    [
        ("x = 1\n", "x: int = 1\n", True),
        ("x: int = 1\n", "x: float = 1\n", True),
        ("x: int = 1\n", "x: int = 2\n", False),
        ("class A:\n    x: int\n", "class A:\n    x: float\n", True),
        ("class A:\n    x: int\n", "class A:\n    y: int\n", False),
        ("def f():\n    return 1\n", "def f():\n    import a\n    return 1\n", True),
        ("if a:\n    import b\n", "if a:\n    from c import d\n", True),
        ("if a:\n    b = 1\n", "if a:\n    b = 2\n", False),
    ],
)
def test_types_and_imports_at_any_depth_are_no_change(before, after, is_same):
    assert (measured_age.code_of(before) == measured_age.code_of(after)) == is_same


@pytest.mark.parametrize(
    ("command", "folder"),
    [
        ("everlight paper iirc --preset small", "experiments/everlight_experiments/iirc"),
        ("everlight run digits --methods all", "experiments/everlight_experiments/images"),
        ("everlight cost", "experiments/everlight_experiments/commands/cost.py"),
        ("python -m benchmarks.speed replay", "benchmarks/speed"),
        ("python -m docs.tools.make_costs", "docs/tools/make_costs.py"),
        ("python another.py", ""),
    ],
)
def test_a_command_has_a_folder(command, folder):
    assert measured_age.folder_of(command) == folder
    assert not folder or (ROOT / folder).exists()


def test_every_command_of_the_manifest_has_a_folder():
    commands = [command for entry in measured.entries() for command in entry.commands]
    assert [command for command in commands if not measured_age.folder_of(command)] == []


def test_rows_bring_the_files_of_their_strategies_and_parts():
    table = Table("page.md", "Title", "| method | accuracy |", "|---|---|", ("| LwF | 1 |",), 3)
    entry = Entry("page.md", "Title", "", None, "", command="everlight paper facts")
    files = measured_age.files_of(entry, table)
    assert "experiments/everlight_experiments/facts/config.py" in files
    assert "lib/everlight/continual/strategies/lwf.py" in files
    assert "lib/everlight/continual/strategies/parts/distillation.py" in files


def test_the_longest_command_counts(monkeypatch):
    rows = {"data": Command("", "commands.data:a"), "data list": Command("", "facts.paper:b")}
    monkeypatch.setattr(measured_age, "COMMANDS", rows)
    folders = [measured_age.folder_of(f"everlight {words}") for words in ("data list", "database")]
    assert folders == ["experiments/everlight_experiments/facts", ""]


def test_parts_that_parts_import_are_files_of_a_strategy():
    path = "lib/everlight/continual/strategies/der_plus_plus.py"
    files = measured_age.with_imports([path])
    assert files > {path, *measured_age.imported_parts(path)}


def git_in(folder, *words):
    command = ("git", "-C", str(folder), "-c", "user.name=A", "-c", "user.email=a@b.c", *words)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_files_that_a_commit_lacks_or_has_otherwise_are_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(measured_age, "ROOT", tmp_path)
    for name in ("same.py", "other.py"):
        (tmp_path / name).write_text(f"{name[0]} = 1\n")
    git_in(tmp_path, "init", "--quiet")
    git_in(tmp_path, "add", "same.py", "other.py")
    git_in(tmp_path, "commit", "--quiet", "--message", "Two files")
    commit = git_in(tmp_path, "rev-parse", "HEAD")
    (tmp_path / "other.py").write_text("o = 2\n")
    (tmp_path / "new.py").write_text("n = 1\n")
    changed = measured_age.changed(["same.py", "other.py", "new.py"], commit)
    assert changed == ["other.py", "new.py (new)"]


def test_a_commit_that_the_clone_lacks_is_named(monkeypatch, capsys):
    monkeypatch.setattr(measured_age, "has_commit", lambda commit: False)
    measured_age.main(["results/iirc.md"])
    printed = capsys.readouterr().out
    assert printed.startswith("0 tables have the code of their commit\nnot in this clone")


def test_commits_of_the_clone_are_found():
    assert measured_age.has_commit("HEAD")
    assert not measured_age.has_commit("f" * 40)


def test_changes_between_commits_of_equal_arrays_do_not_count(tmp_path, monkeypatch):
    """Changes before the first commit and after the second one count, and code in between."""
    monkeypatch.setattr(measured_age, "ROOT", tmp_path)
    monkeypatch.setattr(EqualRun, "files", frozenset({"a.py"}))
    git_in(tmp_path, "init", "--quiet")
    commits = []
    for number in range(4):
        (tmp_path / "a.py").write_text(f"a = {number}\n")
        git_in(tmp_path, "add", "a.py")
        git_in(tmp_path, "commit", "--quiet", "--message", f"{number}")
        commits.append(git_in(tmp_path, "rev-parse", "HEAD"))
    first, second, third, last = commits
    for number, until, expected in (
        (second, last, []),
        (third, last, ["a.py"]),
        (first, last, ["a.py"]),
        (second, third, ["a.py"]),
    ):
        runs = [EqualRun("everlight run digits", second, until)]
        assert measured_age.changed(["a.py"], number, runs) == expected


def test_a_commit_whose_code_is_that_of_an_equal_run_is_covered(tmp_path, monkeypatch):
    """The run begins after a commit that changes another file."""
    monkeypatch.setattr(measured_age, "ROOT", tmp_path)
    monkeypatch.setattr(EqualRun, "files", frozenset({"a.py", "b.py"}))
    git_in(tmp_path, "init", "--quiet")
    commits = []
    for a, b in ((1, 1), (1, 2), (3, 3)):
        (tmp_path / "a.py").write_text(f"a = {a}\n")
        (tmp_path / "b.py").write_text(f"b = {b}\n")
        git_in(tmp_path, "add", "a.py", "b.py")
        git_in(tmp_path, "commit", "--quiet", "--message", f"{a}{b}")
        commits.append(git_in(tmp_path, "rev-parse", "HEAD"))
    runs = [EqualRun("everlight run digits", *commits[1:])]
    assert measured_age.changed(["a.py", "b.py"], commits[0], runs) == ["b.py"]


def test_rows_that_were_measured_apart_have_the_code_of_their_commit(monkeypatch):
    """ER's file changed since the commit of the table and not since that of its row."""
    table = Table("p.md", "Title", "| method |", "|---|", ("| ER |", "| LwF |"), 4)
    folder = "lib/everlight/continual/strategies"
    er, lwf = f"{folder}/experience_replay.py", f"{folder}/lwf.py"
    changes = {"old": {er, lwf}, "new": set()}
    monkeypatch.setattr(
        measured_age, "changed", lambda files, commit, runs: sorted(changes[commit] & set(files))
    )
    entry = Entry("p.md", "Title", "old", None, "")
    assert measured_age.changed_of(entry, table) == [er, lwf]
    assert measured_age.changed_of(entry._replace(rows={"new": ["ER"]}), table) == [lwf]


def test_equal_runs_have_the_files_of_their_command_and_strategies():
    run = EqualRun("everlight run digits --methods LwF 'online EWC' SGD", "", "")
    strategies = {path for path in run.files if path.startswith("lib/everlight/continual/strat")}
    assert {Path(path).stem for path in strategies} >= {"lwf", "ewc", "naive"}
    assert "experiments/everlight_experiments/images/config.py" in run.files


def test_an_equal_run_covers_no_file_of_a_method_that_it_does_not_train():
    """ExpertGate's file has ExpertGate-LwF too, which trains by LwF."""
    run = EqualRun("everlight run digits --methods ExpertGate", "", "")
    folder = "lib/everlight/continual/strategies"
    assert f"{folder}/lwf.py" in measured_age.imported_parts(f"{folder}/expert_gate.py")
    assert f"{folder}/expert_gate.py" in run.files
    assert f"{folder}/lwf.py" not in run.files
