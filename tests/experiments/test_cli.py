"""The command line: what it cannot do it says in one line, without a traceback."""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass

import jax
import pytest
from jax.errors import JaxRuntimeError

from everlight.continual.methods.method_list import method_rows
from everlight.continual.methods.registry import METHODS
from everlight.errors import ArgumentError
from everlight.illuminant.image_model import UnsuitableImageError
from everlight_data.errors import DataError
from everlight_experiments import cli
from everlight_experiments.commands.methods import VALUES
from everlight_experiments.continual.training.hyperparameters import read_hyperparameters
from everlight_experiments.errors import UsageError
from everlight_experiments.usage import OTHER_NAMES, options_by_name

TRAINING = {
    "run": "run digits",
    "tune": "tune digits --vary epochs=1",
    **{
        name: name
        for name in cli.COMMANDS
        if name.startswith(("paper", "illuminant", "grid", "demo"))
    },
}
"""Command lines of all commands that train."""
for _name in ("estimate", "thumbnails", "export", "profile"):
    del TRAINING[f"illuminant {_name}"]


def refusal(capsys, *arguments):
    """Return the text of a refused command on both streams."""
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code not in (0, None)
    message = capsys.readouterr()
    text = f"{message.out}{message.err}{caught.value.code}"
    assert "Traceback" not in text
    return text


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVERLIGHT_DATA", raising=False)
    return tmp_path


@pytest.mark.parametrize("run", TRAINING.values(), ids=list(TRAINING))
def test_settings_of_all_runs_are_checked_first(capsys, somewhere, run):
    message = refusal(capsys, *run.split(), "--seed", "-1")
    assert message.startswith("error: --seed -1; give 0 to 2,147,483,647")
    assert not list(somewhere.iterdir())


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (f"paper facts --mid-scale.batch-size {10**12}", f"--mid-scale.batch-size {10**12}; give"),
        ("run digits --config", "--config has no value; give one."),
        ("paper two-camera --preset rendered-tiny", "did you mean rendered-demo"),
        (
            "paper two-camera --seeds 2",
            "--seeds is for nus and s20 presets, and --preset is rendered",
        ),
        ("paper two-camera --camera-pairs 2", "--camera-pairs is for rendered presets except"),
        ("paper two-camera --preset s20-demo --scenes 60", "--scenes is for rendered presets, and"),
        ("paper two-camera --preset nus-demo --block 3", "--block is for s20 presets, and"),
        ("data prepare core5 x.zip", "no data set 'core5'; did you mean 'core50'?"),
        ("data prepare imagenet x", "imagenet needs no preparation: put tasks 1 and 2"),
        ("paper two-camera --preset s20-small", "EVERLIGHT_DATA is not set"),
        ("illuminant calibrate nowhere", "nowhere/main is not a folder"),
        ("illuminant thumbnails nowhere --out a.npz", "nowhere is not a folder; give the one that"),
        (
            "illuminant export a.npz --tuning b.json --out c.json",
            "b.json does not exist. Give a tuni",
        ),
        ("illuminant export a.npz --tuning b.json --out c", "--out c: give the name of a file"),
        ("illuminant profile a.dng --illuminants A --out b", "ends in .dcp"),
        ("illuminant profile a.dng --illuminants A --out b.dcp", "a.dng does not exist"),
        (
            "illuminant pairs --preset demo --side 40",
            "--side is for photographs, and --preset demo",
        ),
        ("illuminant pairs", "give the photographs of both cameras, --main and --second"),
        (
            "grid --benchmarks facts core50-ni --setting online",
            "--setting is not for facts, core50-ni, which have their own",
        ),
        ("grid --benchmarks digits tiny-imagenet", "EVERLIGHT_DATA is not set"),
        ("illuminant estimate a.dng b.dng --model c", "needs no training: GW, SoG, GE-1"),
        (f"illuminant estimate a.png --model c --main-white-level 1{'0' * 400}", "--main-white-le"),
        ("run", "name a benchmark first; there are digits"),
        ("run tiny", "no benchmark 'tiny'; did you mean 'tiny-imagenet' or 'tiny-imagenet-64'?"),
        ("run images --data ./nowhere", "no data './nowhere'. There are 'digits'"),
        ("run digits --epochs one", "'one'; give --epochs INT. everlight run --help lists all"),
        ("run digits --methods naive,ER", "separate names by spaces, as in naive ER"),
        ("run digits --methods EWC --validation-fraction 0", "--validation-fraction 0 leaves"),
        (
            "run digits --methods EWC --hyperparameters EWC=1,1000001,1000000",
            "EWC has the hyper-parameters 1000000.0 and 1000001.0, whose training runs are both "
            "named 1e+06; give values that differ in six digits",
        ),
        ("grid --benchmarks facts facts:demo", "--benchmarks has facts and facts:demo; give each"),
        ("data prepare", "NAME is missing: Name of the data set;"),
        ("rnu", "There is no command 'rnu'; did you mean 'run'"),
        ("paper core5", "There is no command 'paper core5'; did you mean 'paper core50'"),
        ("export nowhere --to tensorboard", "nowhere/metrics.jsonl"),
        ("", "usage: everlight"),
    ],
)
def test_impossible_commands_are_one_line_and_leave_no_run(capsys, somewhere, command, message):
    output = refusal(capsys, *command.split())
    assert message in output
    *_, error = output.splitlines()
    assert not command or len(error) < 700
    assert not command or "usage:" not in output
    assert not list(somewhere.glob("runs/*"))


@pytest.mark.parametrize(
    ("command", "status", "lines"),
    [
        ("run digits --epochs one", 2, 1),
        ("run digits --epoch 5", 2, 1),
        ("run digits --seeds 0", 2, 1),
        ("rnu", 2, 1),
        ("report --runs nowhere", "error: --runs nowhere: no such folder", 0),
    ],
)
def test_unparsable_commands_end_with_status_2_and_one_line(capsys, command, status, lines):
    """A text as the status of `sys.exit` is printed, and the process ends with status 1."""
    with pytest.raises(SystemExit) as caught:
        cli.main(command.split())
    assert str(caught.value.code).startswith(str(status))
    assert len(capsys.readouterr().err.splitlines()) == lines


@pytest.mark.parametrize(
    "words",
    [
        ("run", "digits", "--methods", "x" * 100_000),
        ("run", "x" * 100_000),
        ("run", "digits", "--net", "mlp:" + ",".join(["1"] * 5_000)),
        ("run", "digits", "--data", "\x1b[31mred\x07" * 500),
    ],
)
def test_a_message_is_short_whatever_it_repeats(capsys, words):
    message = refusal(capsys, *words)
    assert message.startswith("error: ")
    assert len(message) < 1_600
    assert message.isprintable()


def test_values_too_deep_for_the_parser_are_refused(capsys):
    deep = "-" * 3_000 + "1"
    message = refusal(capsys, "run", "digits", f"--optimizer=adam:b1={deep}")
    assert "is neither a number nor NAME=NUMBER" in message
    message = refusal(capsys, "tune", "digits", "--vary", f"epochs={deep}", "--methods", "naive")
    assert "epochs" in message


def test_help_of_a_paper_lists_its_runs_with_a_line_each(capsys):
    cli.main(["illuminant", "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "usage: everlight illuminant COMMAND [options]"
    runs = ["dataset", "thumbnails", "profile", "train", "calibrate", "pairs", "estimate"]
    listed = [line.split() for line in lines[2 : 2 + len(runs)]]
    assert [line[:2] for line in listed] == [["illuminant", run] for run in runs]
    assert all(len(line) > 4 for line in listed)
    assert not any("continual" in line for line in lines)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_is_about_a_screen_and_all_help_describes_every_option(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    words = ["digits"] if name in ("run", "tune") else []
    kind = cli.options_type(name, [*words, "--help"])
    with pytest.raises(SystemExit) as ended:
        cli.main([*name.split(), *words, "--help"])
    text = capsys.readouterr().out
    assert ended.value.code is None
    assert len(text.splitlines()) <= 60
    assert max(map(len, text.splitlines())) <= 100
    for option in options_by_name(kind):
        parts = option.rpartition(".")
        flags = {f"--{option}", f"--[no-]{option}", f"--{''.join(parts[:2])}no-{parts[2]}"}
        assert (flags | {option.upper()}) & set(text.split()), option
    with pytest.raises(SystemExit):
        cli.main([*name.split(), *words, "--help-all"])
    assert len(capsys.readouterr().out.split()) > len(text.split()) - 30


def test_every_method_and_the_candidates_are_listed_as_options_take_them(capsys):
    cli.main(["methods"])
    listed, _, values = capsys.readouterr().out.partition(f"\n{VALUES}\n")
    _, *cells = (tuple(re.split(" {2,}", line)) for line in listed.splitlines())
    described = [(*row, METHODS[row.name].summary) for row in method_rows()]
    assert [row[0] for row in cells] == list(METHODS)
    assert cells == [tuple(filter(None, row)) for row in described]
    words = shlex.split(values)
    candidates = read_hyperparameters([word for word in words if "=" in word], METHODS.values())
    tuned = {name: row.hyperparameters for name, row in METHODS.items() if row.hyperparameters}
    assert candidates == tuned
    assert "ridge" in words[words.index("RanPAC=100,1000,10000,100000,1e+06") :]


@pytest.mark.parametrize("command", ["data list", "paper two-camera --preset rendered-small"])
@pytest.mark.parametrize("name", ["file", "x" * 5000, "~nobody-here/data"])
def test_a_data_folder_that_is_none_is_named(capsys, somewhere, monkeypatch, command, name):
    (somewhere / "file").write_text("")
    monkeypatch.setenv("EVERLIGHT_DATA", name)
    message = refusal(capsys, *command.split())
    assert f"error: EVERLIGHT_DATA={name[:20]}" in message


@dataclass(frozen=True)
class Nothing:
    """No settings."""


def fail(settings: Nothing):
    raise fail.error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (DataError("a\nb\n  c"), "error: a b c"),
        (ArgumentError("rate=-1;\n give more"), "error: rate=-1; give more"),
        (UnsuitableImageError("no pixels"), "error: no pixels"),
        (MemoryError(), "not enough memory"),
        (OSError(28, "No space left on device", "runs/x"), "error: runs/x: No space left on dev"),
        (OSError(5, "Input/output error"), "error: the output: Input/output error"),
        (OSError(13, "Permission denied", "x\x1b" * 50_000), r"error: x\x1bx"),
        (JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory"), "error: there is not enough memory"),
    ],
)
def test_errors_of_the_system_are_one_line(capsys, monkeypatch, error, message):
    monkeypatch.setattr(fail, "error", error, raising=False)
    monkeypatch.setattr(cli, "_import_target", lambda place: fail)
    monkeypatch.setitem(cli.COMMANDS, "test", cli.Command("A test.", "run"))
    output = refusal(capsys, "test")
    assert message in output
    assert len(output) < 1_800
    assert output.isprintable()


@pytest.mark.parametrize(
    "error", [ValueError("a is wrong"), TypeError("b is wrong"), IndexError("c"), KeyError("d")]
)
def test_faults_of_the_program_keep_their_traceback(monkeypatch, error):
    monkeypatch.setattr(fail, "error", error, raising=False)
    monkeypatch.setattr(cli, "_import_target", lambda place: fail)
    monkeypatch.setitem(cli.COMMANDS, "test", cli.Command("A test.", "run"))
    with pytest.raises(type(error)) as caught:
        cli.main(["test"])
    assert caught.value is error


@pytest.mark.parametrize(
    ("switch", "value", "shown"),
    [
        ("jax_numpy_dtype_promotion", "strict", "JAX_NUMPY_DTYPE_PROMOTION=strict"),
        ("jax_numpy_rank_promotion", "raise", "JAX_NUMPY_RANK_PROMOTION=raise"),
        ("jax_debug_infs", True, "JAX_DEBUG_INFS=True"),
        ("jax_transfer_guard", "disallow", "JAX_TRANSFER_GUARD=disallow"),
    ],
)
def test_an_error_under_a_switch_that_runs_do_not_support_names_it(
    switch, value, shown, monkeypatch
):
    def failing(options):
        raise TypeError("promotion")

    monkeypatch.setattr("everlight_experiments.commands.run.run_benchmark", failing)
    with pytest.raises(TypeError, match="promotion"):
        cli.main(["run", "digits"])
    before = getattr(jax.config, switch)
    jax.config.update(switch, value)
    try:
        with pytest.raises(SystemExit, match=rf"^error: .* under {shown}; unset it \(Type"):
            cli.main(["run", "digits"])
    finally:
        jax.config.update(switch, getattr(before, "value", before))


def test_help_imports_no_jax():
    """Help is printed without the seconds that importing jax takes."""
    script = "import sys; from everlight_experiments.cli import main; main(['--help']); "
    done = subprocess.run(
        [sys.executable, "-c", script + "assert 'jax' not in sys.modules"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_names_of_other_libraries_lead_to_options_of_run():
    """Mammoth's --lr, Avalanche's --train-mb-size, and so on."""
    options = {f"--{name}" for name in options_by_name(cli.options_of("run", ["digits"]))}
    assert set(OTHER_NAMES.values()) <= options
    assert options.isdisjoint(OTHER_NAMES)


@pytest.mark.parametrize(
    "name",
    [
        "illuminant dataset",
        "illuminant train",
        "illuminant calibrate",
        "illuminant pairs",
        "paper two-camera",
    ],
)
def test_runs_of_one_process_have_no_option_that_joins_processes(name):
    with pytest.raises(UsageError, match="no option '--distributed'"):
        cli.options_of(name, ["--distributed", "cluster"])
