"""A program that compiles a training step for an H100: `RUNS`; prints the compiled program."""

import sys

import jax

from everlight.continual import Run
from everlight.continual.engine.cost.targets import chip_of_an_h100
from everlight.continual.engine.sequence import _single_step, initial_state, lower_step
from everlight.continual.engine.tasks import next_epoch
from everlight_experiments.commands.cost import iirc_cifar


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
        return _single_step(one, 0, 0, 0, learned, opened)

    vmapped = jax.jit(jax.vmap(step, (None, 0, 0, 0, 0)), donate_argnums=3)
    several = placed((run.sequence, run.key, learned, opened), runs)
    return vmapped.lower(placed(run.data), *several).compile().as_text()


if __name__ == "__main__":
    print(compiled_step(int(sys.argv[1])))
