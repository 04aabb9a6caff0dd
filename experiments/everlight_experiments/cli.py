"""The command line: `everlight COMMAND [options]`. A command imports JAX only when it runs."""

import contextlib
import importlib
import io
import os
import signal
import sys
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from everlight.errors import ArgumentError
from everlight_data.errors import DataError
from everlight_data.formats.files import one_line
from everlight_data.names import nearest_names
from everlight_data.optional_packages import missing_package
from everlight_experiments.run_folder.interruption import (
    begin_stopping,
    end_by_signal,
    signal_received,
    stopping_on_signals,
)
from everlight_experiments.terminal import printable, printable_output
from everlight_experiments.usage import UsageError, in_options, shortened, usage_error

PACKAGE = "everlight_experiments."
CLOSED_PIPE = 141
"""Exit status after the reader of the output has closed it: 128 plus the number of SIGPIPE."""
FAILING_SWITCHES = {
    "jax_numpy_dtype_promotion": ("strict",),
    "jax_numpy_rank_promotion": ("raise",),
    "jax_debug_infs": (True,),
    "jax_debug_key_reuse": (True,),
    "jax_transfer_guard": ("disallow", "disallow_explicit"),
}
"""Values of JAX's switches under which most runs end with an error (see
`docs/pages/guide/devices.md`)."""
LONGEST_MESSAGE = 1_500
"""Limit on the characters of an error's message; a longer one is shown without its middle."""


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
        "illuminant.two_camera:run_two_camera",
    ),
    "illuminant dataset": Command(
        "Compare single-image methods on photographs with known illuminants.",
        "illuminant.dataset:run_dataset",
    ),
    "illuminant thumbnails": Command(
        "Make thumbnails with known illuminants from raw photos of a colour chart.",
        "illuminant.thumbnails:make_thumbnails",
    ),
    "illuminant train": Command(
        "Fit a single-image method to photographs and keep it for estimate.",
        "illuminant.train:run_train",
    ),
    "illuminant calibrate": Command(
        "Choose and train a model for a phone from raw pairs with a colour chart.",
        "illuminant.calibrate:run_calibrate",
    ),
    "illuminant estimate": Command(
        "Estimate illuminants of photos by a kept model, from single images or pairs.",
        "illuminant.estimate:estimate",
    ),
    "export": Command(
        "Export a run's numbers as CSV or JSON, or for TensorBoard or W&B.",
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
        "List all data sets with their state, source and size.",
        "commands.data:list_data",
    ),
    "data prepare": Command(
        "Prepare a data set in EVERLIGHT_DATA from its publisher's files.",
        "commands.data:prepare",
    ),
}


def command() -> None:
    """Run the command line of this process; the entry point of the console script."""
    main(prepare=lambda: _imported("run_folder.compilation:prepare_jax")())


def main(
    arguments: Sequence[str] | None = None, prepare: Callable[[], None] = lambda: None
) -> None:
    """Parse the command and run it; an error in its input ends it with one line.

    A signal to stop ends the process as that signal does, after a checkpoint. `prepare` is called
    before a command's modules are imported, but not for help.
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
    with stopping_on_signals():
        try:
            _run(arguments, prepare)
            sys.stdout.flush()
        except BaseException as error:
            _end(error)
            raise


def _run(arguments: Sequence[str], prepare: Callable[[], None]) -> None:
    name, rest = _split(arguments)
    if not name:
        return
    prepare()
    options = options_of(name, rest)
    from everlight_experiments.run_folder.processes import join_processes

    join_processes(getattr(options, "distributed", None))
    target = _imported(COMMANDS[name].target)
    # Not around the parser, whose help has colours of its own.
    with printable_output():
        try:
            getattr(target, "run", target)(options)
        except ArgumentError as error:
            from everlight_experiments.run_folder.config_options import options_by_name

            raise DataError(in_options(str(error), options_by_name(options))) from error


def options_of(name: str, arguments: Sequence[str]) -> Any:
    """Return a command's options from the arguments after its name.

    Raises:
      UsageError: an option that does not exist, or one that cannot be parsed.
      DataError: a configuration that does not exist.
      SystemExit: --help.
    """
    import tyro

    from everlight_experiments.run_folder.config_options import option_value, options_by_name

    arguments, program = list(arguments), f"everlight {name}"
    kind = options_type(name, arguments)
    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            options, unknown = tyro.cli(
                kind, args=arguments, prog=program, config=(), return_unknown_args=True
            )
    except SystemExit as end:
        if not end.code:
            raise
        raise usage_error(box.getvalue(), program) from None
    # A part of the configuration refuses a value.
    except ArgumentError as error:
        reason = in_options(str(error), options_by_name(kind()))
        raise UsageError(f"{reason}. {program} --help lists all options.") from error
    if unknown:
        option = unknown[0].partition("=")[0].replace("_", "-")
        near = nearest_names(option, [f"--{name}" for name in options_by_name(options)])
        hint = f"; did you mean {' or '.join(near)}?" if near else "."
        raise UsageError(f"no option {shortened(ascii(option))}{hint} {program} --help lists all.")
    if option_value(arguments, "--runs") == "":
        raise UsageError("--runs has no name of a folder; give . for the one that you are in.")
    return options


def options_type(name: str, arguments: list[str]) -> type:
    """Return the dataclass of a command's options, whose defaults may depend on the arguments.

    Arguments that only select defaults are taken out of the list.
    """
    command = COMMANDS[name]
    if command.options:
        return _imported(command.options)(arguments)
    target = _imported(command.target)
    if hasattr(target, "options"):
        return target.options(arguments)
    first, *_ = typing.get_type_hints(target).values()
    return first


def _split(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Return the command and its arguments; print the overview for --help."""
    if not arguments:
        print(_overview(), file=sys.stderr)
        sys.exit(2)
    group = arguments[0] if any(name.startswith(f"{arguments[0]} ") for name in COMMANDS) else ""
    words = 2 if group else 1
    if arguments[words - 1 :][:1] in ([], ["--help"], ["-h"]):
        print(_overview(group))
        return "", []
    name = " ".join(arguments[:words])
    if name not in COMMANDS:
        near = nearest_names(name, list(COMMANDS))
        hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise UsageError(f"There is no command {name!a}.{hint} everlight --help lists all.")
    return name, list(arguments[words:])


def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(PACKAGE + module), name)


def _overview(group: str = "") -> str:
    """Return all commands, or those of a group, with a line each."""
    shown = [name for name in COMMANDS if not group or name.startswith(f"{group} ")]
    width = max(map(len, shown))
    rows = [f"  {name:<{width}}  {COMMANDS[name].summary}" for name in shown]
    return (
        f"usage: everlight {f'{group} ' if group else ''}COMMAND [options]\n\n"
        + "\n".join(rows)
        + "\n\nA run leaves a folder with report.html under runs/. Add --help for its options.\n"
        "EVERLIGHT_DATA names the folder of real data sets; see docs/pages/guide/data.md."
    )


def _end(error: BaseException) -> None:
    """End the process with one line if the error is in the input, the system or a signal's."""
    number = signal_received()
    begin_stopping()
    folders = sys.modules.get(f"{PACKAGE}run_folder.folder")
    if folders is not None:
        folders.remove_empty_folders()
    if number is not None:
        print(
            f"stopped by {signal.Signals(number).name}; finished work is kept, and the same "
            "command continues at the newest checkpoint",
            file=sys.stderr,
        )
        end_by_signal(number)
    error = missing_package(error) or error
    if isinstance(error, UsageError):
        print(f"error: {_message(error)}", file=sys.stderr)
        sys.exit(2)
    # The library's checks, wherever a command calls it; other errors are faults of a program.
    if isinstance(error, DataError | ArgumentError):
        sys.exit(f"error: {_message(error)}")
    if isinstance(error, MemoryError) or _is_memory_of_device(error):
        sys.exit(
            "error: there is not enough memory for these settings; give smaller ones. Finished "
            "work is kept."
        )
    if _is_of_joined_processes(error):
        print(
            f"error: {one_line(error)}. One of the joined processes may have ended; start the "
            "same command in all of them again, which continues at the newest checkpoint.",
            file=sys.stderr,
            flush=True,
        )
        # What is left would wait for the others.
        os._exit(1)
    if isinstance(error, BrokenPipeError):
        # The reader of the output has closed it, as `head` does.
        _give_up_output()
        sys.exit(CLOSED_PIPE)
    if isinstance(error, OSError):
        _give_up_output()
        what = one_line(error.strerror or error)
        where = _message(error.filename or "the output")
        sys.exit(
            f"error: {where}: {what}. Finished work is kept; the same command continues once "
            "this is fixed."
        )
    switch = _failing_switch()
    if switch is not None and isinstance(error, Exception):
        sys.exit(
            f"error: training does not work under {switch}; unset it ({type(error).__name__}: "
            f"{_message(error)[:200]})"
        )


def _message(error: object) -> str:
    """Return a message in one line of bounded length, with unprintable characters escaped.

    Messages repeat words of the command line and names of files, of any length and content.
    """
    text = printable(" ".join(str(error).split()))
    if len(text) <= LONGEST_MESSAGE:
        return text
    # The reason stands at the beginning, the way out at the end.
    return f"{text[: 2 * LONGEST_MESSAGE // 3]} ... {text[-LONGEST_MESSAGE // 3 :]}"


def _is_memory_of_device(error: BaseException) -> bool:
    """Return whether JAX could not allocate an array."""
    jax = sys.modules.get("jax")
    if jax is None or not isinstance(error, jax.errors.JaxRuntimeError):
        return False
    return str(error).startswith("RESOURCE_EXHAUSTED")


def _failing_switch() -> str | None:
    """Return the first of JAX's switches that is set and ends most runs; None without one."""
    jax = sys.modules.get("jax")
    for name, values in FAILING_SWITCHES.items() if jax is not None else ():
        value = getattr(jax.config, name, None)
        # Some are members of an enumeration.
        if getattr(value, "value", value) in values:
            return f"{name.upper()}={getattr(value, 'value', value)}"
    return None


def _is_of_joined_processes(error: BaseException) -> bool:
    jax = sys.modules.get("jax")
    if jax is None or not isinstance(error, Exception):
        return False
    return isinstance(error, jax.errors.JaxRuntimeError) and jax.process_count() > 1


def _give_up_output() -> None:
    """Send output nowhere if it cannot be written, so that Python does not try again at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
