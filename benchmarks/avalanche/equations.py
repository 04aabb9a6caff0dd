"""everlight's strategies with the equations in which avalanche-lib 0.6 differs put in.

Where Avalanche's weights differ from everlight's, the difference is shown to be these equations and
nothing else: with them the weights are the same, step by step (`cases.py`). B are the
batches of a task's samples in their stored order, g the gradient of the task's loss.

    EWC   F = mean over B of (mean of g over B)², not the mean of g²; λ where everlight has λ/2
    SI    ω = −Σ (g + ∂penalty)·Δθ, not −Σ g·Δθ;  Ω = min(Σ_t ω_t / (Δθ_t² + ξ), 0.001), of either
          sign, not Σ_t max(ω_t, 0) / (Δθ_t² + ξ)
    MAS   Ω of a task = mean over B of |∂ mean over B of ‖F‖²|;  Ω ← α Ω + (1 − α) Ω of the task,
          not their sum
    GEM   GGᵀ + 0.001 I in the program, not GGᵀ

Avalanche's memories are not reservoirs: of n seen classes each has capacity / n random
samples, renewed at a task's end (replay by task instead of class, DER with the logits of that
moment) or at its beginning, with the new task's own (ER-ACE). Replay and ER-ACE draw from them in
passes in random order, A-GEM in passes of one order, a part of every earlier task.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Outputs, Samples, StepInfo, Task
from everlight.continual import (
    Setup,
    Strategy,
    agem,
    der_plus_plus,
    er_ace,
    ewc,
    experience_replay,
    gem,
    mas,
    si,
)
from everlight.continual.strategies.der_plus_plus import TwoDraws
from everlight.continual.strategies.gem import project_to_cone
from everlight.continual.strategies.parts.exemplars import add_random_exemplars
from everlight.continual.strategies.parts.memory import (
    batch_at,
    draw_slots,
    empty_buffer,
    fill_up,
)
from everlight.continual.strategies.parts.passes import task_gradient, weighted_mean
from everlight.continual.strategies.parts.quadratic import (
    QuadraticSums,
    add_anchor,
    no_anchors,
    penalized,
    penalty_gradient,
    single_anchor,
)
from everlight.continual.strategies.parts.replayed import replayed_loss

LARGEST = 1e-3
"""Maximum of SI's importances."""
RIDGE = 1e-3
"""Ridge of GEM's program."""


def mean_over_batches(
    setup: Setup,
    learner: Learner,
    samples: Samples,
    size: int,
    measure: Callable[[Outputs, Int[Array, "b k"]], Float[Array, "b"]],
    of_gradient: Callable[[Array], Array],
) -> PyTree:
    """Return the mean over batches of a function of the gradient of a batch's mean.

    Args:
      setup: network and objective.
      learner: at the parameters in question.
      samples: of the task, padding last.
      size: samples per batch; the last may have fewer, and weighs as much.
      measure: of each sample.
      of_gradient: of each parameter.
    """
    count = jnp.sum(samples.mask)
    steps = -(-count // size)

    def add(step: Int[Array, ""], total: PyTree) -> PyTree:
        place = step * size + jnp.arange(size)
        slot = jnp.minimum(place, count - 1)
        inputs = setup.gather(samples.index[slot], None)

        def mean(params: PyTree) -> Float[Array, ""]:
            outputs, _ = setup.apply(params, learner.batch_stats, inputs, False, None)
            values = measure(outputs, samples.labels[slot])
            return weighted_mean(values, (place < count).astype(jnp.float32))

        addend = jax.tree.map(of_gradient, jax.grad(mean)(learner.params))
        return jax.tree.map(jnp.add, total, addend)

    zeros = jax.tree.map(jnp.zeros_like, learner.params)
    total = jax.lax.fori_loop(0, steps, add, zeros)
    return jax.tree.map(lambda leaf: leaf / steps, total)


def their_ewc(
    setup: Setup, regularization: float, size: int, online: bool = False, decay: float = 1.0
) -> Strategy:
    """Return EWC with the squared gradients of batches of `size`."""

    def end_task(
        memory: QuadraticSums, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[QuadraticSums, Learner]:
        def loss(outputs: Outputs, labels: Int[Array, "b k"]) -> Float[Array, "b"]:
            return setup.objective.loss(outputs, labels, learner.seen)

        fisher = mean_over_batches(setup, learner, task.train, size, loss, jnp.square)
        if not online:
            return add_anchor(memory, fisher, learner.params), learner
        running = jax.tree.map(lambda old, new: decay * old + new, memory.importance, fisher)
        return single_anchor(running, learner.params), learner

    return ewc(setup, regularization, online=online, decay=decay)._replace(end_task=end_task)


def their_mas(setup: Setup, regularization: float, size: int, alpha: float) -> Strategy:
    """Return MAS with gradients of batches of `size`, whose importances decay by α."""

    def end_task(
        memory: QuadraticSums, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[QuadraticSums, Learner]:
        def squared_length(outputs: Outputs, labels: Int[Array, "b k"]) -> Float[Array, "b"]:
            return jnp.sum(setup.objective.function(outputs, learner.seen) ** 2, axis=1)

        new = mean_over_batches(setup, learner, task.train, size, squared_length, jnp.abs)
        weight = jnp.where(task.id == 0, 0.0, alpha)
        blended = jax.tree.map(
            lambda old, end: weight * old + (1 - weight) * end, memory.importance, new
        )
        return single_anchor(blended, learner.params), learner

    return mas(setup, regularization)._replace(end_task=end_task)


class TheirPath(NamedTuple):
    """Memory of `their_si`."""

    sums: QuadraticSums
    path: PyTree
    start: PyTree
    total: PyTree
    """Σ_t ω_t / (Δθ_t² + ξ), before it is cut."""


def their_si(setup: Setup, regularization: float, damping: float) -> Strategy:
    """Return SI whose path integral has the penalty's gradient and whose importances are cut."""

    def init(key: PRNGKeyArray, learner: Learner) -> TheirPath:
        zeros = jax.tree.map(jnp.zeros_like, learner.params)
        return TheirPath(no_anchors(learner.params), zeros, learner.params, zeros)

    def begin_task(
        memory: TheirPath, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[TheirPath, Learner]:
        zeros = jax.tree.map(jnp.zeros_like, learner.params)
        return memory._replace(path=zeros, start=learner.params), learner

    def after_step(
        memory: TheirPath, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[TheirPath, Learner]:
        before = jax.tree.map(jnp.subtract, learner.params, info.update)
        path = jax.tree.map(
            lambda so_far, task, penalty, update: (
                so_far - (task + regularization * penalty) * update
            ),
            memory.path,
            info.task_gradient,
            penalty_gradient(memory.sums, before),
            info.update,
        )
        return memory._replace(path=path), learner

    def end_task(
        memory: TheirPath, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[TheirPath, Learner]:
        total = jax.tree.map(
            lambda old, path, end, start: old + path / ((end - start) ** 2 + damping),
            memory.total,
            memory.path,
            learner.params,
            memory.start,
        )
        cut = jax.tree.map(lambda leaf: jnp.minimum(leaf, LARGEST), total)
        return memory._replace(sums=single_anchor(cut, learner.params), total=total), learner

    free = si(setup, 0.0, damping)._replace(
        init=init, begin_task=begin_task, after_step=after_step, end_task=end_task
    )
    return penalized(setup, free, regularization, lambda memory: memory.sums, None)


def their_gem(setup: Setup, tasks: int, per_task: int, margin: float) -> Strategy:
    """Return GEM with a ridge: one more coordinate per task, where g is 0 and G has the ridge."""

    def grads(
        memory: Samples, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        def reference(held: Batch) -> Float[Array, "p"]:
            of_memory = jax.grad(lambda params: replayed_loss(setup, params, learner, held, key)[0])
            return ravel_pytree(of_memory(learner.params))[0]

        gradient, info = task_gradient(setup, learner, batch, key)
        flat, as_tree = ravel_pytree(gradient)
        references = jax.lax.map(reference, batch.replay)
        wide = jnp.concatenate([references, jnp.sqrt(RIDGE) * jnp.eye(tasks)], axis=1)
        projected = project_to_cone(jnp.append(flat, jnp.zeros(tasks)), wide, margin)
        return as_tree(projected[: flat.shape[0]]), info

    return gem(setup, tasks, per_task, margin)._replace(grads=grads)


class TheirTurns(NamedTuple):
    """Memory of `their_agem`."""

    samples: Samples
    """Samples of every task, `[t, m]`."""
    steps: Int[Array, ""]
    """Steps of the task so far."""


def their_agem(setup: Setup, tasks: int, per_task: int) -> Strategy:
    """Return A-GEM whose reference is the next part of every earlier task, in a fixed order."""
    held = gem(setup, tasks, per_task)

    def init(key: PRNGKeyArray, learner: Learner) -> TheirTurns:
        return TheirTurns(held.init(key, learner), jnp.zeros((), int))

    def draw(memory: TheirTurns, batch: Batch, task: Task, key: PRNGKeyArray) -> Batch:
        size = batch.index.shape[0]
        part = size // jnp.maximum(task.id, 1)
        places = memory.steps % (-(-per_task // part)) * part + jnp.arange(size)
        taken = (jnp.arange(size) < part) & (places < per_task)
        weight = (jnp.arange(tasks) < task.id)[:, None] & taken
        places = jnp.minimum(places, per_task - 1)
        rows = jax.tree.map(lambda leaf: leaf[:, places], memory.samples)
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), rows)
        weight = weight.reshape(-1).astype(jnp.float32)
        return Batch(flat.index, flat.labels, weight, jnp.ones(weight.shape, bool))

    def after_step(
        memory: TheirTurns, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[TheirTurns, Learner]:
        return memory._replace(steps=memory.steps + 1), learner

    def end_task(
        memory: TheirTurns, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[TheirTurns, Learner]:
        samples, learner = held.end_task(memory.samples, learner, task, key)
        return TheirTurns(samples, jnp.zeros((), int)), learner

    return agem(setup, per_task)._replace(
        init=init, draw=draw, after_step=after_step, end_task=end_task, stored_samples=None
    )


def renewed(
    buffer: Samples, capacity: int, learner: Learner, task: Task, key: PRNGKeyArray
) -> Samples:
    """Return a buffer with samples of the task's classes, equally many of every seen class."""
    buffer = add_random_exemplars(buffer, task.train, task.classes, key)
    slots = jnp.arange(buffer.mask.shape[0])
    label, place = jnp.divmod(slots, buffer.mask.shape[0] // learner.seen.shape[0])
    quota, left = jnp.divmod(capacity, jnp.sum(learner.seen))
    quota += (jnp.cumsum(learner.seen) - 1)[label] < left
    # Slots stand in random order, so that the first are a random part.
    return buffer._replace(mask=buffer.mask & (place < quota))


def their_slots(capacity: int, classes: int, first: int) -> Samples:
    """Return an empty buffer that the first task's classes can fill."""
    return empty_buffer(capacity // first * classes, 1)


def after_first(drawn: Batch, task: Task) -> Batch:
    """Return the replayed samples; none in the first task."""
    return drawn._replace(weight=jnp.where(task.id > 0, drawn.weight, 0.0))


class TheirPasses(NamedTuple):
    """Memory of `their_replay`."""

    samples: Samples
    steps: Int[Array, ""]
    """Steps of the task so far."""
    key: PRNGKeyArray
    """Key of the orders of the task's passes."""


def their_replay(
    setup: Setup, capacity: int, first: int, epoch_steps: int, at_beginning: bool
) -> Strategy:
    """Return ER or ER-ACE with Avalanche's memory; ER-ACE's is renewed at a task's beginning.

    A batch is the next part of the memory in random order. Plain replay begins a pass with every
    epoch and takes what is left as a smaller batch; ER-ACE leaves that out.

    Args:
      setup: what is static.
      capacity: samples held.
      first: classes of the first task.
      epoch_steps: in an epoch.
      at_beginning: whether it is ER-ACE.
    """
    plain = er_ace(setup, capacity) if at_beginning else experience_replay(setup, capacity)

    def init(key: PRNGKeyArray, learner: Learner) -> TheirPasses:
        slots = their_slots(capacity, learner.seen.shape[0], first)
        return TheirPasses(slots, jnp.zeros((), int), key)

    def draw(memory: TheirPasses, batch: Batch, task: Task, key: PRNGKeyArray) -> Batch:
        samples, size = memory.samples, batch.index.shape[0]
        held = jnp.sum(samples.mask)
        parts = jnp.maximum(held // size if at_beginning else -(-held // size), 1)
        epoch, step = (0, memory.steps) if at_beginning else jnp.divmod(memory.steps, epoch_steps)
        passed, part = jnp.divmod(step, parts)
        of_pass = jax.random.fold_in(memory.key, epoch * epoch_steps + passed)
        drawn = jnp.where(samples.mask, jax.random.uniform(of_pass, samples.mask.shape), -1.0)
        places = part * size + jnp.arange(size)
        slots = jnp.argsort(-drawn)[jnp.minimum(places, held - 1)]
        replayed = batch_at(samples, slots, (places < held).astype(jnp.float32))
        return after_first(replayed, task)

    def after_step(
        memory: TheirPasses, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[TheirPasses, Learner]:
        return memory._replace(steps=memory.steps + 1), learner

    def renew(
        memory: TheirPasses, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[TheirPasses, Learner]:
        samples = renewed(memory.samples, capacity, learner, task, key)
        return TheirPasses(samples, jnp.zeros((), int), key), learner

    return plain._replace(
        init=init,
        draw=draw,
        after_step=after_step,
        begin_task=renew if at_beginning else None,
        end_task=None if at_beginning else renew,
        stored_samples=None,
    )


class TheirDark(NamedTuple):
    """Memory of `their_der`."""

    samples: Samples
    logits: Float[Array, "m c"]


def their_der(setup: Setup, capacity: int, first: int, alpha: float, beta: float) -> Strategy:
    """Return DER++ with one replayed batch, of samples and logits from the end of their task."""

    def init(key: PRNGKeyArray, learner: Learner) -> TheirDark:
        slots = their_slots(capacity, learner.seen.shape[0], first)
        return TheirDark(slots, jnp.zeros((slots.mask.shape[0], learner.seen.shape[0])))

    def draw(memory: TheirDark, batch: Batch, task: Task, key: PRNGKeyArray) -> TwoDraws:
        slots, weight = draw_slots(memory.samples.mask, batch.index.shape[0], key)
        one = after_first(fill_up(batch_at(memory.samples, slots, weight), batch), task)
        return TwoDraws(one, memory.logits[slots], one)

    def end_task(
        memory: TheirDark, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[TheirDark, Learner]:
        samples = renewed(memory.samples, capacity, learner, task, key)
        inputs = setup.gather(samples.index, None)
        end = setup.apply(learner.params, learner.batch_stats, inputs, False, None)[0].logits
        new = task.classes[samples.labels[:, :1]]
        return TheirDark(samples, jnp.where(new, end, memory.logits)), learner

    return der_plus_plus(setup, capacity, alpha, beta)._replace(
        init=init, draw=draw, after_step=None, end_task=end_task, stored_samples=None
    )
