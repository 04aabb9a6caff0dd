"""Words of the command line as options: what the parser and the library refuse, in one line."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
import tyro

from everlight.errors import Argument, ArgumentError
from everlight_data.errors import DataError
from everlight_experiments import cli
from everlight_experiments.continual.benchmarks.run_data import SequenceId
from everlight_experiments.errors import UsageError
from everlight_experiments.usage import name_options, parse_options

NO_NUMBER = "--epochs: invalid literal for int() with base 10:"


@dataclass(frozen=True)
class Options:
    source: tyro.conf.Positional[Path]
    """Folder of the
    data."""
    epochs: int = 1
    sizes: tuple[int, int] | None = None
    kind: Literal["offline", "online"] = "online"
    kinds: tuple[Literal["NI", "NC"], ...] = ("NI",)
    published: bool = True
    output: Path = Path("corrected")
    lux: float | Path | None = None
    matrices: tuple[Path, ...] = ()


def test_options_are_read():
    words = ["here", "--sizes", "3", "4", "--no-published"]
    assert parse_options(Options, words) == Options(Path("here"), sizes=(3, 4), published=False)
    before = Options(Path("there"), epochs=7)
    changed = parse_options(Options, ["--published", "False"], default=before, flags=False)
    assert changed == Options(Path("there"), epochs=7, published=False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "SOURCE is missing: Folder of the data."),
        ("a --epochs", "--epochs has no value; give one."),
        ("a --epochs --kind online", "--epochs has no value; give one."),
        ("a --output=", "--output has no value; give one."),
        ("a --lux=", "--lux has no value; give one."),
        ("a --matrices=", "--matrices has no value; give one."),
        ("a --epochs 0x1", f"{NO_NUMBER} '0x1'; give --epochs INT."),
        (f"a --epochs {'9' * 70}x", f"{NO_NUMBER} '{'9' * 59}...; give --epochs INT."),
        ("a --sizes 3", "--sizes: give --sizes {None}|{INT INT}."),
        ("a --kind of", "no --kind 'of'; did you mean offline? There are offline, online."),
        ("a --kind x", "no --kind 'x'. There are offline, online."),
        ("a --epoch 5", "no option '--epoch'; did you mean --epochs or --source?"),
        ("a --Epo_chs=3", "no option '--Epo-chs'; did you mean --epochs?"),
        ("a --n_epochs 5", "no option '--n-epochs'; did you mean --epochs?"),
        ("a --wd 5", "no option '--wd'; did you mean --kind or --kinds?"),
        ("a b", "no option 'b'."),
        (f"a {'-' * 90} 3", f"no option '{'-' * 59}...."),
        ("a --kinds NO", "no --kinds 'NO'; did you mean NI or NC? There are NC, NI."),
    ],
)
def test_unparsable_options_are_named_with_the_remedy(words, message):
    with pytest.raises(UsageError) as refused:
        parse_options(Options, words.split())
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([Argument("epochs", 0, "Protocol"), "; give 1 or more"], "--epochs 0; give 1 or more"),
        ([Argument("select", "best"), ", and task 0"], "--select best, and task 0"),
        ([Argument("select", "the best")], "--select 'the best'"),
        (
            [Argument("boundaries", False), " needs ", Argument("select", "last")],
            "--no-boundaries needs --select last",
        ),
        ([Argument("boundaries", True), ";"], "--boundaries;"),
        ([Argument("first", 0, "Protocol"), "; give 1"], "--nc.first 0; give 1"),
        ([Argument("dropout", 2.0, index="[1]"), "; give 0 to 1"], "--dropout 2.0; give 0 to 1"),
        (["give ", Argument("later", 2), " steps"], "give later=2 steps"),
        (
            ["ewc: ", Argument("importance_samples", 0), "; give 1"],
            "ewc: importance_samples=0; give 1",
        ),
        (["give select='last'"], "give select='last'"),
    ],
)
def test_arguments_that_one_option_sets_are_named_by_it(parts, words):
    options = ["epochs", "select", "boundaries", "dropout", "nc.first", "nc.later", "ni.later"]
    assert name_options(ArgumentError(*parts), options) == words


@pytest.mark.parametrize(
    ("command", "words", "message"),
    [
        ("run", "digits --epochs 0", r"^--epochs 0; give 1 or more\. everlight run --help"),
        ("tune", "digits --evaluate-every -2", r"^--evaluate-every -2; give 1 or more"),
        ("run", "iirc --no-boundaries", r"^--select best needs boundaries; choose"),
        (
            "run",
            "digits --seeds 0",
            r"^--seeds 0; give 1 to 1,000\. everlight run --help lists all",
        ),
    ],
)
def test_a_part_that_refuses_a_value_is_named_by_its_option(command, words, message):
    with pytest.raises(UsageError, match=message):
        cli.options_of(command, words.split())


@pytest.mark.parametrize(
    "command",
    ["grid", "paper cl-metrics", "paper rethinking-er", "paper der", "paper three-scenarios"],
)
def test_validation_seeds_are_never_evaluated_on(command):
    assert SequenceId("evaluation", 0, 1_000).seed == SequenceId("validation", 0, 0).seed
    assert cli.options_of(command, ["--seeds", "1000"])
    with pytest.raises(DataError, match=r"^--seeds 1001; give 1 to 1,000"):
        cli.options_of(command, ["--seeds", "1001"])


def test_an_error_of_the_library_within_a_command_has_the_option_s_name(monkeypatch, capsys):
    def refusing(options):
        raise ArgumentError(Argument("buffer_size", 3), " of 2 samples", remedy=("give fewer",))

    monkeypatch.setattr("everlight_experiments.commands.run.run_benchmark", refusing)
    with pytest.raises(SystemExit, match=r"^error: --buffer-size 3 of 2 samples; give fewer$"):
        cli.main(["run", "digits"])
