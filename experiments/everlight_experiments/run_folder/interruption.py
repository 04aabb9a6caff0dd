"""Signals that stop a run: it saves its state, then the process ends by the signal.

SIGINT is Ctrl-C, SIGTERM announces that a machine is taken back, and SIGHUP is a closed terminal. A
signal raises StoppedError at the point that Python has reached. That may be inside NumPy or JAX,
which turn it into another error or swallow it. So every error after a signal counts as its effect,
and nothing computed after it is kept.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Windows has no SIGHUP.
SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


class StoppedError(BaseException):
    """A signal arrived; not an Exception, like KeyboardInterrupt, so that no handler catches it."""

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)


class _Signals:
    """Signal that was received, and whether it must wait; one per process, as signals are."""

    received: int | None = None
    holders = 0
    stopping = False


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Raise StoppedError when a signal arrives; ignored signals (nohup) stay ignored."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    heeded = [number for number in SIGNALS if before[number] is not signal.SIG_IGN]
    _Signals.received, _Signals.holders, _Signals.stopping = None, 0, False
    for number in heeded:
        signal.signal(number, _receive)
    try:
        yield
    finally:
        for number in heeded:
            signal.signal(number, before[number])
        _Signals.received = None


@contextmanager
def restore_signals() -> Iterator[None]:
    """Let a signal end the process at once, while no Python code runs that could raise."""
    handled = [number for number in SIGNALS if signal.getsignal(number) is _receive]
    for number in handled:
        signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, _receive)


def _receive(number: int, frame: object) -> None:
    if _Signals.stopping:
        return
    _Signals.received = number
    if not _Signals.holders:
        raise StoppedError(number)


def signal_received() -> int | None:
    """Return the number of the signal that stops the run; None without one."""
    return _Signals.received


def stop_if_requested() -> None:
    """Raise StoppedError if a signal arrived earlier, whose own error may have been swallowed."""
    if _Signals.received is not None and not _Signals.stopping:
        raise StoppedError(_Signals.received)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay signals until the block ends, for example while a checkpoint is written."""
    stop_if_requested()
    _Signals.holders += 1
    try:
        yield
    finally:
        _Signals.holders -= 1
    if not _Signals.holders:
        stop_if_requested()


@contextmanager
def save_when_stopped(save: Callable[[], None]) -> Iterator[None]:
    """Call `save` if a signal stops the block, whatever error the signal has caused."""
    try:
        yield
    except BaseException:
        number = signal_received()
        if number is None:
            raise
        begin_stopping()
        save()
        raise StoppedError(number) from None


def begin_stopping() -> None:
    """Ignore further signals, since the process now saves and ends."""
    _Signals.stopping = True


def end_by_signal(number: int) -> None:
    """End the process as an unhandled signal does, so that its parent sees which one it was."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            continue
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
