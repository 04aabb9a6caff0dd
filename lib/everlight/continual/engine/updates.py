"""One update: a batch is completed with inputs and replay, and a training step is taken."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Memory, Setup, StepInfo, Strategy, Task
from everlight.checks import checked
from everlight.continual.engine.evaluation import gather_inputs
from everlight.continual.engine.keys import batch_keys, update_keys


class StrategyError(TypeError):
    """Error about what a function of a strategy returned."""


@checked
def train_step(
    setup: Setup,
    strategy: Strategy,
    memory: Memory,
    learner: Learner,
    batch: Batch,
    task: Task,
    key: PRNGKeyArray,
    arrives: Bool[Array, ""] | bool = True,
) -> tuple[Memory, Learner, Float[Array, ""]]:
    """Take a training step; returns memory, learner and the batch's loss.

    Args:
      setup: network, objective, optimizer and data access.
      strategy: strategy that computes the gradient.
      memory: memory of the strategy.
      learner: learner before the step.
      batch: samples of the step, without inputs.
      task: current task.
      key: random key of the step, split into `keys.StepKeys`.
      arrives: True if the batch enters memory after this step, the last of several on one batch.

    Raises:
      StrategyError: a function of the strategy returned a wrong structure.
    """
    keys = update_keys(key)
    batch = complete_batch(setup, strategy, memory, batch, task, keys.batch)
    returned = strategy.grads(memory, learner, batch, task, keys.gradient)
    if not (isinstance(returned, tuple) and isinstance(returned[-1], StepInfo)):
        raise StrategyError(
            f"grads returned {type(returned).__name__}; it must return (gradient, StepInfo)"
        )
    gradient, info = returned
    if _shapes(gradient) != _shapes(learner.params):
        raise StrategyError(
            "grads must return a gradient with the structure and shapes of the parameters, "
            f"{_shapes(learner.params)}; it returned {_shapes(gradient)}"
        )
    update, opt_state = optimizer_update(setup, learner, gradient)
    learner = learner._replace(
        params=optax.apply_updates(learner.params, update),
        batch_stats=info.batch_stats,
        opt_state=opt_state,
        step=learner.step + 1,
    )
    info = info._replace(batch=batch, update=update, arrives=jnp.asarray(arrives))
    memory, learner = call_hook(strategy, "after_step", (memory, learner), info, keys.after)
    return memory, learner, info.loss


def optimizer_update(
    setup: Setup, learner: Learner, gradient: PyTree
) -> tuple[PyTree, optax.OptState]:
    """Return the change of the parameters that a gradient causes, and the optimizer's new state."""
    update, opt_state = setup.optimizer.update(gradient, learner.opt_state, learner.params)
    update = jax.tree.map(lambda leaf: leaf * learner.schedule.factor, update)
    return trainable_part(setup, learner.params, update), opt_state


def optimizer_step(setup: Setup, learner: Learner, gradient: PyTree) -> Learner:
    """Return the learner after a step of its optimizer, which is not counted in its steps."""
    update, opt_state = optimizer_update(setup, learner, gradient)
    return learner._replace(params=optax.apply_updates(learner.params, update), opt_state=opt_state)


def complete_batch(
    setup: Setup, strategy: Strategy, memory: Memory, batch: Batch, task: Task, key: PRNGKeyArray
) -> Batch:
    """Return the batch with its inputs, and with the strategy's draw from memory."""
    keys = batch_keys(key)
    batch = with_inputs(setup, batch, keys.inputs)
    if strategy.draw is None:
        return batch
    drawn = strategy.draw(memory, batch, task, keys.draw)
    leaves, tree = jax.tree.flatten(drawn, is_leaf=_is_batch)
    if not any(map(_is_batch, leaves)):
        raise StrategyError("draw returned no Batch; return one or more (memory.batch_at)")
    for position, leaf in enumerate(leaves):
        if _is_batch(leaf):
            leaves[position] = with_inputs(setup, leaf, jax.random.fold_in(keys.replay, position))
    return batch._replace(replay=jax.tree.unflatten(tree, leaves))


def with_inputs(setup: Setup, batch: Batch, key: PRNGKeyArray) -> Batch:
    """Return the batch, or a stack of batches, with the inputs of its samples, augmented."""
    inputs = gather_inputs(setup, batch.index.reshape(-1), key)
    return batch._replace(inputs=inputs.reshape(*batch.index.shape, *inputs.shape[1:]))


def call_hook(
    strategy: Strategy, name: str, learned: tuple[Memory, Learner], *arguments: Any
) -> tuple[Memory, Learner]:
    """Return memory and learner after a function of the strategy; unchanged if it is None.

    Args:
      strategy: strategy whose function is called.
      name: name of the function, which returns memory and learner.
      learned: memory and learner before the call.
      arguments: the other arguments of the function.

    Raises:
      StrategyError: the result is not a memory and a learner like those before the call.
    """
    function = getattr(strategy, name)
    if function is None:
        return learned
    returned = function(*learned, *arguments)
    rule = f"{name} must return (memory, learner) with the structure of its arguments"
    if jax.tree.structure(returned) != jax.tree.structure(learned):
        raise StrategyError(f"{rule}; it returned {jax.tree.structure(returned)}")
    after, before = (jax.tree_util.tree_leaves_with_path(tree) for tree in (returned, learned))
    for (path, new), (_, old) in zip(after, before, strict=True):
        if (jnp.shape(new), jnp.result_type(new)) != (jnp.shape(old), jnp.result_type(old)):
            part = ("memory", "learner")[path[0].idx] + jax.tree_util.keystr(path[1:])
            raise StrategyError(
                f"{rule}: {part} was {jnp.result_type(old)}{list(jnp.shape(old))}, is "
                f"{jnp.result_type(new)}{list(jnp.shape(new))}"
            )
    return returned


def trainable_part(setup: Setup, params: PyTree, update: PyTree) -> PyTree:
    """Return the update, 0 for parameters that the setup freezes."""
    if setup.trainable is None:
        return update
    keep = setup.trainable(params)
    return jax.tree.map(lambda leaf, is_trainable: jnp.where(is_trainable, leaf, 0), update, keep)


def _shapes(tree: PyTree) -> dict[str, tuple[int, ...]]:
    """Return the shape of each leaf by its place in the tree."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): jnp.shape(leaf) for path, leaf in leaves}


def _is_batch(leaf: PyTree) -> bool:
    return isinstance(leaf, Batch)
