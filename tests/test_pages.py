"""Pages: where links lead, what snippets print, which commands, numbers and names stand there."""

import argparse
import datetime
import importlib
import io
import re
import shlex
import subprocess
from functools import partial
from typing import get_args

import matplotlib as mpl
import pytest

from docs.tools import make_api, make_official_code, make_speed_picture, measured
from docs.tools.measured import ROOT, Table
from everlight.color import ESTIMATORS
from everlight.continual.methods.registry import METHODS, ORDER
from everlight.continual.methods.replay_variants import VariantName
from everlight.metrics import CRITERIA, WEIGHTINGS
from everlight_experiments.cli import COMMANDS, options_of
from everlight_experiments.commands.grid import runs_of
from everlight_experiments.commands.tune import configs_of
from everlight_experiments.images.metrics import DIAGNOSTICS
from everlight_experiments.plasticity.problems import ERROR, ONLINE, TESTED

DOCS = ROOT / "docs" / "pages"
TEXTS = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (*ROOT.glob("*.md"), *sorted(DOCS.rglob("*.md")))
}
TUTORIALS = {path.relative_to(ROOT).as_posix(): path.read_text() for path in DOCS.rglob("*.py")}
MIGRATION = "docs/pages/migration.md"
"""The page of former names and commands."""
CODE_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
SNIPPETS = [
    pytest.param(snippet, id=f"{page}-{number}")
    for page, text in TEXTS.items()
    for number, snippet in enumerate(CODE_BLOCK.findall(text))
]


@pytest.mark.parametrize("page", [*TEXTS, *TUTORIALS])
def test_links_lead_to_files_of_a_clone(page):
    links = re.findall(r"\]\(([^)#\s]+)", (TEXTS | TUTORIALS)[page])
    inner = [link for link in links if not re.match(r"https?://|mailto:", link)]
    assert [link for link in inner if not ((ROOT / page).parent / link).exists()] == []


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_a_snippet_prints_what_its_comments_say(snippet, tmp_path, monkeypatch):
    if "import equinox" in snippet:
        pytest.importorskip("equinox", reason="Equinox is not installed (the extra equinox)")
    monkeypatch.chdir(tmp_path)  # Some save a picture.
    mpl.use("Agg")
    printed = io.StringIO()
    # Messages of progress are not the snippet's.
    names = {"print": partial(print, file=printed), "__name__": "__main__"}
    exec(compile(snippet, "snippet", "exec"), names)
    promised = re.findall(r"print\(.*\) +# (.*)", snippet)
    assert promised
    assert printed.getvalue().splitlines() == promised


def test_readme_can_be_read_in_one_go():
    assert len(TEXTS["README.md"].splitlines()) <= 120


def test_a_phone_breaks_no_line_of_readme_s_code_and_tables():
    text = TEXTS["README.md"]
    code = [
        line for block in re.findall(r"```.*?```", text, re.DOTALL) for line in block.split("\n")
    ]
    tables = list(measured.tables_in("README.md", text))
    rows = [
        re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", row) for t in tables for row in (t.header, *t.rows)
    ]
    assert code
    assert rows
    assert [line for line in code if len(line) > 72] == []
    assert [row for row in rows if len(row) > 60] == []


def test_readme_s_picture_of_speed_states_the_ratios_of_its_table():
    alt = re.search(r"!\[(Time of [^\]]*)\]", TEXTS["README.md"])[1]
    pairs = re.findall(r"([\d.]+) and ([\d.]+)", alt)
    assert [(float(a), float(b)) for a, b in pairs] == [
        pytest.approx(pair, abs=0.051) for pair in make_speed_picture.ratios().values()
    ]


# Commands: every one that stands on a page or in measured.toml is read by its program's parser.

COMMAND = re.compile(
    r"(?:[A-Z_]+=\S+ )*(?:everlight |python -m (?:tests|benchmarks|docs)\.|make [a-z])"
)
PLACEHOLDERS = re.compile(r"\b(?:BENCHMARK|NAME)\b")
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


class Parsed(Exception):
    """Ends a program after its arguments were read."""


@pytest.mark.parametrize("page", [name for name in TEXTS if name != MIGRATION])
def test_commands_of_pages_are_understood(page, monkeypatch):
    for command in commands_in(TEXTS[page]):
        understand(command, monkeypatch)


@pytest.mark.parametrize("entry", measured.entries(), ids=lambda entry: entry.heading)
def test_commands_of_measured_tables_are_understood(entry, monkeypatch):
    for command in entry.commands:
        understand(command, monkeypatch)


@pytest.mark.parametrize(
    "command", ["everlight rnu", "python -m benchmarks.speed no-case", "make fits"]
)
def test_other_commands_are_refused(command, monkeypatch):
    assert list(commands_in(f"By `{command}`.")) == [command]
    with pytest.raises((AssertionError, SystemExit)):
        understand(command, monkeypatch)


def commands_in(text):
    """Yield the commands of the project in a page's blocks, then those in its sentences."""
    text = CODE_BLOCK.sub("", text)
    blocks = re.findall(r"```\n(.*?)```", text, flags=re.DOTALL)
    lines = [line for block in blocks for line in re.sub(r"\\\n\s*", "", block).splitlines()]
    sentences = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    lines += [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", sentences)]
    for line in lines:
        for command in re.sub(r"\s+# .*", "", line).split(" && "):
            if COMMAND.match(command):
                yield command.strip()


def understand(command, monkeypatch):
    """Read a command with its program's parser, which raises an error for an unknown one."""
    words = shlex.split(command)
    while re.match(r"[A-Z_]+=", words[0]):
        words.pop(0)
    if words[0] == "everlight":
        understand_everlight(words[1:])
    elif words[0] == "make":
        assert words[1] in TARGETS, command
    else:
        understand_module(words[2], words[3:], monkeypatch)


def understand_everlight(words):
    full = " ".join(words)
    if any(f"{name} ".startswith(f"{full} ") for name in COMMANDS):
        return  # A command or a group that is named, without its arguments.
    name = next((name for name in COMMANDS if f"{full} ".startswith(f"{name} ")), None)
    assert name, f"no command {full}"
    rest = words[len(name.split()) :]
    if "--help" not in rest and not PLACEHOLDERS.search(full):
        options = options_of(name, rest)
        if name == "grid":
            runs_of(options)
        if name == "tune":
            configs_of(options)


def understand_module(name, words, monkeypatch):
    spec = importlib.util.find_spec(name)
    assert spec is not None, name
    if spec.submodule_search_locations is None:
        return
    module = importlib.import_module(f"{name}.__main__")
    parse = argparse.ArgumentParser.parse_args

    def parse_and_end(parser, arguments=None):
        raise Parsed(parse(parser, arguments))

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_end)
    with pytest.raises(Parsed) as parsed:
        module.main(words)
    options = vars(parsed.value.args[0])
    chosen = {*(options.get("case") or ()), *(options.get("method") or ())}
    assert chosen <= {getattr(case, "name", case) for case in module.CASES}, words


# Numbers: every table of measurements has its entry in measured.toml, and an entry its table.

WITHOUT_MEASUREMENTS = {
    "api.md": "",
    "glossary.md": "",
    "guide/camera_files.md": r"\| `--sidecars` \|",
    "guide/data.md": "",
    "guide/devices.md": r"\| switch \|",
    "guide/migrate.md": "",
    "guide/networks.md": r"\| (?:kind|methods) \|",
    "guide/papers.md": "",
    "guide/requests.md": "",
    "guide/resuming.md": "",
    "licences.md": "",
    "methods.md": "",
    "migration.md": r"\| old ",
    "official_code.md": "",
    "results/index.md": "",
    "guide/install.md": r"\| (?:extra|package) \|",
    "guide/plasticity.md": r"\| part \|",
    "guide/runner.md": r"\| (?:benchmark|option|part|preset|status) \|",
    "performance.md": r"\| question \|",
}
"""Pages with tables of terms, options, sources, published numbers alone and links, which need no
entry, and a pattern of their headers."""
ENTRIES = measured.entries()
TABLES = measured.all_tables()


def test_every_measured_table_has_one_entry_and_every_entry_one_table():
    excepted = [table for table in TABLES if is_excepted(table)]
    for table in TABLES:
        count = sum(measured.names_table(entry, table) for entry in ENTRIES)
        assert count == int(table not in excepted), f"{table.page}, {table.heading}: {count}"
    for entry in ENTRIES:
        count = sum(measured.names_table(entry, table) for table in TABLES)
        assert count == 1, f"{entry.page}, {entry.heading}: {count} tables"
    assert {table.page for table in excepted} == set(WITHOUT_MEASUREMENTS)


def is_excepted(table: Table) -> bool:
    pattern = WITHOUT_MEASUREMENTS.get(table.page)
    return pattern is not None and re.match(pattern, table.header) is not None


def test_rows_are_those_that_were_measured():
    text = measured.MANIFEST.read_text(encoding="utf-8")
    _, changed = measured.renew_manifest(text, TABLES)
    assert [f"{entry.page}, {entry.heading}" for entry in changed] == [], (
        "write commit and date of the new numbers into docs/tools/measured.toml and run "
        "`python -m docs.tools.measured`"
    )


def test_entries_name_a_command_and_commits_of_the_history():
    dates = history()
    for entry in ENTRIES:
        assert bool(entry.command.strip()) != bool(entry.missing.strip()), entry
        assert type(entry.date) is datetime.date
        for commit in filter(None, (entry.commit, entry.since)):
            assert re.fullmatch(r"[0-9a-f]{8}", commit), entry
            if dates is not None:
                assert dates.get(commit, datetime.date.max) <= entry.date, entry


def history():
    """Return the dates of all commits by the first eight digits; None for a cut-off history."""

    def git(*words):
        command = ("git", "-C", str(ROOT), *words)
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    is_cut = not (ROOT / ".git").exists()
    if is_cut or git("rev-parse", "--is-shallow-repository").strip() == "true":
        return None
    lines = git("log", "--format=%H %as").splitlines()
    return {line[:8]: datetime.date.fromisoformat(line.split()[1]) for line in lines}


def test_every_strategy_that_has_a_method_has_its_cost():
    costs = next(table for table in measured.tables() if table.page == "costs.md")
    # The benchmark whose steps are counted has one label per sample, and no pretrained network.
    left_out = {"multi-label", "pretrained transformer"}
    names = [name for name, row in METHODS.items() if not left_out & {*row.requirements}]
    assert [row.split("|")[1].strip() for row in costs.rows] == names


# Names: what the library has, the generated pages, the glossary and the table of official code.


def test_the_page_of_public_names_is_that_of_the_folders():
    assert make_api.PAGE.read_text("utf-8") == make_api.render(), "python -m docs.tools.make_api"
    for room in make_api.PACKAGES:
        names = importlib.import_module(f"everlight.{room}").__all__
        assert len(set(names)) == len(names), room


def test_the_glossary_has_every_name_of_reports_once():
    rows = re.findall(r"^\| (?!term )(.+?) \| (.+) \|$", TEXTS["docs/pages/glossary.md"], re.M)
    terms = [term for row, _ in rows for term in re.split(r", | \(|\)", row) if term]
    assert len(terms) > 100
    assert sorted(terms) == sorted(set(terms))
    names = [name for name, method in METHODS.items() if module_of(method.factory) in ORDER]
    names += [*CRITERIA, *WEIGHTINGS, *ESTIMATORS, *DIAGNOSTICS, ERROR, ONLINE, TESTED]
    known = {term.casefold() for term in terms}
    # A name may be a longer form of a term: "CWR as coded", "iCaRL, herding".
    assert [
        name for name in names if not {name.casefold(), name.split()[0].casefold()} & known
    ] == []


OFFICIAL = TEXTS["docs/pages/official_code.md"]
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in OFFICIAL.splitlines()
    if "/lib/everlight/continual/strategies/" in line
]
"""Cells: methods, file, equal to, differs in, the command's differences, tests, read again."""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_of_official_code_names_files_and_tests_that_exist(row):
    _, link, equal, differs, _, tests, read_again = row
    path = (DOCS / re.search(r"\]\((.*)\)", link)[1]).resolve()
    assert link.startswith(f"[{path.stem}]")
    assert "Equal to" in path.read_text(encoding="utf-8").split('"""')[1]
    assert all(re.fullmatch(r"[A-Z].*\.", cell) for cell in (equal, differs))
    assert re.fullmatch(r"–|20\d\d-[01]\d-[0-3]\d [0-9a-f]{7}", read_again)
    # A file, then its tests; then perhaps another file.
    source, names = "", re.findall(r"`([^`]+)`", tests)
    assert names
    for name in names:
        if name.endswith(".py"):
            source = (ROOT / name).read_text(encoding="utf-8")
        else:
            assert f"\ndef {name}(" in source, name


def test_official_code_has_every_published_method_in_the_order_of_the_list():
    """Rows of variants, which are no methods, come last."""
    by_file = {}
    for method in METHODS.values():
        if module_of(method.factory) in ORDER:
            by_file.setdefault(module_of(method.factory), []).append(method.name)
    by_file["replay_tricks"] = [f"`--variants {name}`" for name in get_args(VariantName)]
    rows = {re.search(r"\[(\w+)\]", row[1])[1]: row[0].replace(r"\*", "*") for row in ROWS}
    assert list(rows.items()) == [(file, ", ".join(names)) for file, names in by_file.items()]


def test_the_command_s_differences_from_official_code_are_generated():
    command = "python -m docs.tools.make_official_code"
    assert make_official_code.render(OFFICIAL) == OFFICIAL, command


def module_of(factory):
    return factory.__module__.rpartition(".")[2]


# Tests on an accelerator: the guide has the Makefile's selection.


def test_the_guide_and_the_makefile_select_the_same_tests_for_an_accelerator():
    makefile, guide = (ROOT / "Makefile").read_text(), TEXTS["docs/pages/guide/devices.md"]
    folders = re.search(r"^GPU_TESTS := (.*)$", makefile, re.MULTILINE)[1]
    assert f"{folders}\n" in guide
    for text in (makefile.split("\ntest-gpu:")[1], guide):
        assert '-m pytest -m "not slow and not cpu"' in text
    needs_a_cpu = re.compile(
        r"subprocess|\.compile\(\)\.as_text|num_cpu_devices|JAX_PLATFORMS|imagecodecs|jpeg_tree|"
        r"everlight_experiments\.cli"
    )
    for path in (path for folder in folders.split() for path in (ROOT / folder).rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        assert "@pytest.mark.cpu" in text or not needs_a_cpu.search(text), path
