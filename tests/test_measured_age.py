"""Ages of measured tables: which files make a table, and what counts as a change of them."""

import pytest

from docs.tools import measured, measured_age
from docs.tools.measured import ROOT, Entry, Table


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


def test_a_file_that_was_not_there_is_new():
    file = "docs/tools/measured_age.py"
    assert measured_age.changed([file], "HEAD~100000") == [f"{file} (new)"]
