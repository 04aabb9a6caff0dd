"""Signals: a checkpoint first, then the end that the signal asks for."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from everlight_data.runs.checkpoints import Checkpoints
from everlight_experiments.run_folder import interruption
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import ExperimentOptions
from tests.contracts.strategies import PROTOCOL
from tests.experiments.processes.child_processes import end, start
from tests.experiments.run_folder.agem_run import checkpoints_of


@pytest.fixture(autouse=True)
def heeded():
    """Restore the signals' handlers: tests in the background inherit ignored signals."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in interruption.SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", interruption.SIGNALS)
def test_a_signal_raises_once_and_what_was_there_before_is_put_back(number):
    before = signal.getsignal(number)

    @interruption.stop_on_signals()
    def stopped():
        try:
            os.kill(os.getpid(), number)
        finally:
            os.kill(os.getpid(), number)

    with pytest.raises(interruption.StoppedError, match=signal.Signals(number).name):
        stopped()
    assert signal.getsignal(number) is before


def test_a_signal_waits_for_what_must_not_be_interrupted():
    done = []

    @interruption.stop_on_signals()
    def stopped():
        with interruption.uninterrupted():
            with interruption.uninterrupted():
                os.kill(os.getpid(), signal.SIGTERM)
                done.append("inner")
            done.append("outer")
        done.append("never")

    with pytest.raises(interruption.StoppedError):
        stopped()
    assert done == ["inner", "outer"]


def test_a_signal_that_was_swallowed_is_raised_at_the_next_safe_point():
    """NumPy swallows a signal where it asks an object for its numbers."""
    done = []

    class Swallowing:
        def __array__(self, dtype=None, copy=None):
            os.kill(os.getpid(), signal.SIGTERM)
            return np.zeros(2)

    @interruption.stop_on_signals()
    def stopped():
        with contextlib.suppress(ValueError, interruption.StoppedError):
            np.array([Swallowing(), Swallowing()])
        done.append(interruption.signal_received())
        with interruption.uninterrupted():
            done.append("never")

    with pytest.raises(interruption.StoppedError):
        stopped()
    assert done == [signal.SIGTERM]
    assert interruption.signal_received() is None


def test_a_signal_inside_a_callback_is_raised_later_and_prints_nothing(capsys):
    """JAX has a callback of the garbage collector, where Python prints an error and goes on."""
    done = []

    class Dropped:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGTERM)

    @interruption.stop_on_signals()
    def stopped():
        Dropped()
        done.append("goes on")
        interruption.stop_if_requested()

    with pytest.raises(interruption.StoppedError):
        stopped()
    assert done == ["goes on"]
    assert capsys.readouterr().err == ""


STUCK = """
import signal, sys, time
from everlight_experiments.run_folder.interruption import stop_on_signals, uninterrupted
with stop_on_signals(lambda: print("before the end", flush=True)), uninterrupted():
    print("begins", flush=True)
    time.sleep(60)
    # Python handles a signal, but the block goes on, as in a long epoch or a compilation.
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_cannot_stop_acknowledges_a_signal_and_ends_within_two_seconds(number):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    child = subprocess.Popen([sys.executable, "-c", STUCK], **pipes)
    assert child.stdout.readline() == "begins\n"
    began = time.monotonic()
    child.send_signal(number)
    # The first line is empty: it ends that of a progress bar.
    assert child.stderr.readline() == "\n"
    assert child.stderr.readline().startswith(f"{number.name} received; the command saves")
    acknowledged = time.monotonic() - began
    output, errors = child.communicate()
    assert acknowledged < 1 < time.monotonic() - began < 2
    assert child.returncode == -number
    assert output == "before the end\n"
    assert errors.startswith(f"stopped by {number.name}; finished trainings are kept")


def test_results_after_a_signal_are_dropped(tmp_path):
    folder = RunFolder("paper", "run", ExperimentOptions(runs=tmp_path))

    @interruption.stop_on_signals()
    def stopped():
        with contextlib.suppress(interruption.StoppedError):
            os.kill(os.getpid(), signal.SIGTERM)
        folder.save_part("EWC-0", {}, x=np.zeros(1))

    with pytest.raises(interruption.StoppedError):
        stopped()
    assert folder.read_part("EWC-0", {}) is None


def test_an_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    done = []
    try:
        with interruption.stop_on_signals():
            os.kill(os.getpid(), signal.SIGHUP)
            done.append(signal.getsignal(signal.SIGHUP))
            done.append(interruption.signal_received())
        assert done == [signal.SIG_IGN, None]
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.slow
def test_a_stopped_run_saves_its_newest_epoch_and_ends_with_the_same_bits(tmp_path):
    assert PROTOCOL.epochs > 1, "every epoch is a task's last one"

    def start_run(folder, *stop):
        arguments = (tmp_path / folder, tmp_path / f"{folder}.npz", *map(int, stop))
        return start("stopped_sequence", tmp_path, *arguments)

    end(start_run("whole"))
    for reached, number in enumerate((signal.SIGTERM, signal.SIGHUP), 1):
        stopped = start_run("stopped", number, 1)
        message = stopped.communicate()[1]
        assert stopped.returncode == -number, message
        assert f"stopped by {signal.Signals(number).name}; finished trainings are kept" in message
        assert "Traceback" not in message
        # A signal waits for the end of the epoch, the second one of each process.
        assert Checkpoints(checkpoints_of(tmp_path / "stopped")).newest() == 2 * reached
    end(start_run("stopped"))
    with np.load(tmp_path / "whole.npz") as first, np.load(tmp_path / "stopped.npz") as second:
        for name in first.files:
            np.testing.assert_array_equal(first[name], second[name])
