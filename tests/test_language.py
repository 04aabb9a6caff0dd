"""Plain language: docstrings are sentences, help texts say something, pages use the field's terms.

A failure names the file, the line, the words that were found and those to write instead.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import tyro

from everlight_experiments.cli import COMMANDS, options_type
from everlight_experiments.commands.benchmark_registry import BENCHMARKS

ROOT = Path(__file__).parents[1]
DOCUMENTED = [
    *sorted((ROOT / "lib" / "everlight").rglob("*.py")),
    *sorted((ROOT / "data_pipelines").rglob("*.py")),
    *sorted((ROOT / "experiments" / "everlight_experiments").rglob("*.py")),
    *sorted((ROOT / "benchmarks").rglob("*.py")),
    *sorted((ROOT / "docs").glob("*.py")),
]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "BUILD_NOTES.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "guide").glob("*.md")),
]
REPORTS = [
    path
    for path in sorted((ROOT / "experiments").rglob("*.py"))
    if re.search(r"report|tables?$|plots|findings", path.stem) or path.parent.name == "illuminant"
]
FRAGMENT = re.compile(r"(?:Of|By|What|Whether|Who|Which|From|With|That|Where|As)\b")
LEAST_WORDS = 4
OPTIONS = [
    *((name,) for name in COMMANDS if name not in ("run", "tune")),
    ("tune", "digits"),
    *(("run", benchmark) for benchmark in BENCHMARKS),
]
"""Every command, and `run` with the configuration of every benchmark."""
DEFAULT = re.compile(r" \((?:default:|required|repeatable)")
NEWLINE = "\n"
COUNTED = (
    r"(?:\d[\d,.]*|class|devices?|epochs?|exemplars?|features?|fold|images?|labels?|line|number|"
    r"operations?|page|places?|runs?|samples?|seconds?|steps?|table|terms?|units?)"
)
DIVIDED_BY = (
    r"(?:batch|benchmark|chip|class|core|day|device|epoch|event|folder|image|line|method|minute|"
    r"number|pixel|run|sample|scene|second|seed|step|strategy|task)"
)
WORDS = {
    r"\bnot[ -]told\b": "class-incremental (Class-IL)",
    r"(?<!\bnot[\s-])\btold\b": "task-incremental (Task-IL), or 'with the task identity'",
    r"\bunreported\b|\b(?:are|is) not reported\b": "validation (seeds, task orders, runs)",
    r"\btuning[ -]orders?\b": "validation seeds",
    r"\bgoodness\b": "metric",
    r"\bat hand\b": "available",
    r"\bc[ao]mes? out\b|\bcoming out\b": "the results show, equals, is measured as",
    r"\b(?:asked|said)\b": "evaluated on, requested, stated",
    r"\bno light shared\b": "unseen illuminants",
    r"\blights? (?:that (?:it|they) )?never (?:seen|saw)\b": "unseen illuminants",
    r"\bas it goes\b": "as possible",
    r"\b(?:for|of|by) who\b": "for people who, for users who",
    r"\bstrengths?\b": "the method's own name (regularization, ridge, shrinkage); hyper-parameter",
    rf"\b{COUNTED} an? {DIVIDED_BY}\b": "per (20 per class, seconds per run)",
    r"\bhonest\b": "held-out selection",
    r"\bpaper's rule\b": "test-set selection",
    r"\bsays? nothing\b": "uninformative",
    r"\bshades of gr[ae]y\b": "Shades-of-Gray (SoG)",
    r"\b(?-i:[Gg]r[ae]y world|Grey World)\b": "Gray World (GW)",
    r"\bfirst screen\b": "summary",
    r"(?<!-)\bscales? (?:demo|cpu|paper)\b": "preset (demo, small, paper)",
    r"--scenario\b": "--setting",
    r"--scale\b": "--preset",
    r"--rate\b": "--learning-rate",
    r"--exemplars(?!-per-class)\b": "--exemplars-per-class",
    r"\b(?:goes|go|went) on (?:at|in|from|after|to)\b": "continues, resumes",
    r"\banew\b": "again, redrawn, restarts",
    r"\bmend(?:ed)?\b": "correct, fix, repair",
}
"""What to write in the place of words that only this project used, by regular expression."""
PATTERNS = {
    re.compile(pattern.replace(" ", r"\s+"), re.IGNORECASE): instead
    for pattern, instead in WORDS.items()
}
NO_LEADING_ZERO = re.compile(r"(?<![^\s(|±=,+<>~−–/-])\.\d+")
STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)
CODE = re.compile(r"```.*?```|`(?:[^`\n]|\n(?!\n))*`", re.DOTALL)


def test_docstrings_begin_with_a_verb_or_a_subject():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]!r}"
        for path in DOCUMENTED
        for line, text in _docstrings(path)
        if FRAGMENT.match(text)
    ]
    _refuse(found, "write a sentence with a verb, or a noun phrase with its subject")


def test_docstrings_and_messages_have_no_private_words():
    found = [
        f"{path.relative_to(ROOT)}:{line + text.count(NEWLINE, 0, place)}: {problem}"
        for path in DOCUMENTED
        for line, text in (*_docstrings(path), *_texts(path))
        for place, problem in _words(text)
    ]
    _refuse(found)


@pytest.mark.parametrize("arguments", OPTIONS, ids=" ".join)
def test_every_option_has_a_help_text_of_four_words(arguments):
    texts = _help_texts(_options_type(arguments))
    found = [f"{name}: {text!r}" for name, text in texts.items() if len(text.split()) < LEAST_WORDS]
    _refuse(found, f"write {LEAST_WORDS} words or more")


@pytest.mark.parametrize("arguments", OPTIONS, ids=" ".join)
def test_help_texts_have_no_private_words(arguments):
    options = _options_type(arguments)
    texts = {"summary": inspect.getdoc(options) or "", **_help_texts(options)}
    _refuse(
        [
            f"{name}: {problem}"
            for name, text in texts.items()
            for _, problem in (*_words(text), *_numbers(text))
        ]
    )


def test_the_help_texts_of_configurations_are_read():
    """Options of parts of a configuration are checked too, with and without the part's name."""
    names = _help_texts(_options_type(("paper core50",)))
    assert {"--epochs", "--learning-rate"} <= set(_help_texts(_options_type(("run", "digits"))))
    assert {"--orders", "--pretraining.epochs", "--nic.learning-rate"} <= set(names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_have_no_private_words(page):
    text = page.read_text(encoding="utf-8")
    prose = CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)
    _refuse(
        [
            f"{page.relative_to(ROOT)}:{text.count(NEWLINE, 0, place) + 1}: {problem}"
            for place, problem in sorted((*_words(text), *_numbers(prose)))
        ]
    )


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_texts_of_reports_have_no_private_words(path):
    _refuse(
        [
            f"{path.relative_to(ROOT)}:{line}: {problem}"
            for line, text in _texts(path)
            for _, problem in (*_words(text), *_numbers(text))
        ]
    )


def test_the_lint_finds_private_words_and_leaves_others_alone():
    bad = "The task is not\ntold: 20 images a class, as it goes."
    assert [bad[: place + 9].count(NEWLINE) for place, _ in _words(bad)] == [1, 1, 1]
    assert len(list(_numbers("| .83 ± .01 | (.5) | 0.83 | 1.5 | v.2 | 1,.5"))) == 4
    good = "a strong one strengthened, a name to be retold, 20 per class, untold"
    assert [*_words(good), *_numbers(good)] == []


def _words(text: str) -> Iterator[tuple[int, str]]:
    """Yield the place of every private word, and the word to use instead."""
    for pattern, instead in PATTERNS.items():
        for match in pattern.finditer(text):
            yield match.start(), f"{' '.join(match[0].split())!r}: write {instead}"


def _numbers(text: str) -> Iterator[tuple[int, str]]:
    """Yield the place of every number without a leading zero."""
    for match in NO_LEADING_ZERO.finditer(text):
        yield match.start(), f"{match[0]!r}: write '0{match[0]}'"


def _docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield every string that stands alone as a statement: docstrings, and those of attributes."""
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Expr) and _is_text(node.value):
            yield node.lineno, inspect.cleandoc(node.value.value)


def _texts(path: Path) -> list[tuple[int, str]]:
    """Return every text of a file that users may read.

    Styles of HTML, formats of f-strings, docstrings and single words (keys) are left out.
    """
    tree = _tree(path)
    formats = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.FormattedValue) and node.format_spec
        for part in ast.walk(node.format_spec)
    }
    formats |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = (
        node
        for node in ast.walk(tree)
        if _is_text(node) and id(node) not in formats and " " in node.value
    )
    return [(node.lineno, STYLE.sub("", node.value)) for node in texts]


def _options_type(arguments: tuple[str, ...]) -> type:
    """Return the options of a command, those of its configuration among them."""
    command, *rest = arguments
    return options_type(command, rest)


def _help_texts(options: type) -> dict[str, str]:
    """Return the help text of every option, without its default."""
    return {
        action.option_strings[0] if action.option_strings else action.dest: DEFAULT.split(
            action.help or ""
        )[0]
        for action in tyro.extras.get_parser(options)._actions
        if "-h" not in action.option_strings
    }


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _refuse(found: list[str], instead: str = "") -> None:
    """Fail with one line per problem."""
    if found:
        pytest.fail("\n".join([f"{len(found)} to mend. {instead}", *found]), pytrace=False)
