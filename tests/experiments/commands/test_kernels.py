"""Kernels of a training step of the papers' networks, compiled for an H100."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from everlight.continual.engine.cost.kernels import kernel_bytes

ROOT = Path(__file__).parents[3]
MAX_KERNELS = {1: 520, 8: 520}
"""Bounds on the kernels of a step of ResNet-32 in float32, by runs at once; it has 506 and 503."""
CONVOLUTIONS = 31
HAS_CUDA = any(
    importlib.util.find_spec("jax_plugins") and importlib.util.find_spec(f"jax_plugins.{name}")
    for name in ("xla_cuda12", "xla_cuda13")
)


@pytest.mark.slow
@pytest.mark.cpu
@pytest.mark.skipif(not HAS_CUDA, reason="extra cuda12 or cuda13 not installed")
@pytest.mark.parametrize("runs", MAX_KERNELS)
def test_a_step_for_an_h100_has_few_kernels_and_groups_the_runs(runs):
    """The process is separate: JAX loads its plugin once, which needs a driver or no GPU.

    Each convolution of several runs and both its gradients are one call, in groups.
    """
    module = "tests.experiments.processes.compiled_step"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    answer = subprocess.run(
        [sys.executable, "-m", module, str(runs)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr[-2000:]
    count = len(kernel_bytes(answer.stdout, "run"))
    print(f"{count} kernels of a step of {runs} runs")
    assert count <= MAX_KERNELS[runs]
    calls = re.findall(r"__cudnn\$conv\w+", answer.stdout)
    assert len(calls) == 3 * CONVOLUTIONS - 1
    if runs > 1:
        grouped = re.findall(rf"(?:feature|batch)_group_count={runs}\b", answer.stdout)
        assert len(grouped) == len(calls)
