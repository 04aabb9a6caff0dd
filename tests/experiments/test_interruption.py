"""Signals: a checkpoint first, then the end that the signal asks for."""

import contextlib
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from everlight_data.runs.checkpoints import Checkpoints
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.interruption import (
    SIGNALS,
    StoppedError,
    signal_received,
    stopping_on_signals,
    uninterrupted,
)
from everlight_experiments.run_folder.settings import RunSettings
from tests.contracts.strategies import PROTOCOL
from tests.experiments.a_unit import checkpoints_of


@pytest.fixture(autouse=True)
def heeded():
    """Tests that run in the background inherit signals that are ignored, and so do children."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_raises_once_and_what_was_there_before_is_put_back(number):
    before = signal.getsignal(number)

    @stopping_on_signals()
    def stopped():
        try:
            os.kill(os.getpid(), number)
        finally:
            os.kill(os.getpid(), number)

    with pytest.raises(StoppedError, match=signal.Signals(number).name):
        stopped()
    assert signal.getsignal(number) is before


def test_a_signal_waits_for_what_must_not_be_interrupted():
    done = []

    @stopping_on_signals()
    def stopped():
        with uninterrupted():
            with uninterrupted():
                os.kill(os.getpid(), signal.SIGTERM)
                done.append("inner")
            done.append("outer")
        done.append("never")

    with pytest.raises(StoppedError):
        stopped()
    assert done == ["inner", "outer"]


def test_a_signal_that_was_swallowed_is_raised_at_the_next_safe_point():
    """As NumPy does where it asks an object for its numbers."""
    done = []

    class Swallowing:
        def __array__(self, dtype=None, copy=None):
            os.kill(os.getpid(), signal.SIGTERM)
            return np.zeros(2)

    @stopping_on_signals()
    def stopped():
        with contextlib.suppress(ValueError, StoppedError):
            np.array([Swallowing(), Swallowing()])
        done.append(signal_received())
        with uninterrupted():
            done.append("never")

    with pytest.raises(StoppedError):
        stopped()
    assert done == [signal.SIGTERM]
    assert signal_received() is None


def test_nothing_is_kept_that_was_computed_after_a_signal(tmp_path):
    folder = RunFolder("paper", "run", RunSettings(runs=tmp_path))

    @stopping_on_signals()
    def stopped():
        with contextlib.suppress(StoppedError):
            os.kill(os.getpid(), signal.SIGTERM)
        folder.save_unit("EWC-0", {}, x=np.zeros(1))

    with pytest.raises(StoppedError):
        stopped()
    assert folder.read_unit("EWC-0", {}) is None


def test_an_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stopping_on_signals():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def run_child(tmp_path, folder, *stop):
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "programs"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    command = [sys.executable, "-m", "tests.experiments.stopped_sequence", str(tmp_path / folder)]
    command += [str(tmp_path / f"{folder}.npz"), *map(str, stop)]
    return subprocess.run(
        command, env=os.environ | cache, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_a_stopped_run_saves_its_newest_epoch_and_ends_with_the_same_bits(tmp_path):
    assert PROTOCOL.epochs > 1, "every epoch is a task's last one"
    whole = run_child(tmp_path, "whole")
    assert whole.returncode == 0, whole.stderr
    for reached, number in enumerate((signal.SIGTERM, signal.SIGHUP), 1):
        stopped = run_child(tmp_path, "stopped", int(number), 1)
        assert stopped.returncode == -number, stopped.stderr
        assert f"stopped by {signal.Signals(number).name}; the same command continues" in (
            stopped.stderr
        )
        assert "Traceback" not in stopped.stderr
        # A signal waits for the end of the epoch, the second one of each process.
        assert Checkpoints(checkpoints_of(tmp_path / "stopped")).newest() == 2 * reached
    assert run_child(tmp_path, "stopped").returncode == 0
    with np.load(tmp_path / "whole.npz") as first, np.load(tmp_path / "stopped.npz") as second:
        for name in first.files:
            np.testing.assert_array_equal(first[name], second[name])
