"""What the strategies' pages repeat of the tables."""

from docs import measured
from everlight.continual.registry import METHODS


def test_a_strategys_rows_stand_below_their_tables_heads():
    text = measured.measured_of("der_plus_plus")
    assert "[Costs of every strategy](../costs.md#costs-of-every-strategy):" in text
    assert "| strategy | task-incremental | class-incremental | online, one pass |" in text
    assert "| DER++ | 0.994 ± 0.004 | 0.935 ± 0.013 | 0.802 ± 0.046 |" in text
    assert "ER-ACE" not in text


def test_names_that_go_on_and_names_of_papers_are_known():
    text = measured.measured_of("balanced_replay")
    assert "\n| ER-balanced, 20 per class |" in text
    assert "\n| ER-infinite |" in measured.measured_of("cumulative")
    assert "\n| ER |" not in text
    assert "\n| ER |" in measured.measured_of("experience_replay")
    assert "\n| finetune |" in measured.measured_of("naive")


def test_every_strategy_that_has_a_method_has_its_cost():
    costs = next(table for table in measured.tables() if table.page == "costs.md")
    # The benchmark whose steps are counted has one label a sample.
    wanted = [name for name, row in METHODS.items() if "several labels" not in row.demands]
    assert [row.split("|")[1].strip() for row in costs.rows] == wanted
    assert [measured._file_of(row) for row in costs.rows][3:6] == ["ewc", "ewc", "si"]
