"""The table of official code names strategies and tests that exist."""

import re
from typing import get_args

import pytest

from docs import make_official_code
from docs.measured import ROOT
from everlight.continual import strategies
from everlight.continual.method import Needs
from everlight.continual.registry import METHODS, ORDER
from everlight.continual.replay_variants import VariantName

MEMORY = ("exemplars_per_class", "buffer_size", "replay_batch_size")
"""Arguments that the benchmark sets for all methods alike."""
ESTIMATES = ("samples", "importance_samples", "fisher_samples")
"""Numbers of samples from which a statistic is estimated, which are not part of a method."""
PAGE = (ROOT / "docs" / "official_code.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if "](../lib/everlight/continual/strategies/" in line]
STRATEGIES = ROOT / "lib" / "everlight" / "continual" / "strategies"


def cells_of(row):
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]


def file_of(row):
    return re.search(r"\[(\w+)\]", row)[1]


@pytest.mark.parametrize("row", ROWS, ids=file_of)
def test_a_row_names_a_strategy_file_and_tests_that_exist(row):
    _, link, equal, differs, _, tests, _ = cells_of(row)
    file = file_of(row)
    (path,) = STRATEGIES.rglob(f"{file}.py")
    assert link == f"[{file}](../{path.relative_to(ROOT).as_posix()})"
    assert "Equal to" in path.read_text(encoding="utf-8").split('"""')[1]
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
    """Rows of variants, which are not methods of their own, come last."""
    by_file = {}
    for method in METHODS.values():
        file = method.factory.__module__.rsplit(".")[-1]
        if file not in ORDER:  # Not published yet.
            continue
        by_file.setdefault(file, []).append(method.name.replace("*", r"\*"))
    found = {file_of(row): cells_of(row)[0].split(", ") for row in ROWS}
    variants = [f"`--variants {name}`" for name in get_args(VariantName)]
    expected = {**by_file, "replay_tricks": variants}
    assert list(found.items()) == list(expected.items())


def test_the_column_of_the_command_s_defaults_is_generated():
    assert make_official_code.render(PAGE) == PAGE
    (header,) = [line for line in PAGE.splitlines() if line.startswith("| method")]
    assert cells_of(header)[4] == make_official_code.COLUMN


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("EWC", ["penalty's step implicit, there explicit"]),
        ("ER", ["`replay_batch_size` 16, there 10", "batch size 16, there 10"]),
        ("SCR", ["`replay_batch_size` 16, there 100"]),
        # `scripts/run_sequence.sh` has ImageNet's network and that of later tasks.
        ("PackNet", ["`prune` 0.75, there 0.5, then 0.75", "there pretrained"]),
        ("X-DER-RPC", ["`past_constraint` True, there False", "epochs per task 5, there 50"]),
        (
            "RanPAC",
            [
                "`width` 1,000, there 10,000",
                "`ridge` 100 or 1,000 or 10,000 or 100,000 or 1,000,000, there validated",
            ],
        ),
        ("RanDumb", ["`width` 1,000, there 25,000"]),
        ("ReDo", ["`period` 1,000, there 200,000"]),
        ("ER-MKD", ["optimizer at a new task restarts, there continues"]),
        ("CBP", ["`replacement_rate` 1e-5 or 0.0001 or 0.001, there 0.0003"]),
        ("CoFiMA", ["batch size 16, there 128"]),
        # `train_continual.py` multiplies 0.03 by 128 / 256.
        ("L2P", ["batch size 16, there 128", "learning rate 0.01, there 0.015"]),
        # `imagenet_main.py` has ImageNet alone.
        ("BiC", ["batch size 16, there 256", "epochs per task 5, there 100"]),
    ],
)
def test_differences_of_the_command_by_hand(name, parts):
    """The command has batches of 16 in 5 epochs; the authors' values are those of their code."""
    found = make_official_code.differences(METHODS[name])
    for part in parts:
        assert part in found
    row = next(row for row in ROWS if name in cells_of(row)[0].split(", "))
    assert found in cells_of(row)[4]


def test_methods_of_one_row_with_other_values_have_a_part_each():
    (row,) = [row for row in ROWS if file_of(row) == "cwr"]
    first, second = cells_of(row)[4].split(". ")
    assert first.startswith("CWR, CWR as coded: `first_task_gain` 1, there 3; features the inputs")
    assert second.startswith("CWR+, CWR\\*: features the inputs")


def test_a_hyperparameter_among_the_candidates_is_no_difference():
    method = METHODS["SLCA"]
    assert "slow" not in make_official_code.differences(method)
    other = method._replace(authors={"slow": 0.5})
    expected = "`slow` 0.001 or 0.01 or 0.1 or 1, there 0.5"
    assert make_official_code.differences(other) == expected
    assert make_official_code.differences(method._replace(authors={})) == "–"
    same = method._replace(authors={"temperature": 0.1})
    assert make_official_code.differences(same) == "nothing known"
    with pytest.raises(ValueError, match="SLCA has no slows of the authors' values"):
        make_official_code.differences(method._replace(authors={"slows": 1}))


PUBLISHED = [name for name, method in METHODS.items() if method.published is not None]


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_row_has_all_known_values_of_its_authors(name):
    method = METHODS[name]
    needs = Needs(5, 10, 20, hyperparameter=method.published)
    for argument, value in method.arguments(needs).items():
        if argument in method.authors and argument not in MEMORY + ESTIMATES:
            theirs = method.authors[argument]
            assert value == theirs or isinstance(theirs, str), argument


def test_ridges_of_papers_at_other_widths_are_not_called_published():
    """RanDumb's 25,000, RanPAC's 10,000, and the 8,192 of ACIL and DS-AL; here 1,000."""
    for name in ("RanDumb", "RanPAC", "ACIL", "DS-AL"):
        method = METHODS[name]
        assert method.arguments(Needs(5, 10, 20))["width"] < method.authors["width"]
        assert method.published is None
