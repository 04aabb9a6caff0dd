"""Errors end a command with one line, unless they are a fault of the program."""

import os
import sys

from everlight.errors import ArgumentError
from everlight_data.errors import DataError
from everlight_data.optional_packages import missing_package
from everlight_data.texts import one_line
from everlight_experiments.errors import UsageError
from everlight_experiments.run_folder.interruption import (
    begin_stopping,
    end_by_signal,
    signal_received,
    stop_message,
)
from everlight_experiments.terminal import printable

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


def end_by_error(error: BaseException) -> None:
    """End the process with one line if the error is in the input, the system or a signal's."""
    number = signal_received()
    begin_stopping()
    remove_unused_folders()
    if number is not None:
        print(stop_message(number), file=sys.stderr)
        end_by_signal(number)
    error = missing_package(error) or error
    if isinstance(error, UsageError):
        print(f"error: {_message(error)}", file=sys.stderr)
        sys.exit(2)
    # The library's checks, wherever a command calls it; other errors are faults of a program.
    if isinstance(error, DataError | ArgumentError):
        sys.exit(f"error: {_message(error)}")
    exhausted = _is_of_device(error) and str(error).startswith("RESOURCE_EXHAUSTED")
    if isinstance(error, MemoryError) or exhausted:
        sys.exit(
            "error: there is not enough memory for these settings; give smaller ones. Finished "
            "work is kept."
        )
    if _is_of_device(error) and sys.modules["jax"].process_count() > 1:
        print(
            f"error: {one_line(error)}. One of the joined processes may have ended; start the "
            "same command in all of them again, which continues at the newest checkpoint.",
            file=sys.stderr,
            flush=True,
        )
        # The remaining work would wait for the others.
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


def remove_unused_folders() -> None:
    """Remove the folders of runs that ended before they saved anything."""
    folders = sys.modules.get("everlight_experiments.run_folder.folder")
    if folders is not None:
        folders.remove_empty_folders()


def _message(error: object) -> str:
    """Return a message in one line of bounded length, with unprintable characters escaped.

    Messages repeat words of the command line and names of files, of any length and content.
    """
    text = printable(" ".join(str(error).split()))
    if len(text) <= LONGEST_MESSAGE:
        return text
    # The reason stands at the beginning, the way out at the end.
    return f"{text[: 2 * LONGEST_MESSAGE // 3]} ... {text[-LONGEST_MESSAGE // 3 :]}"


def _is_of_device(error: BaseException) -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(error, jax.errors.JaxRuntimeError)


def _failing_switch() -> str | None:
    """Return the first of JAX's switches that is set and ends most runs; None without one."""
    jax = sys.modules.get("jax")
    for name, values in FAILING_SWITCHES.items() if jax is not None else ():
        value = getattr(jax.config, name, None)
        # Values of some switches are members of an enumeration.
        if getattr(value, "value", value) in values:
            return f"{name.upper()}={getattr(value, 'value', value)}"
    return None


def _give_up_output() -> None:
    """Send output nowhere if it cannot be written, so that Python does not try again at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
