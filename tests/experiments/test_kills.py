"""Fifty kills at random moments, over all runs: whatever is finished has the same bits."""

import os
import re
import subprocess
import sys

import pytest

from tests.experiments.processes.killed_runs import RUNS

KILLS = {
    "data prepare core50": 10,
    "run, two processes": 10,
    "run, selecting": 10,
    "paper core50-static": 10,
    "paper two-camera, nus": 5,
    "paper two-camera, rendered": 5,
}
"""One of each kind of work that continues; papers of methods train as `run` does."""


@pytest.mark.slow
def test_commands_killed_at_random_moments_end_with_the_same_bits(tmp_path):
    assert KILLS.keys() == RUNS.keys()
    # One device is enough: bits are promised within a program, which depends on the devices.
    environment = os.environ | {
        "JAX_NUM_CPU_DEVICES": "1",
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "programs"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "XLA_FLAGS": "--xla_backend_optimization_level=0",
    }
    command = [
        sys.executable,
        "-m",
        "tests.experiments.processes.killed_runs",
        str(tmp_path / "runs"),
    ]
    requested = [str(item) for pair in KILLS.items() for item in pair]
    done = subprocess.run(
        command + requested, env=environment, capture_output=True, text=True, check=False
    )
    message = "".join(path.read_text() for path in sorted(tmp_path.rglob("*.txt")))
    assert done.returncode == 0, message[-3000:] + done.stdout + done.stderr
    # The last of two processes may die where the first has reached the requested number.
    assert sum(int(item) for item in re.findall(r"(\d+) kills", done.stdout)) >= 50
    assert "Traceback" not in message
