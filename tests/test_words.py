"""Words: names are nouns, docstrings and help texts sentences, and texts use the field's terms.

A failure names the file, the line, the words that are there and those to write instead.
"""

import ast
import inspect
import re
from pathlib import Path

import pytest
import tyro

from everlight_experiments.cli import COMMANDS, options_type
from everlight_experiments.commands.benchmark_registry import BENCHMARKS
from tests.syntax_trees import (
    FOLDERS,
    MIGRATION,
    READER,
    ROOT,
    argument_names,
    assigned_names,
    fail_with_lines,
    syntax_trees,
)

pytestmark = READER
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs" / "pages").rglob("*.md")),
]
OPTIONS = [
    *((name,) for name in COMMANDS if name not in ("run", "tune")),
    ("tune", "digits"),
    *(("run", benchmark) for benchmark in BENCHMARKS),
]
"""Every command, and `run` with the configuration of every benchmark."""
BANNED = {
    *("ahead", "alone", "beside", "each", "every", "found", "given", "gone", "here", "how", "kept"),
    *("made", "needless", "needs", "own", "superfluous", "there", "wanted", "who", "whole"),
}
"""Words that are no name; names may have them beside a noun, such as `every_nth`."""
BANNED_CALLS = {
    *("absent", "alike", "away", "begun", "between", "both", "enough", "meet", "noted", "now"),
    *("once", "way", "ways"),
}
"""Words that are no name of a function or parameter."""
BANNED_FUNCTIONS = {"after", "left"}
"""Words that are no name of a function; as parameters they stand beside `before` and `right`."""
PREPOSITION = re.compile(r"_*(?:among|at|by|from|in|into|of|on|over|up_to)_")
"""Beginnings that no function of the library has."""
RETIRED = {
    *("asked", "judged", "light", "lights", "meant", "ours", "plan", "plans", "said"),
    *("strength", "strengths", "theirs", "told"),
}
"""Words that no name has, also as a part; terms of the field replaced them."""
OTHER_SPELLING = re.compile(r"(?!colour$).*(?:colour|grey|centre|neighbour|learnt)", re.IGNORECASE)
"""Spellings of prose, which names do not have; `colour` is a package."""
FRAGMENT = re.compile(
    r"(?:Of|By|What|Whether|Who|Which|From|With|That|Where|As|How|So that|Those|It|In the|Killed|"
    r"Takes|Numbers that)\b"
)
VERBS = re.compile(
    r"(?:Add|Answer|Apply|Begin|Bind|Build|Call|Change|Check|Close|Commit|Compare|Compile|Compute|"
    r"Convolve|Copy|Count|Cover|Create|Descend|Draw|Drive|End|Export|Fail|Fill|Flip|Give|Herd|"
    r"Ignore|Insert|Interpolate|Interrupt|Invert|Join|Kill|Let|Link|List|Load|Map|Measure|Minimize|"
    r"Normalize|Open|Parse|Patch|Permute|Plot|Pool|Predict|Prepare|Print|Put|Read|Record|Redraw|"
    r"Release|Render|Replace|Restore|Return|Run|Save|Scale|Send|Set|Split|Start|Store|Subtract|Sum|"
    r"Take|Time|Train|Update|Use|Wait|Wrap|Write|Yield)\b"
)
"""First words of docstrings of helpers in tests and benchmarks."""
HALF_SENTENCE = re.compile(r"(?:Also|And|Nor|Neither|Beside|Beyond|Unlike|Exactly|Done)\b")
"""First words of docstrings of tests that continue the test's name."""
MIN_WORDS = 4
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
"""Replacements of words that only this project used, by regular expression."""
PATTERNS = [
    (re.compile(pattern.replace(" ", r"\s+"), re.IGNORECASE), instead)
    for pattern, instead in WORDS.items()
]
SPELLING = {
    r"\w*(?:[ai]l|ar|er|im|ad|or|nt|min|ron)is(?:e[drs]?|ers?|ing|ations?)\b": "-ize, -ization",
    r"[Ll]earnt\b": "learned",
    r"[Hh]yperparameters?\b(?![:=(\]'])": "hyper-parameter",
    r"(?:[Cc]olor|[Nn]eighbor)(?:s|ed|ing|ful)?\b(?![:=(\]])": "colour, neighbour",
    r"(?<!right )[Cc]enter(?:s|ed)?\b(?![:=(\]]| left)": "centre",
    r"gray\b(?![:=(])": "grey (Gray World, Gray-Edge and Shades-of-Gray are names)",
}
"""Replacements of other spellings in prose; identifiers have color, center, gray."""
SPELLINGS = [(re.compile(rf"(?<![\w./-]){word}"), instead) for word, instead in SPELLING.items()]
FOREIGN_NAMES = re.compile(
    r"[Gg]eneralised|GENERALISED|SPO generalisation|and layer normalisation|sum-normalised|"
    r'spectral color research group|"[^"]{20,300}"'
)
"""Names in files of runs, of a group, and titles, which are spelled as they are."""
NO_LEADING_ZERO = re.compile(r"(?<![^\s(|±=,+<>~−–/-])\.\d+")
FORMER_NAMES = re.compile(r"^\|.*|`[^`]*`", re.MULTILINE)
"""Rows of tables and code, in which the page of migration has former names."""
CODE = re.compile(r"```.*?```|`(?:[^`\n]|\n(?!\n))*`|<style>.*?</style>", re.DOTALL)


@pytest.mark.parametrize("folder", [*FOLDERS, "tests"])
def test_names_are_nouns_of_the_field(folder):
    fail_with_lines(
        f"{path}:{line}: {name}; use a noun such as path, in American spelling"
        for path, tree in syntax_trees().items()
        if path.startswith(f"{folder}/")
        for line, name in assigned_names(tree)
        if not RETIRED.isdisjoint(_words(name))
        or name.strip("_").lower() in BANNED
        or OTHER_SPELLING.match(name)
    )


@pytest.mark.parametrize("folder", [*FOLDERS, "tests"])
def test_functions_and_parameters_are_no_adverbs(folder):
    fail_with_lines(
        f"{path}:{line}: {name}; name the value or the action"
        for path, tree in syntax_trees().items()
        if path.startswith(f"{folder}/")
        for line, name, banned in _called(tree)
        if name.strip("_") in banned
    )


def test_functions_of_the_library_begin_with_no_preposition():
    fail_with_lines(
        f"{path}:{node.lineno}: {node.name}; begin with a verb or name what it returns"
        for path, tree in syntax_trees().items()
        if path.startswith("lib/")
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and PREPOSITION.match(node.name)
    )


def _words(name):
    """Return the words of a name, in lower case."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_")


def _called(tree):
    """Yield line and name of every function and parameter, with the words that it must not be."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name):
                yield node.lineno, name, BANNED_CALLS | BANNED_FUNCTIONS
            case ast.arg(arg=name):
                yield node.lineno, name, BANNED_CALLS


def test_docstrings_begin_with_a_verb_or_a_subject():
    fail_with_lines(
        f"{path}:{node.lineno}: {text.strip()!r}; write a sentence with a verb or a subject"
        for path, tree in syntax_trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and (text := _text(node.value))
        if FRAGMENT.match(text.strip())
    )


def test_docstrings_of_helpers_begin_with_a_verb():
    fail_with_lines(
        f"{path}:{line}: {text!r}; write Return, Yield, Write, Check or another verb first"
        for path, line, name, text in _function_docstrings("tests", "benchmarks")
        if not name.startswith("test_") and not VERBS.match(text)
    )


def test_docstrings_of_tests_have_a_subject():
    fail_with_lines(
        f"{path}:{line}: {text!r}; write a sentence with a subject, or no docstring"
        for path, line, name, text in _function_docstrings("tests")
        if name.startswith("test_") and HALF_SENTENCE.match(text)
    )


def _function_docstrings(*folders):
    """Yield file, line and name of every documented function, and the docstring's summary."""
    for path, tree in syntax_trees().items():
        for node in ast.walk(tree) if path.startswith(folders) else ():
            if isinstance(node, ast.FunctionDef) and (text := ast.get_docstring(node)):
                yield path, node.body[0].lineno, node.name, text.splitlines()[0]


def test_comments_begin_with_a_verb_or_a_subject():
    fail_with_lines(
        f"{path}:{number}: {text!r}; write a sentence with a verb or a subject"
        for path, number, text in _comments("tests", "lib", "data_pipelines", "experiments")
        if FRAGMENT.match(text)
    )


def test_comments_of_tests_have_no_private_words():
    fail_with_lines(
        f"{path}:{number}: {problem}"
        for path, number, text in _comments("tests", "benchmarks")
        for _, problem in _problems(text)
    )


def _comments(*folders):
    """Yield file, number and text of every line that is a comment."""
    for path in (path for path in syntax_trees() if path.startswith(folders)):
        lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            if line.strip().startswith("# "):
                yield path, number, line.strip().removeprefix("# ")


def test_docstrings_describe_every_argument_by_its_name():
    documented = re.compile(r"^  (\S.*?):", re.MULTILINE)
    fail_with_lines(
        f"{path}:{node.lineno}: {node.name} describes {', '.join(named)}; its arguments are "
        f"{', '.join(arguments)}"
        for path, tree in syntax_trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        if "\nArgs:\n" in (text := ast.get_docstring(node) or "")
        if (named := ", ".join(documented.findall(_section(text, "Args"))).split(", "))
        if set(named) != set(arguments := argument_names(node))
    )


def _section(docstring, name):
    """Return the indented lines below a heading."""
    return re.match(r"(?:  .*\n|\n(?=  )|  .*$)*", docstring.split(f"\n{name}:\n")[1])[0]


@pytest.mark.parametrize("arguments", OPTIONS, ids=" ".join)
def test_help_texts_are_sentences_of_four_words_without_private_ones(arguments):
    command, *rest = arguments
    options = options_type(command, rest)
    texts = {
        action.option_strings[0] if action.option_strings else action.dest: re.split(
            r" \((?:default:|required|repeatable)", action.help or ""
        )[0]
        for action in tyro.extras.get_parser(options)._actions
        if "-h" not in action.option_strings
    }
    if arguments == ("paper core50",):  # Options of a configuration and of its parts are read.
        assert {"--orders", "--pretraining.epochs", "--nic.learning-rate"} <= set(texts)
    short = [name for name, text in texts.items() if len(text.split()) < MIN_WORDS]
    fail_with_lines(f"{name}: {texts[name]!r}; write {MIN_WORDS} words or more" for name in short)
    lines = [COMMANDS[command].summary, (inspect.getdoc(options) or "").partition("\n")[0]]
    wrong = [
        text for text in (*texts.values(), *lines) if not re.fullmatch(r"[A-Z].*\.", text, re.S)
    ]
    fail_with_lines(f"{text!r}; begin with a capital and end with a full stop" for text in wrong)
    texts["summary"] = inspect.getdoc(options) or ""
    fail_with_lines(f"{name}: {problem}" for name in texts for _, problem in _problems(texts[name]))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_have_no_private_words(page):
    text = page.read_text(encoding="utf-8")
    if page == MIGRATION:
        text = FORMER_NAMES.sub(lambda names: re.sub(r"[^\n]", " ", names[0]), text)
    fail_with_lines(f"{page.name}:{line}: {problem}" for line, problem in _problems(text))


@pytest.mark.parametrize("folder", [*FOLDERS, "tests"])
def test_texts_and_docstrings_have_no_private_words(folder):
    """Formats of f-strings, single words (keys), functions in texts and this file are left out."""
    words_themselves = Path(__file__).relative_to(ROOT).as_posix()
    for path, tree in syntax_trees().items():
        if not path.startswith(f"{folder}/") or path == words_themselves:
            continue
        nodes = list(ast.walk(tree))
        formats = [node.format_spec for node in nodes if isinstance(node, ast.FormattedValue)]
        left_out = {id(part) for spec in formats if spec for part in ast.walk(spec)}
        fail_with_lines(
            f"{path}:{node.lineno}: {problem}"
            for node in nodes
            if " " in (text := _text(node)) and id(node) not in left_out
            if not re.match(r"(?:import|from|def) ", text.lstrip())
            for _, problem in _problems(text)
        )


def _problems(text):
    """Yield the line of every private word and of every number without a leading zero."""
    prose = CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)
    for pattern, instead in PATTERNS:
        for match in pattern.finditer(text):
            words = " ".join(match[0].split())
            yield text.count("\n", 0, match.start()) + 1, f"{words!r}: write {instead}"
    for pattern, instead in SPELLINGS:
        for match in pattern.finditer(FOREIGN_NAMES.sub(lambda name: "_" * len(name[0]), prose)):
            yield text.count("\n", 0, match.start()) + 1, f"{match[0]!r}: write {instead}"
    for match in NO_LEADING_ZERO.finditer(prose):
        yield text.count("\n", 0, match.start()) + 1, f"{match[0]!r}: write '0{match[0]}'"


def _text(node):
    """Return the text of a constant; an empty one for other nodes."""
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return node.value if is_text else ""
