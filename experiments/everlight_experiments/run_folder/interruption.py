"""Signals that ask a run to stop: it saves what it has, then ends as the signal says.

SIGINT is Ctrl-C, SIGTERM what machines that are taken back send first, SIGHUP a closed terminal.

A signal raises StoppedError wherever Python then is. That may be inside NumPy or JAX, which turn it
into another error or swallow it: so whatever is raised after a signal counts as its doing, and
nothing that was computed after one is kept.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StoppedError(BaseException):
    """A signal came; no Exception, like KeyboardInterrupt, so that nothing takes it for damage."""

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)


class _Signals:
    """Signal that was received, and whether it must wait; one per process, as signals are."""

    received: int | None = None
    holders = 0
    stopping = False


@contextmanager
def stopping_on_signals() -> Iterator[None]:
    """Raise StoppedError where a signal comes; one that is ignored (nohup) stays so."""
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
def signals_as_before() -> Iterator[None]:
    """Let a signal end the process at once, where no Python runs that could raise."""
    ours = [number for number in SIGNALS if signal.getsignal(number) is _receive]
    for number in ours:
        signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, _receive)


def _receive(number: int, frame: object) -> None:
    if _Signals.stopping:
        return
    _Signals.received = number
    if not _Signals.holders:
        raise StoppedError(number)


def signal_received() -> int | None:
    """Return the number of the signal that asked to stop, if one came."""
    return _Signals.received


def stop_if_asked() -> None:
    """Raise StoppedError where a signal came before, in case that its own was swallowed."""
    if _Signals.received is not None and not _Signals.stopping:
        raise StoppedError(_Signals.received)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let a signal wait until what is within is done, such as a checkpoint's writing."""
    stop_if_asked()
    _Signals.holders += 1
    try:
        yield
    finally:
        _Signals.holders -= 1
    if not _Signals.holders:
        stop_if_asked()


@contextmanager
def saving_when_stopped(save: Callable[[], None]) -> Iterator[None]:
    """Call `save` where a signal stops what is within, whatever error that has become."""
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
    """Ignore signals from here on: what follows saves and ends."""
    _Signals.stopping = True


def end_by_signal(number: int) -> None:
    """End the process as if the signal had met no handler, so that its parent sees which came."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            continue
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
