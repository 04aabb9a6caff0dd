"""A whole sequence of tasks as one pure function, and the program of one of its steps."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from everlight.base import Learner, Memory, Setup, Strategy
from everlight.checks import checked
from everlight.continual.engine.epochs import (
    ShuffledEpoch,
    StepScores,
    epoch_step,
    strategy_protocol,
)
from everlight.continual.engine.input_checks import refuse_unfit
from everlight.continual.engine.keys import epoch_keys, task_keys
from everlight.continual.engine.placeholders import unmeasured_to_nan
from everlight.continual.engine.run import Run, SequenceResult, SequenceState
from everlight.continual.engine.tasks import (
    begin_state,
    begin_task,
    end_task,
    learn_epochs,
    next_epoch,
    take_task,
)
from everlight.trees import shapes_with


@checked
def run_sequence(run: Run) -> SequenceResult:
    """Train on a whole sequence of tasks, as one pure function for `jit` and `vmap`.

    If training diverges, `losses` and the floats of `evaluation` are NaN from then on, since
    compiled code cannot raise. `jit(run_sequence)` keeps one program per build and protocol until
    `jax.clear_caches`.

    Args:
      run: build, protocol, data, sequence and key.

    Raises:
      ValueError: the best epoch is to be kept and a task has no validation samples; the strategy
        needs boundaries and the protocol has none; the sequence does not fit the images; or images
        are not finite (`refuse_unfit`). Traced values cannot be checked: without validation samples
        the last epoch is then kept, the learning rate stays, and `validation` is NaN.
    """
    refuse_unfit(run.protocol, run.data, run.sequence)
    protocol = run.protocol

    def one_task(state: SequenceState, _: None) -> tuple[SequenceState, None]:
        epochs = jnp.where(state.task == 0, protocol.epochs_of(0), protocol.epochs)
        return end_task(run, learn_epochs(run, begin_task(run, state), epochs)), None

    state, _ = jax.lax.scan(one_task, begin_state(run), None, length=run.tasks)
    return unmeasured_to_nan(protocol, state).result


@checked
def initial_state(run: Run) -> SequenceState:
    """Return shapes and dtypes of the state before the first task.

    The run's arrays may be shapes and dtypes too (`jax.ShapeDtypeStruct`).
    """
    return jax.eval_shape(_separate_function(begin_state), run)


@checked
def lower_step(run: Run) -> jax.stages.Lowered:
    """Return one training step, traced but neither compiled nor run.

    Its `.compile()` compiles ahead of time and reports memory and cost. The run's arrays may be
    shapes and dtypes (`jax.ShapeDtypeStruct`), also with shardings over devices that this machine
    does not have.
    """
    state = initial_state(run)
    learned = state.result.memory, state.result.learner
    epoch = jax.eval_shape(_separate_function(next_epoch), run, state)
    leaves = jax.tree.leaves(run.data)
    placed = {leaf.sharding for leaf in leaves if getattr(leaf, "sharding", None)}
    if len(placed) == 1:
        (sharding,) = placed
        learned, epoch = shapes_with(sharding, (learned, epoch))
    return jax.jit(_separate_function(_single_step), donate_argnums=4).lower(
        run, 0, 0, 0, learned, epoch
    )


@checked
def operations_per_step(run: Run) -> float:
    """Return the floating-point operations of one training step, by XLA's cost analysis.

    On CPU the traced program is analysed, which takes 5% of the time of compiling and differs by 1
    to 2%. Accelerators' plugins analyse only compiled programs. Loops inside the step are counted
    once (GEM's quadratic program). Random bits and data movement are not counted. For a strategy
    that trains only on memory (`Strategy.memory_training`), the step is one on memory.

    Args:
      run: one run, whose arrays may be shapes and dtypes alone.
    """
    _, strategy = run.setup_and_strategy()
    memory_training = strategy.memory_training
    if memory_training is None:
        lowered = lower_step(run)
    else:

        def memory_build(data: Any) -> tuple[Setup, Strategy]:
            setup, strategy = run.build(data)
            return setup, strategy.memory_training.strategy

        memory_protocol = replace(run.protocol, batch_size=memory_training.batch_size)
        lowered = lower_step(replace(run, build=memory_build, protocol=memory_protocol))
    cost = lowered.cost_analysis() or lowered.compile().cost_analysis()
    return float(cost["flops"])


def _single_step(
    run: Run,
    number: Int[Array, ""] | int,
    epoch: Int[Array, ""] | int,
    step: Int[Array, ""] | int,
    learned: tuple[Memory, Learner],
    epoch_samples: ShuffledEpoch,
) -> tuple[tuple[Memory, Learner], StepScores]:
    setup, strategy = run.setup_and_strategy()
    task = take_task(strategy, run.protocol, run.sequence, jnp.int32(number))
    key = epoch_keys(task_keys(run.key, number).epochs, epoch).steps
    protocol = strategy_protocol(strategy, run.protocol)
    memory, learner, scores = epoch_step(
        setup, strategy, protocol, *learned, epoch_samples, task, step, key
    )
    return (memory, learner), scores


def _separate_function(function: Callable) -> Callable:
    """Return a function whose programs JAX forgets when it is deleted."""
    return partial(function)
