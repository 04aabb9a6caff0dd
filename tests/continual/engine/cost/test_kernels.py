"""Kernels of a program for a GPU: of a text by hand, and of training steps compiled for an H100."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from everlight.continual import Run
from everlight.continual.engine.cost.kernels import kernel_bytes
from everlight.continual.engine.cost.targets import chip_of_an_h100
from everlight.continual.engine.sequence import _one_step, initial_state, lower_step
from everlight.continual.engine.tasks import next_epoch
from everlight_experiments.commands.cost import iirc_cifar

ROOT = Path(__file__).parents[4]
MAX_KERNELS = {1: 520, 8: 520}
"""Bounds on the kernels of a step of ResNet-32 in float32, by runs at once; it has 506 and 503."""
CONVOLUTIONS = 31
HAS_CUDA = any(
    importlib.util.find_spec("jax_plugins") and importlib.util.find_spec(f"jax_plugins.{name}")
    for name in ("xla_cuda12", "xla_cuda13")
)
PROGRAM = """HloModule jit_step, is_scheduled=true

%fused_add (p.1: f32[4]) -> f32[4] {
  %p.1 = f32[4]{0} parameter(0)
  ROOT %add.1 = f32[4]{0} add(%p.1, %p.1)
}

%body (state: (s32[], f32[4])) -> (s32[], f32[4]) {
  %state = (s32[], f32[4]{0}) parameter(0)
  %number = s32[] get-tuple-element(%state), index=0
  %values = f32[4]{0} get-tuple-element(%state), index=1
  %more = f32[4]{0} fusion(%values), kind=kLoop, calls=%fused_add
  ROOT %next = (s32[], f32[4]{0}) tuple(%number, %more)
}

%condition (state.1: (s32[], f32[4])) -> pred[] {
  %state.1 = (s32[], f32[4]{0}) parameter(0)
  %number.1 = s32[] get-tuple-element(%state.1), index=0
  ROOT %less = pred[] fusion(%number.1), kind=kLoop, calls=%fused_add
}

%few (x.1: f32[4]) -> f32[4] {
  ROOT %x.1 = f32[4]{0} parameter(0)
}

%many (x.2: f32[4]) -> f32[4] {
  %x.2 = f32[4]{0} parameter(0)
  ROOT %sorted = f32[4]{0} sort(%x.2), dimensions={0}, to_apply=%fused_add
}

%commands (x.3: f32[4]) -> f32[4] {
  %x.3 = f32[4]{0} parameter(0)
  ROOT %copy.3 = f32[4]{0} copy(%x.3)
}

ENTRY %main.1 (a.1: bf16[2,3], data.1: u8[1000], which.1: pred[]) -> f32[4] {
  %a.1 = bf16[2,3]{1,0} parameter(0), metadata={op_name="learned[0]"}
  %data.1 = u8[1000]{0} parameter(1), metadata={op_name="run[0].shared[0]"}
  %which.1 = pred[] parameter(2)
  %rows = u8[4]{0} fusion(%data.1), kind=kLoop, calls=%fused_add
  %flat = bf16[6]{0} bitcast(%a.1)
  %call.1 = (f32[4]{0}, u8[0]{0}) custom-call(%flat, %rows), custom_call_target="__gemm"
  %first = f32[4]{0} get-tuple-element(%call.1), index=0
  %zero = s32[] constant(0)
  %start = (s32[], f32[4]{0}) tuple(%zero, %first)
  %loop = (s32[], f32[4]{0}) while(%start), condition=%condition, body=%body
  %last = f32[4]{0} get-tuple-element(%loop), index=1
  %chosen = f32[4]{0} conditional(%which.1, %last, %last), branch_computations={%few, %many}
  ROOT %end = f32[4]{0} call(%chosen), to_apply=%commands
}
"""


def test_kernels_of_loops_branches_and_calls_count_and_what_they_call_does_not():
    """In bytes: rows 0 + 4; call 12 + 4 + 16; condition 4 + 1; body, sort and copy 16 + 16."""
    assert kernel_bytes(PROGRAM, "run") == [4, 32, 5, 32, 32, 32]
    assert kernel_bytes(PROGRAM, "other")[0] == 1004


@pytest.mark.slow
@pytest.mark.cpu
@pytest.mark.skipif(not HAS_CUDA, reason="extra cuda12 or cuda13 not installed")
@pytest.mark.parametrize("runs", MAX_KERNELS)
def test_a_step_for_an_h100_has_few_kernels_and_groups_the_runs(runs):
    """In a process of its own: JAX loads its plugin once, and without a driver on no GPU's machine.

    Of several runs each convolution and both its gradients are one call, in groups.
    """
    module = "tests.continual.engine.cost.test_kernels"
    program = f"from {module} import compiled_step; print(compiled_step({runs}))"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    answer = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True
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


def compiled_step(runs: int) -> str:
    """Return the program of a step of ResNet-32 on IIRC-CIFAR, of several runs at once, vmapped."""
    sharding = jax.sharding.SingleDeviceSharding(chip_of_an_h100()[0])
    run = iirc_cifar().run
    state = initial_state(run)
    opened = jax.eval_shape(next_epoch, run, state)
    learned = state.result.memory, state.result.learner

    def placed(tree, *leading):
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(
                (*leading, *leaf.shape), leaf.dtype, sharding=sharding
            ),
            tree,
        )

    if runs == 1:
        sequence, key = placed((run.sequence, run.key))
        one = Run(run.build, run.protocol, placed(run.data), sequence, key)
        return lower_step(one).compile().as_text()

    def step(data, sequence, key, learned, opened):
        one = Run(run.build, run.protocol, data, sequence, key)
        return _one_step(one, 0, 0, 0, learned, opened)

    vmapped = jax.jit(jax.vmap(step, (None, 0, 0, 0, 0)), donate_argnums=3)
    several = placed((run.sequence, run.key, learned, opened), runs)
    return vmapped.lower(placed(run.data), *several).compile().as_text()
