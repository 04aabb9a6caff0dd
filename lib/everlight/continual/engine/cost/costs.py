"""Costs of a run, counted from shapes and from the program of one step, without training."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from everlight.base import Batch
from everlight.checks import checked
from everlight.continual.engine.run import Run
from everlight.continual.engine.sequence import initial_state, operations_per_step
from everlight.continual.engine.sources import stored_images
from everlight.trees import tree_bytes


class RunCost(NamedTuple):
    """Costs that do not depend on the values of data, sequence and key."""

    parameters: int
    """Number of the network's parameters."""
    parameter_copies: int
    """Copies held from the second task on, counted as in Díaz-Rodríguez et al. 2018."""
    memory_bytes: int
    """Allocated bytes of the strategy's memory; it holds stored samples by their index."""
    sample_bytes: int
    """Bytes of a stored sample; 0 where images are streamed."""
    batch_size: int
    """Samples per step."""
    operations: float
    """Floating-point operations of one step (`operations_per_step`)."""


@checked
def count_cost(run: Run) -> RunCost:
    """Count the costs of a run. The program of one step is traced, and nothing is trained."""
    result, images = initial_state(run).result, next(stored_images(run.data), None)
    return RunCost(
        sum(leaf.size for leaf in jax.tree.leaves(result.learner.params)),
        run.setup_and_strategy()[1].parameter_copies,
        tree_bytes(result.memory),
        0 if images is None else images.pieces.nbytes // len(images.pieces),
        run.protocol.batch_size,
        operations_per_step(run),
    )


@checked
def replayed_per_step(run: Run) -> int:
    """Return the number of stored samples that the strategy draws in every step.

    Args:
      run: one run, whose arrays may be shapes and dtypes alone.
    """
    strategy = run.setup_and_strategy()[1]
    if strategy.draw is None:
        return 0
    task = jax.tree.map(lambda leaf: leaf[0], run.sequence.tasks)
    index = jnp.zeros(run.protocol.batch_size, int)
    labels = jnp.zeros((len(index), task.train.labels.shape[-1]), int)
    batch = Batch(index, labels, jnp.ones(len(index)), jnp.zeros(len(index), bool))
    memory = initial_state(run).result.memory
    draws = jax.eval_shape(strategy.draw, memory, batch, task, run.key)
    drawn = jax.tree.leaves(draws, is_leaf=lambda part: isinstance(part, Batch))
    return sum(leaf.index.size for leaf in drawn if isinstance(leaf, Batch))
