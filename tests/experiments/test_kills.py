"""Fifty kills at random moments, over all runs: whatever is finished has the same bits."""

import os
import re
import subprocess
import sys

import pytest

from tests.experiments.killed_runs import RUNS

KILLS = {
    "data prepare core50": 6,
    "paper cl-metrics": 6,
    "paper cl-metrics, two processes": 6,
    "run, two processes": 6,
    "run, selecting": 5,
    "paper facts": 4,
    "paper iirc": 4,
    "paper core50": 4,
    "paper core50-static": 3,
    "paper two-camera, nus": 2,
    "paper two-camera, s20": 2,
    "paper two-camera, rendered": 2,
}


@pytest.mark.slow
def test_killed_at_random_moments_they_end_with_the_same_bits(tmp_path):
    assert KILLS.keys() == RUNS.keys()
    # One device: within one program bits are promised, and how many units it has hangs on devices.
    environment = os.environ | {
        "JAX_NUM_CPU_DEVICES": "1",
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "programs"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "XLA_FLAGS": "--xla_backend_optimization_level=0",
    }
    command = [sys.executable, "-m", "tests.experiments.killed_runs", str(tmp_path / "runs")]
    asked = [str(each) for pair in KILLS.items() for each in pair]
    done = subprocess.run(
        command + asked, env=environment, capture_output=True, text=True, check=False
    )
    said = "".join(path.read_text() for path in sorted(tmp_path.rglob("*.txt")))
    assert done.returncode == 0, said[-3000:] + done.stdout + done.stderr
    # The last of two processes may die where the first has reached the number that was asked for.
    assert sum(int(each) for each in re.findall(r"(\d+) kills", done.stdout)) >= 50
    assert "Traceback" not in said
