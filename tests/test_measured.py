"""The manifest of measured tables agrees with the pages, and what strategies' pages repeat of them.

A table that fails here needs an entry in docs/tools/measured.toml, or, if it holds no measurement, a
place in `WITHOUT_MEASUREMENTS`.
"""

import datetime
import re
import subprocess
from collections.abc import Iterator

import pytest

from docs.tools import measured
from docs.tools.measured import Table
from everlight.continual.registry import METHODS

WITHOUT_MEASUREMENTS = {
    "api.md": "",
    "glossary.md": "",
    "guide/data.md": "",
    "guide/devices.md": r"\| switch \|",
    "guide/migrate.md": "",
    "guide/networks.md": r"\| (?:kind|methods) \|",
    "guide/papers.md": "",
    "guide/resuming.md": "",
    "licences.md": "",
    "methods.md": "",
    "official_code.md": "",
    "results/index.md": "",
    "README.md": r"\| folder \|",
    "guide/install.md": r"\| (?:extra|package) \|",
    "guide/plasticity.md": r"\| part \|",
    "guide/runner.md": r"\| (?:benchmark|part|status) \|",
    "performance.md": r"\| question \|",
}
"""Tables of terms, options, sources, published numbers alone and links, which need no entry: pages,
and a pattern of their headers."""
ENTRIES = measured.entries()
TABLES = measured.all_tables()
ONE_OF = ("command", "former", "missing")
PAGE = """# One
| method | error |
|---|---|
| EWC | 0.5 |

```
# no heading
| a |
|---|
```
| method | error |
| :--- | ---: |
| ER | 0.4 |
| SI | 0.3 |
end
"""
MANIFEST = """# Described here.
[[table]]
page = "a.md"
heading = "One"
first = "EWC"
command = "everlight demo"
commit = "0123456"
date = 2026-11-05
checksum = ""

[[table]]
page = "a.md"
heading = "One"
first = "ER"
missing = "By hand."
commit = "0123456"
date = 2026-11-15
since = "6543210"
checksum = "0000"
"""


def test_a_table_of_measured_numbers_has_one_entry_and_others_none():
    counts = {_name(table): _count(table) for table in TABLES}
    wanted = {_name(table): int(not _is_excepted(table)) for table in TABLES}
    assert {name: n for name, n in counts.items() if n != wanted[name]} == {}
    assert len(counts) == len(TABLES)


def test_an_entry_has_one_table():
    counts = [sum(measured.is_of(entry, table) for table in TABLES) for entry in ENTRIES]
    assert [entry for entry, n in zip(ENTRIES, counts, strict=True) if n != 1] == []


def test_every_exception_is_needed():
    excepted = {table.page for table in TABLES if _is_excepted(table)}
    assert excepted == set(WITHOUT_MEASUREMENTS)


def test_rows_are_those_that_were_measured():
    changed = [
        f"{entry.page}, {entry.heading}: {table.header}"
        for entry in ENTRIES
        for table in TABLES
        if measured.is_of(entry, table) and measured.checksum(table) != entry.checksum
    ]
    assert changed == [], (
        "write commit and date of the new numbers into docs/tools/measured.toml and run "
        "`python -m docs.tools.measured`"
    )


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda each: f"{each.page} {each.heading}")
def test_an_entry_names_what_made_the_table(entry):
    assert sum(bool(getattr(entry, field).strip()) for field in ONE_OF) == 1
    assert all(re.fullmatch(r"[0-9a-f]{8}", each) for each in _commits(entry))
    assert type(entry.date) is datetime.date


def test_commits_are_of_the_history_and_not_later_than_the_measurement():
    dates = _history()
    wrong = [
        (entry.heading, commit)
        for entry in ENTRIES
        for commit in _commits(entry)
        if dates.get(commit, datetime.date.max) > entry.date
    ]
    assert wrong == []


def test_former_commands_are_of_their_commit_and_of_no_later_version():
    _history()
    for entry in ENTRIES:
        if entry.former:
            module = re.search(r"python -m ([\w.]+)", entry.former)[1].replace(".", "/")
            files = (f"{module}.py", f"{module}/__main__.py")
            assert not any((measured.ROOT / file).exists() for file in files)
            assert _git("ls-tree", "--name-only", entry.commit, *files)


def test_tables_are_read_with_their_heading_and_place():
    first, second = measured.tables_in("a.md", PAGE)
    assert first == Table("a.md", "One", "| method | error |", "|---|---|", ("| EWC | 0.5 |",), 4)
    assert second.heading == "One"
    assert second.rows == ("| ER | 0.4 |", "| SI | 0.3 |")
    assert PAGE.splitlines()[second.end] == "end"


def test_checksums_alone_are_renewed():
    tables = list(measured.tables_in("a.md", PAGE))
    text, changed = measured.renewed(MANIFEST, tables)
    assert [entry.first for entry in changed] == ["EWC", "ER"]
    # `printf '| EWC | 0.5 |' | sha256sum`, and of the two rows with a new line between them.
    assert text == MANIFEST.replace('""', '"d71a1984713e"').replace('"0000"', '"b22b194ecfcb"')
    assert measured.renewed(text, tables) == (text, [])
    with pytest.raises(ValueError, match=r"0 tables of a\.md, One"):
        measured.renewed(MANIFEST, tables[:1])


def test_the_checksum_is_of_the_rows_and_not_of_their_widths():
    first, _ = measured.tables_in("a.md", PAGE)
    wide = first._replace(rows=("|  EWC | 0.5   |",), header="| other | header |")
    assert measured.checksum(wide) == measured.checksum(first)
    other = first._replace(rows=("| EWC | 0.6 |",))
    assert measured.checksum(other) != measured.checksum(first)


def test_a_page_says_below_a_table_what_made_it(tmp_path, monkeypatch):
    path = tmp_path / "measured.toml"
    path.write_text(MANIFEST, encoding="utf-8")
    monkeypatch.setattr(measured, "MANIFEST", path)
    first = "*Recorded 5 November 2026, commit 0123456: `everlight demo`.*"
    second = "*Recorded 15 November 2026, commit 0123456, oldest rows 6543210: By hand.*"
    wanted = PAGE.replace("| 0.5 |\n", f"| 0.5 |\n\n{first}\n")
    assert measured.with_sources(PAGE, "a.md") == wanted.replace("end\n", f"\n{second}\nend\n")
    assert measured.with_sources(PAGE, "b.md") == PAGE


def test_a_strategys_rows_stand_below_their_tables_heads():
    text = measured.measured_of("der_plus_plus")
    assert "[Costs of every strategy](../costs.md#costs-of-every-strategy):" in text
    assert "| strategy | task-incremental | class-incremental | online, one pass |" in text
    assert "| DER++ | 0.992 ± 0.004 | 0.931 ± 0.012 | 0.793 ± 0.067 |" in text
    assert "ER-ACE" not in text


def test_names_that_go_on_and_names_of_papers_are_known():
    text = measured.measured_of("balanced_replay")
    assert "\n| ER-balanced, 20 per class |" in text
    assert "\n| ER-infinite |" in measured.measured_of("unlimited_replay")
    assert "\n| ER |" not in text
    assert "\n| ER |" in measured.measured_of("experience_replay")
    assert "\n| finetune |" in measured.measured_of("naive")


def test_every_strategy_that_has_a_method_has_its_cost():
    costs = next(table for table in measured.tables() if table.page == "costs.md")
    # The benchmark whose steps are counted has one label a sample, and no pretrained network.
    left_out = {"several labels", "pretrained transformer"}
    wanted = [name for name, row in METHODS.items() if not left_out & {*row.demands}]
    assert [row.split("|")[1].strip() for row in costs.rows] == wanted
    assert [measured._file_of(row) for row in costs.rows][3:6] == ["ewc", "ewc", "si"]


def _name(table: Table) -> tuple[str, ...]:
    return (table.page, table.heading, table.header, *table.rows[:1])


def _count(table: Table) -> int:
    return sum(measured.is_of(entry, table) for entry in ENTRIES)


def _is_excepted(table: Table) -> bool:
    pattern = WITHOUT_MEASUREMENTS.get(table.page)
    return pattern is not None and re.match(pattern, table.header) is not None


def _commits(entry: measured.Entry) -> Iterator[str]:
    return filter(None, (entry.commit, entry.since))


def _history() -> dict[str, datetime.date]:
    """Return the dates of all commits by the first eight digits of their names."""
    if not (measured.ROOT / ".git").exists():
        pytest.skip("there is no history here")
    if _git("rev-parse", "--is-shallow-repository").strip() == "true":
        pytest.skip("the history was cut off")
    lines = _git("log", "--format=%H %as").splitlines()
    return {line[:8]: datetime.date.fromisoformat(line.split()[1]) for line in lines}


def _git(*words: str) -> str:
    command = ["git", "-C", str(measured.ROOT), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
