"""The library's messages on the command line, with options in place of arguments."""

import jax
import pytest

from everlight.errors import ArgumentError
from everlight_experiments import cli
from everlight_experiments.usage import UsageError, in_options


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("Protocol: epochs=0; give 1 or more", "--epochs 0; give 1 or more"),
        ("select='best', and task 0", "--select best, and task 0"),
        ("boundaries=False needs select='last'", "--no-boundaries needs --select last"),
        ("boundaries=True;", "--boundaries;"),
        ("Protocol: first=0; give 1", "--nc.first 0; give 1"),
        ("give later=2 steps", "give later=2 steps"),
        ("ewc: importance_samples=0; give 1", "ewc: importance_samples=0; give 1"),
    ],
)
def test_arguments_that_one_option_sets_are_named_by_it(message, words):
    options = ["epochs", "select", "boundaries", "nc.first", "nc.later", "ni.later"]
    assert in_options(message, options) == words


@pytest.mark.parametrize(
    ("command", "words", "message"),
    [
        ("run", "digits --epochs 0", r"^--epochs 0; give 1 or more\. everlight run --help"),
        ("run", "digits --plateau-factor 0", r"^--plateau-factor 0.0; give more than 0"),
        ("tune", "digits --evaluate-every -2", r"^--evaluate-every -2; give 1 or more"),
        ("run", "iirc --no-boundaries", r"^--select best needs boundaries; choose"),
        ("paper iirc", "--epochs 0", r"^--epochs 0; give 1 or more"),
    ],
)
def test_a_part_that_refuses_a_value_is_named_by_its_option(command, words, message):
    with pytest.raises(UsageError, match=message):
        cli.options_of(command, words.split())


def test_an_error_of_the_library_within_a_command_has_the_option_s_name(monkeypatch, capsys):
    def refusing(options):
        raise ArgumentError("buffer_size=3 of 2 samples; give fewer")

    monkeypatch.setattr("everlight_experiments.commands.run.run_benchmark", refusing)
    with pytest.raises(SystemExit, match=r"^error: --buffer-size 3 of 2 samples; give fewer$"):
        cli.main(["run", "digits"])


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
