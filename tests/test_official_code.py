"""The table of official code names strategies and tests that exist."""

import re

import pytest

from docs.measured import ROOT
from everlight.continual import strategies

PAGE = (ROOT / "docs" / "official_code.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| [")]
STRATEGIES = ROOT / "lib" / "everlight" / "continual" / "strategies"


def cells_of(row):
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[3 : row.index("]")])
def test_a_row_names_a_strategy_file_and_tests_that_exist(row):
    name, equal, differs, tests, _ = cells_of(row)
    file = name[1 : name.index("]")]
    assert name == f"[{file}](../lib/everlight/continual/strategies/{file}.py)"
    assert "Equal to" in (STRATEGIES / f"{file}.py").read_text(encoding="utf-8").split('"""')[1]
    for cell in (equal, differs):
        assert cell[0].isupper()
        assert cell[-1] == "."
    # A file, then its tests; then perhaps another file.
    found = re.findall(r"`([^`]+)`", tests)
    assert found[0].endswith(".py")
    assert not found[-1].endswith(".py")
    for each in found:
        if each.endswith(".py"):
            source = (ROOT / each).read_text(encoding="utf-8")
        else:
            assert f"\ndef {each}(" in source


def test_a_row_that_was_read_again_has_the_date_and_the_commit():
    (header,) = [line for line in PAGE.splitlines() if line.startswith("| strategy")]
    assert cells_of(header)[-1] == "read again"
    signatures = [cells_of(row)[-1] for row in ROWS]
    for each in signatures:
        assert re.fullmatch(r"–|20\d\d-[01]\d-[0-3]\d [0-9a-f]{7}", each), each
    assert len({*signatures}) > 1


def test_every_strategy_file_has_one_row():
    names = [row[3 : row.index("]")] for row in ROWS]
    factories = [getattr(strategies, name) for name in strategies.__all__]
    assert sorted(names) == sorted({each.__module__.rsplit(".")[-1] for each in factories})
