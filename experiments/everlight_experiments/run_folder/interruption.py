"""Signals that stop a run: it saves its state, then the process ends by the signal.

SIGINT is Ctrl-C, SIGTERM announces that a machine is taken back, and SIGHUP is a closed terminal. A
signal raises StoppedError at the point that Python has reached. That may be inside NumPy or JAX,
which turn it into another error or swallow it. So every error after a signal counts as its effect,
and nothing computed after it is kept.

Python handles no signal while it waits for a compilation or a long epoch. A thread therefore
acknowledges each one, and ends the process if it does not begin to save in time. As after a kill,
the same command then continues at the newest checkpoint.
"""

import ctypes
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

# Windows has no SIGHUP.
SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)

ACKNOWLEDGED_AFTER = 0.2
"""Seconds after which a signal that Python has not handled yet is acknowledged."""
ENDED_AFTER = 1.5
"""Seconds after a signal in which the process must begin to save; then it ends without."""


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
def stop_on_signals(before_end: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Raise StoppedError when a signal arrives; ignored signals (nohup) stay ignored.

    A process that does not raise it in time ends after a call of `before_end`.
    """
    before = {number: signal.getsignal(number) for number in SIGNALS}
    heeded = [number for number in SIGNALS if before[number] is not signal.SIG_IGN]
    _Signals.received, _Signals.holders, _Signals.stopping = None, 0, False
    for number in heeded:
        signal.signal(number, _receive)
    try:
        with _ending_thread(heeded, before_end), _silent_callbacks():
            yield
    finally:
        for number in heeded:
            signal.signal(number, before[number])
        _Signals.received = None


@contextmanager
def _silent_callbacks() -> Iterator[None]:
    """Print no traceback where a callback, such as JAX's of the garbage collector, drops a stop."""
    before = sys.unraisablehook

    def report(dropped: Any) -> None:
        if not isinstance(dropped.exc_value, StoppedError):
            before(dropped)

    sys.unraisablehook = report
    try:
        yield
    finally:
        sys.unraisablehook = before


@contextmanager
def _ending_thread(heeded: Sequence[int], before_end: Callable[[], None]) -> Iterator[None]:
    """Run the thread that acknowledges the first of these signals and ends the process by it.

    The interpreter's C code writes the number of a signal into a socket when it arrives.
    """
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    ended = threading.Event()

    def wait_for_signal() -> None:
        while received := receiver.recv(1):
            if received[0] in heeded:
                _acknowledge(received[0], ended, before_end)
                break

    thread = threading.Thread(target=wait_for_signal, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        signal.set_wakeup_fd(before)
        sender.close()
        thread.join()
        receiver.close()


def _acknowledge(number: int, ended: threading.Event, before_end: Callable[[], None]) -> None:
    """Acknowledge a signal, and end the process unless the main thread does."""
    began, name = time.monotonic(), signal.Signals(number).name
    if ended.wait(ACKNOWLEDGED_AFTER) or _Signals.stopping:
        return
    # Nobody may read the errors any more.
    with suppress(OSError):
        print(
            f"\n{name} received; the command saves, or ends in {ENDED_AFTER:g} s", file=sys.stderr
        )
    ended.wait(began + ENDED_AFTER - time.monotonic())
    if ended.is_set() or _Signals.stopping:
        return
    begin_stopping()
    try:
        before_end()
        print(stop_message(number), file=sys.stderr, flush=True)
    finally:
        # Only the main thread may call `signal.signal`.
        ctypes.pythonapi.PyOS_setsig(number, None)
        os.kill(os.getpid(), number)


def stop_message(number: int) -> str:
    """Return the last line of a command that a signal ends."""
    return (
        f"stopped by {signal.Signals(number).name}; finished trainings are kept; the same command "
        "continues the interrupted one at its newest checkpoint, or at its beginning without one"
    )


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
