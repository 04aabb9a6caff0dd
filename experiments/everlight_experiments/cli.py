"""The command line: `everlight COMMAND [options]`. A command imports JAX only when it runs."""

import importlib
import io
import itertools
import os
import sys
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from everlight.errors import ArgumentError
from everlight_data.errors import DataError
from everlight_data.names import did_you_mean
from everlight_experiments.command_end import end_by_error, remove_unused_folders
from everlight_experiments.errors import UsageError
from everlight_experiments.run_folder.interruption import stop_on_signals, uninterrupted
from everlight_experiments.terminal import aligned_rows, printable_output

HELP = ("-h", "--help")
ALL_HELP = "--help-all"


class Command(NamedTuple):
    """A row of the command line."""

    summary: str
    """One line for the overview; the command's own help has the details."""
    target: str
    """MODULE:NAME, below the package, of a function that takes the options, or of a paper."""
    options: str = ""
    """MODULE:FUNCTION that makes the dataclass of options from the arguments, where defaults depend
    on them; if empty, the options are those that the target takes."""


# A new command is one row.
COMMANDS: dict[str, Command] = {
    "demo": Command(
        "Run a demo of illuminant estimation and of continual learning; no data needed.",
        "commands.demo:run_demo",
    ),
    "run": Command(
        "Train any methods on one benchmark or on your own images.",
        "commands.run:run_benchmark",
        "commands.option_defaults:run_options",
    ),
    "grid": Command(
        "Rank methods over several benchmarks in one table.",
        "commands.grid:run_grid",
        "commands.option_defaults:grid_options",
    ),
    "tune": Command(
        "Search values of the configuration on validation seeds.",
        "commands.tune:run_tune",
        "commands.option_defaults:tune_options",
    ),
    "update": Command(
        "Train a finished run further on new classes or new images of old ones.",
        "commands.update:run_update",
    ),
    "compare": Command(
        "Compare finished runs with paired differences and intervals.",
        "commands.compare:run_compare",
    ),
    "plasticity": Command(
        "Compare methods against the loss of plasticity on a stream of many tasks.",
        "plasticity.command:run_plasticity",
        "plasticity.command:plasticity_options",
    ),
    "paper cl-metrics": Command(
        "Metrics beyond forgetting: five strategies by seven criteria and the CL score.",
        "cl_metrics.paper:PAPER",
    ),
    "paper rethinking-er": Command(
        "Experience replay with tricks on split Fashion-MNIST, and the published table.",
        "rethinking_er.paper:PAPER",
    ),
    "paper der": Command(
        "Dark experience replay and X-DER on MNIST streams, CIFAR and Tiny-ImageNet.",
        "der.paper:PAPER",
    ),
    "paper three-scenarios": Command(
        "Split MNIST with the task known, unknown or to be inferred (three scenarios, table 2).",
        "three_scenarios.paper:PAPER",
    ),
    "paper iirc": Command(
        "IIRC: every class is learned coarse first, then fine (figures 3 to 6).",
        "iirc.paper:PAPER",
        "iirc.paper:options",
    ),
    "paper core50": Command(
        "CORe50: new instances (NI), new classes (NC) or both (NIC) in every batch.",
        "core50.paper:PAPER",
    ),
    "paper core50-static": Command(
        "CORe50 at once: from scratch, frozen features with an SVM, fine-tuning (table 2).",
        "core50_static.paper:PAPER",
    ),
    "paper facts": Command(
        "Lifelong fact learning with random and semantic splits (tables 2 to 17).",
        "facts.paper:PAPER",
    ),
    "paper two-camera": Command(
        "Two-camera illuminant estimation: rendered, NUS and S20 pairs (tables 1 to 4).",
        "illuminant.two_camera.command:run_two_camera",
    ),
    "illuminant dataset": Command(
        "Compare single-image methods on photographs with known illuminants.",
        "illuminant.photographs.dataset:run_dataset",
    ),
    "illuminant thumbnails": Command(
        "Make thumbnails with known illuminants from raw photos of a colour chart.",
        "illuminant.photographs.thumbnails:make_thumbnails",
    ),
    "illuminant profile": Command(
        "Make a camera profile (.dcp) from one or two raw photos of a colour chart.",
        "illuminant.photographs.profile:make_profile",
    ),
    "illuminant train": Command(
        "Fit a single-image method to photographs and keep it for estimate.",
        "illuminant.photographs.train:run_train",
    ),
    "illuminant calibrate": Command(
        "Choose and train a model for a phone from raw pairs with a colour chart.",
        "illuminant.phone.calibrate:run_calibrate",
    ),
    "illuminant pairs": Command(
        "Test whether a second camera helps, on pairs with known illuminants and no chart.",
        "illuminant.pairs.command:run_pairs",
    ),
    "illuminant estimate": Command(
        "Estimate illuminants of photos by a kept model, from single images or pairs.",
        "illuminant.estimate.command:estimate",
    ),
    "illuminant export": Command(
        "Write a camera's colours into a copy of a tuning file of libcamera.",
        "illuminant.export.command:export",
    ),
    "watch": Command(
        "Show what a run is training, in a terminal, and write for TensorBoard live.",
        "commands.watch:watch",
    ),
    "export": Command(
        "Export a run's numbers as CSV, JSON, LaTeX, PDF, or for TensorBoard or W&B.",
        "report.export:export",
    ),
    "report": Command(
        "Write a page that lists all runs with preset, time, result and report.",
        "report.index:write_index",
    ),
    "methods": Command(
        "List all methods with paper, what they keep and where they apply.",
        "commands.methods:list_methods",
    ),
    "cost": Command(
        "Print memory, operations and hours of the papers' presets without training.",
        "commands.cost:run_cost",
    ),
    "data list": Command(
        "List all data sets with their state, source and size.", "commands.data:list_data"
    ),
    "data prepare": Command(
        "Prepare a data set in EVERLIGHT_DATA from its publisher's files.", "commands.data:prepare"
    ),
}

GROUPS = {"", *(name.partition(" ")[0] for name in COMMANDS if " " in name)}
"""First words of commands of two words, and that of all commands."""


def command() -> None:
    """Run the command line of this process; the entry point of the console script."""
    main(prepare=lambda: _import_target("run_folder.compilation:prepare_jax")())


def main(
    arguments: Sequence[str] | None = None, prepare: Callable[[], None] = lambda: None
) -> None:
    """Parse the command and run it; an error in its input ends it with one line.

    A signal to stop ends the process as that signal does, after a checkpoint. `prepare` is called
    before a command's modules are imported, but not for the overview.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    for name in ("stdout", "stderr"):
        # A process may be started with closed streams.
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # Names of files may hold bytes that are not valid text.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with stop_on_signals(remove_unused_folders):
        try:
            _run(arguments, prepare)
            sys.stdout.flush()
        except BaseException as error:
            end_by_error(error)
            raise


def _run(arguments: list[str], prepare: Callable[[], None]) -> None:
    if not arguments:
        print(_overview(), file=sys.stderr)
        sys.exit(2)
    name = command_name(arguments)
    if name in GROUPS:
        print(_overview(name))
        return
    prepare()
    options = options_of(name, arguments[len(name.split()) :])
    from everlight_experiments.run_folder.processes import join_processes
    from everlight_experiments.usage import name_options, options_by_name

    join_processes(getattr(options, "distributed", None))
    target = _import_target(COMMANDS[name].target)
    # Not around the parser, whose help has colours of its own.
    with printable_output():
        try:
            getattr(target, "run", target)(options)
        except ArgumentError as error:
            raise DataError(name_options(error, options_by_name(options))) from error


def command_name(arguments: Sequence[str]) -> str:
    """Return the command that the first words name, or the group whose overview they ask for.

    tyro has subcommands too, but imports the options of every command for any of them.

    Raises:
      UsageError: there is no such command; the message has the nearest ones.
    """
    words = list(itertools.takewhile(lambda word: word not in HELP, arguments[:2]))
    name = " ".join(words)
    if name in GROUPS:
        return name
    for command in (name, words[0]):
        if command in COMMANDS:
            return command
    name = name if words[0] in GROUPS else words[0]
    hint = did_you_mean(name, list(COMMANDS)) or "."
    raise UsageError(f"There is no command {name!a}{hint} everlight --help lists all.")


def options_of(name: str, arguments: Sequence[str]) -> Any:
    """Return a command's options from the arguments after its name.

    Raises:
      UsageError: an option that does not exist, or one that cannot be parsed.
      DataError: a configuration that does not exist.
      SystemExit: help was printed.
    """
    from everlight_experiments.command_help import short_help
    from everlight_experiments.usage import name_options, options_by_name, parse_options

    arguments, program = list(arguments), f"everlight {name}"
    kind = options_type(name, arguments)
    if {*HELP} & {*arguments}:
        print(short_help(kind, program))
        sys.exit()
    arguments = [HELP[0] if word == ALL_HELP else word for word in arguments]
    try:
        return parse_options(kind, arguments, program)
    except UsageError as error:
        raise UsageError(f"{error} {program} --help lists all options.") from error
    # A part of the configuration refuses a value.
    except ArgumentError as error:
        reason = name_options(error, options_by_name(kind))
        raise UsageError(f"{reason}. {program} --help lists all options.") from error


def options_type(name: str, arguments: list[str]) -> type:
    """Return the dataclass of a command's options, whose defaults may depend on the arguments.

    Arguments that only select defaults are taken out of the list.
    """
    command = COMMANDS[name]
    if command.options:
        return _import_target(command.options)(arguments)
    target = _import_target(command.target)
    if hasattr(target, "options"):
        return target.options(arguments)
    first, *_ = typing.get_type_hints(target).values()
    return first


def _import_target(place: str) -> Any:
    module, _, name = place.partition(":")
    # NumPy prints a traceback where an extension module's import of it is interrupted.
    with uninterrupted():
        return getattr(importlib.import_module(f"everlight_experiments.{module}"), name)


def _overview(group: str = "") -> str:
    """Return all commands, or those of a group, with a line each."""
    shown = [name for name in COMMANDS if not group or name.startswith(f"{group} ")]
    rows = aligned_rows([(name, COMMANDS[name].summary) for name in shown])
    return (
        f"usage: everlight {f'{group} ' if group else ''}COMMAND [options]\n\n"
        + "\n".join(f"  {row}" for row in rows)
        + "\n\nA run leaves a folder with report.html under runs/. Add --help for its options.\n"
        "EVERLIGHT_DATA names the folder of real data sets; see docs/pages/guide/data.md."
    )
