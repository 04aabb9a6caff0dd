"""The table of official code names strategies and tests that exist."""

import re
from typing import get_args

import pytest

from docs.measured import ROOT
from everlight.continual import strategies
from everlight.continual.registry import METHODS
from everlight.continual.replay_variants import VariantName

PAGE = (ROOT / "docs" / "official_code.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if "](../lib/everlight/continual/strategies/" in line]
STRATEGIES = ROOT / "lib" / "everlight" / "continual" / "strategies"


def cells_of(row):
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]


def file_of(row):
    return re.search(r"\[(\w+)\]", row)[1]


@pytest.mark.parametrize("row", ROWS, ids=file_of)
def test_a_row_names_a_strategy_file_and_tests_that_exist(row):
    _, link, equal, differs, tests, _ = cells_of(row)
    file = file_of(row)
    assert link == f"[{file}](../lib/everlight/continual/strategies/{file}.py)"
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
    (header,) = [line for line in PAGE.splitlines() if line.startswith("| method")]
    assert cells_of(header)[-1] == "read again"
    signatures = [cells_of(row)[-1] for row in ROWS]
    for each in signatures:
        assert re.fullmatch(r"–|20\d\d-[01]\d-[0-3]\d [0-9a-f]{7}", each), each
    assert len({*signatures}) > 1


def test_every_strategy_file_has_one_row():
    names = list(map(file_of, ROWS))
    factories = [getattr(strategies, name) for name in strategies.__all__]
    assert sorted(names) == sorted({each.__module__.rsplit(".")[-1] for each in factories})


def test_rows_name_their_methods_in_the_order_of_the_list_of_methods():
    """Rows of variants, which are no methods of their own, come last."""
    by_file = {}
    for method in METHODS.values():
        file = method.factory.__module__.rsplit(".")[-1]
        by_file.setdefault(file, []).append(method.name.replace("*", r"\*"))
    found = {file_of(row): cells_of(row)[0].split(", ") for row in ROWS}
    variants = [f"`--variants {name}`" for name in get_args(VariantName)]
    expected = {**by_file, "replay_tricks": variants}
    assert list(found.items()) == list(expected.items())
