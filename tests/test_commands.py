"""Commands of the pages and of docs/tools/measured.toml are those of today's version; none is run."""

import argparse
import importlib
import importlib.util
import re
import shlex

import pytest

from docs.tools.measured import ROOT, entries, pages
from everlight_experiments.cli import COMMANDS, options_of
from everlight_experiments.commands.grid import runs_of
from everlight_experiments.commands.tune import configs_of

PAGES = {**pages(), "BUILD_NOTES.md": ROOT / "BUILD_NOTES.md"}
PLACEHOLDERS = re.compile(r"\b(?:BENCHMARK|NAME)\b")
"""Words that stand for a name which the parser looks up."""
VARIABLE = re.compile(r"[A-Z_]+=")
CASES = ("case", "method")
"""Positional arguments of the programs of tests that name a row of their `CASES`."""
MEASURED = [
    pytest.param(command, id=f"{entry.page} {entry.heading} {number}")
    for entry in entries()
    for number, command in enumerate(entry.commands)
]


class Parsed(Exception):
    """Ends a program after its arguments were read."""


@pytest.mark.parametrize("command", MEASURED)
def test_commands_of_measured_tables_are_understood(command, monkeypatch):
    understand(command, monkeypatch)


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_pages_are_understood(page, monkeypatch):
    for command in commands_in(PAGES[page].read_text(encoding="utf-8")):
        understand(command, monkeypatch)


@pytest.mark.parametrize(
    "command",
    [
        "everlight rnu digits",
        "everlight run digits --metods EWC",
        "everlight run no-benchmark",
        "everlight tune facts --preset tiny",
        "everlight tune facts --vary net.learning-rate=0.1",
        "everlight grid --benchmarks digits --set net.epochs=3",
        "python -m benchmarks.speed no-case",
        "python -m benchmarks.speed fits --no-option",
        "python -m tests.no_module",
        "python -m benchmarks.gpu --no-option",
        "python docs/no_file.py",
        "make fits",
    ],
)
def test_others_are_refused(command, monkeypatch):
    with pytest.raises((AssertionError, ValueError, SystemExit)):
        understand(command, monkeypatch)


def test_commands_are_found_in_blocks_and_sentences():
    text = (
        "By `everlight run\ndigits --seeds 2` and `x`:\n\n```\neverlight demo   # a comment\n"
        "A=1 everlight paper iirc \\\n    --preset small && everlight data list\nmake demo\n```\n"
        "```python\neverlight = 1\n```\n`python -m benchmarks.speed fits` `python -m pip` "
        "`python -m benchmarks.gpu --table FILE`"
    )
    assert list(commands_in(text)) == [
        "everlight demo",
        "A=1 everlight paper iirc --preset small",
        "everlight data list",
        "everlight run digits --seeds 2",
        "python -m benchmarks.speed fits",
        "python -m benchmarks.gpu --table FILE",
    ]


def commands_in(text):
    """Yield the commands of the project in a page's blocks, then those in its sentences."""
    text = re.sub(r"```python\n.*?```", "", text, flags=re.DOTALL)
    blocks = re.findall(r"```\n(.*?)```", text, flags=re.DOTALL)
    found = [line for block in blocks for line in re.sub(r"\\\n\s*", "", block).splitlines()]
    sentences = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    found += [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", sentences)]
    for line in found:
        for command in re.sub(r"\s+# .*", "", line).split(" && "):
            if re.match(
                r"(?:[A-Z_]+=\S+ )*(?:everlight |python (?:docs/|-m (?:tests|benchmarks)\.))",
                command,
            ):
                yield command.strip()


def understand(command, monkeypatch):
    """Read a command with its program's parser.

    Raises:
      AssertionError: no such command, file or case.
      ValueError: an option or value that does not exist.
      SystemExit: an option of a program of tests that does not exist.
    """
    words = shlex.split(command)
    while VARIABLE.match(words[0]):
        words.pop(0)
    if words[0] == "everlight":
        understand_everlight(words[1:])
    elif words[:2] == ["python", "-m"]:
        understand_module(words[2], words[3:], monkeypatch)
    else:
        assert words[0] == "python", command
        assert (ROOT / words[1]).is_file(), command


def understand_everlight(words):
    whole = " ".join(words)
    if any(f"{name} ".startswith(f"{whole} ") for name in COMMANDS):
        return  # A command or a group that is named, without what it needs.
    name = next((name for name in COMMANDS if f"{whole} ".startswith(f"{name} ")), None)
    assert name, f"no command {whole}"
    rest = words[len(name.split()) :]
    if "--help" not in rest and not PLACEHOLDERS.search(whole):
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

    def parse_and_end(parser, given=None):
        raise Parsed(parse(parser, given))

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_end)
    with pytest.raises(Parsed) as parsed:
        module.main(words)
    given = vars(parsed.value.args[0])
    cases = {getattr(case, "name", case) for case in module.CASES}
    assert {each for key in CASES for each in given.get(key) or ()} <= cases, words
