"""The table of official code names strategies and tests that exist."""

import re

import pytest

from docs.measured import ROOT
from everlight.continual import strategies

PAGE = (ROOT / "docs" / "official_code.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| [")]
STRATEGIES = ROOT / "lib" / "everlight" / "continual" / "strategies"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[3 : row.index("]")])
def test_a_row_names_a_strategy_file_and_tests_that_exist(row):
    cells = (cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1])
    name, equal, differs, tests, read_again = cells
    file = name[1 : name.index("]")]
    assert name == f"[{file}](../lib/everlight/continual/strategies/{file}.py)"
    assert "Equal to" in (STRATEGIES / f"{file}.py").read_text(encoding="utf-8").split('"""')[1]
    for cell in (equal, differs):
        assert cell[0].isupper()
        assert cell[-1] == "."
    # The date of a second reading and the commit that was read, or neither.
    assert re.fullmatch(r"–|20\d\d-[01]\d-[0-3]\d [0-9a-f]{7}", read_again)
    # A file, then its tests; then perhaps another file.
    found = re.findall(r"`([^`]+)`", tests)
    assert found[0].endswith(".py")
    assert not found[-1].endswith(".py")
    for each in found:
        if each.endswith(".py"):
            source = (ROOT / each).read_text(encoding="utf-8")
        else:
            assert f"\ndef {each}(" in source


def test_every_strategy_file_has_one_row():
    names = [row[3 : row.index("]")] for row in ROWS]
    factories = [getattr(strategies, name) for name in strategies.__all__]
    assert sorted(names) == sorted({each.__module__.rsplit(".")[-1] for each in factories})
