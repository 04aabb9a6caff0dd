"""eXtended dark experience replay (X-DER) with a fixed polytope head (Boschini et al. 2022, TPAMI).

The head has an output for every class from the start, as in Pernici et al. 2021 (RPC). The logits z
are the network's first c − 1 outputs times a fixed matrix S [c − 1, c], whose columns are the
vertices of a regular simplex. In task t, P are the classes of earlier tasks, N those of the task
and F the others:

    L = CE(batch; N) + α · mean ‖z(x') − z'‖² / c + β · CE(x''; P) + η · (mean⁺ h + mean⁺ g)
    h = max over F of z + m − max over own(x) of z        for x in the batch, x' and x''
    g = max over P of p + m − max over N of p             for x in the batch, p = softmax over P ∪ N

mean⁺ is the mean over positive values. x' and x'' are two draws from the memory, each without
replacement; a sample of both counts once in the mean of h. own(x) are the classes of the task of x.
g has no gradient through its first term. Stored logits z' are updated:

    z'_K ← z_K · γ z'_y / max z_K where max z_K > z'_y, else z_K

- at a step, for N ∪ F of drawn samples, with probability 1 / (number of its draws in this task);
- at the end of a task, for N ∪ F of samples of earlier tasks, and for P of new samples, whose other
  logits are the network's.

The memory of K samples is filled at the end of a task. Each class of P keeps at most K // |P ∪ N|
samples, and those of N divide the free slots as equally as possible.

The authors' code sets, on split CIFAR-100 with 500 samples, α = 0.1, β = 0.5, γ = 0.85, η = 0.1 and
m = 0.3.

Equal to the official code (aimagelab/mammoth, `xder_rpc.py`) at the simplex, the gradient of a
step, the stored logits and the sizes of classes in the memory; differs in:

- At the end of a task one pass over the memory gives the logits of old and new samples. In the
  official code new samples pass in batches of their task, which differs with batch norm alone.
- Tasks may have classes of any numbers; in the official code they are numbered in the order of
  equal tasks.

The constraint g is that of the code's first version (ee5c3bb) and of its `xder.py`; the present
version has it commented out, which is `past_constraint=False` in everlight. The default keeps it,
which was the more accurate form on split Fashion-MNIST. In the first version replayed batches
change the batch statistics as well; in everlight, as in the present one, they do not.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Coefficient, Learner, Samples, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveInt, UnitInterval, checked
from everlight.continual.engine.evaluation import update_rows
from everlight.continual.methods.method import SINGLE_LABEL_SCORES, Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.exemplars import exemplar_slots, random_ranks
from everlight.continual.strategies.parts.margins import future_excess, mean_positive, past_excess
from everlight.continual.strategies.parts.memory import (
    batch_at,
    draw_first_slots,
    empty_buffer,
    fill_up,
    merge_buffer,
)
from everlight.continual.strategies.parts.passes import batch_loss, batch_outputs, weighted_mean
from everlight.continual.strategies.parts.polytope import with_polytope

BLOCK = 32
"""Samples per pass at the end of a task."""


class ExtendedMemory(NamedTuple):
    """Memory of X-DER."""

    samples: Samples
    """Samples of finished tasks; the filled slots come first."""
    logits: Float[Array, "m c"]
    draws: Int[Array, "m"]
    """Number of steps of the current task that drew the sample."""
    class_task: Int[Array, "c"]
    """Task of each class, -1 before it begins."""


class SlotDraw(NamedTuple):
    """Batch that a step replays, its slots in the memory, and the logits stored in these slots."""

    batch: Batch
    slots: Int[Array, "b"]
    logits: Float[Array, "b c"]


class StepSettings(NamedTuple):
    """Arguments of `xder_rpc` for the gradient of a step and the logits that it stores."""

    alpha: Coefficient
    beta: Coefficient
    gamma: float
    eta: Coefficient
    margin: Coefficient
    past_constraint: bool


@checked
def xder_rpc(
    setup: Setup,
    buffer_size: PositiveInt = 200,
    alpha: Coefficient = 0.1,
    beta: Coefficient = 0.5,
    gamma: UnitInterval = 0.85,
    eta: Coefficient = 0.1,
    margin: Coefficient = 0.3,
    past_constraint: bool = True,
    labels: PositiveInt = 1,
    replay_batch_size: PositiveInt | None = None,
) -> Strategy:
    """Return X-DER with a fixed polytope head (RPC), whose memory is `ExtendedMemory`.

    Every class belongs to one task.

    Args:
      setup: network, objective, optimizer and data access.
      buffer_size: number of stored samples.
      alpha: coefficient α of the squared distance of logits.
      beta: coefficient β of the cross-entropy over the classes of earlier tasks.
      gamma: largest updated logit relative to that of the label, γ.
      eta: coefficient η of both constraints.
      margin: distance m by which the largest value of a sample's own task exceeds the others.
      past_constraint: True adds the constraint g on the probabilities of past classes.
      labels: labels per sample in the sequence; the first one is used.
      replay_batch_size: samples per draw, at most the stored ones; None is the size of the incoming
        batch.

    Raises:
      ValueError: at `init`, `buffer_size` is less than one sample per class.
    """
    setup = with_polytope(setup)
    settings = StepSettings(alpha, beta, gamma, eta, margin, past_constraint)

    def init(key: PRNGKeyArray, learner: Learner) -> ExtendedMemory:
        classes = learner.seen.shape[0]
        # A class with no share would keep no sample of its own.
        exemplar_slots(1, buffer_size, classes)
        return ExtendedMemory(
            empty_buffer(buffer_size, labels),
            jnp.zeros((buffer_size, classes)),
            jnp.zeros(buffer_size, jnp.int32),
            jnp.full(classes, -1, jnp.int32),
        )

    def draw(
        memory: ExtendedMemory, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[SlotDraw, SlotDraw]:
        held, size = memory.samples, replay_batch_size or batch.index.shape[0]

        def draw_view(key: PRNGKeyArray) -> SlotDraw:
            slots, weight = draw_first_slots(jnp.sum(held.mask), buffer_size, size, key)
            drawn = fill_up(batch_at(held, slots, weight), batch)
            return SlotDraw(drawn, slots, memory.logits[slots])

        first, second = map(draw_view, jax.random.split(key))
        return first, second

    def grads(
        memory: ExtendedMemory, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        return step_gradient(setup, settings, memory, learner, batch, task, key)

    def end_task(
        memory: ExtendedMemory, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[ExtendedMemory, Learner]:
        key_choice, key_order, key_pass = jax.random.split(key, 3)
        candidates = merge_buffer(task.train, memory.samples).samples
        stored = jnp.pad(memory.logits, ((task.train.index.shape[0], 0), (0, 0)))
        past = learner.seen & ~task.classes
        chosen = balanced_choice(candidates, memory.samples, past, task.classes, key_choice)
        rows = shuffled_rows(chosen, buffer_size, key_order)
        samples = jax.tree.map(lambda leaf: leaf[rows], candidates)._replace(mask=chosen[rows])
        new = training_logits(setup, learner, samples, key_pass)
        label = jnp.maximum(samples.labels[:, 0], 0)
        old = past[label][:, None]
        logits = jnp.where(
            old,
            transplant_logits(stored[rows], new, label, ~past, gamma),
            transplant_logits(new, new, label, past, gamma),
        )
        draws = jnp.zeros_like(memory.draws)
        return memory._replace(samples=samples, logits=logits, draws=draws), learner

    return naive(setup)._replace(
        init=init,
        begin_task=number_classes,
        draw=draw,
        grads=grads,
        after_step=store_logits,
        end_task=end_task,
        stored_samples=lambda memory, task: jnp.sum(memory.samples.mask),
    )


def number_classes(
    memory: ExtendedMemory, learner: Learner, task: Task, key: PRNGKeyArray
) -> tuple[ExtendedMemory, Learner]:
    """Return the memory in which the classes of a task that begins have its number."""
    class_task = jnp.where(task.classes, task.id.astype(jnp.int32), memory.class_task)
    return memory._replace(class_task=class_task), learner


def store_logits(
    memory: ExtendedMemory, learner: Learner, info: StepInfo, key: PRNGKeyArray
) -> tuple[ExtendedMemory, Learner]:
    """Return the memory with updated logits of the step's draws, at one over their number."""
    matched, labelled = info.batch.replay
    slots = jnp.concatenate([matched.slots, labelled.slots])
    counts = jnp.concatenate(distinct_weights(matched, labelled)) > 0
    # Slots past the end are dropped.
    end = memory.draws.shape[0]
    draws = memory.draws.at[jnp.where(counts, slots, end)].add(1, mode="drop")
    chosen = counts & (jax.random.uniform(key, slots.shape) * draws[slots] < 1)
    target = jnp.where(chosen, slots, end)
    logits = memory.logits.at[target].set(jnp.concatenate(info.aux), mode="drop")
    return memory._replace(logits=logits, draws=draws), learner


def step_gradient(
    setup: Setup,
    settings: StepSettings,
    memory: ExtendedMemory,
    learner: Learner,
    batch: Batch,
    task: Task,
    key: PRNGKeyArray,
) -> tuple[PyTree, StepInfo]:
    """Return the gradient of L, and the step, whose aux are the updated logits of both draws."""
    matched, labelled = batch.replay
    key_batch, key_matched, key_labelled = jax.random.split(key, 3)
    past, future = learner.seen & ~task.classes, ~learner.seen
    # Without earlier tasks nothing is drawn; the loss over no class would have no gradient.
    among = jnp.where(jnp.any(past), past, learner.seen)
    drawn_first, drawn_again = distinct_weights(matched, labelled)

    def loss(params: PyTree) -> tuple[Float[Array, ""], tuple]:
        present = learner._replace(seen=task.classes)
        task_loss, (outputs, stats) = batch_loss(setup, params, present, batch, key_batch)
        # Replayed passes leave the batch statistics as they are.
        now, _ = batch_outputs(setup, params, learner, matched.batch, key_matched)
        away = jnp.mean((now.logits - matched.logits) ** 2, axis=1)
        again, _ = batch_outputs(setup, params, learner, labelled.batch, key_labelled)
        replay_losses = setup.objective.loss(again, labelled.batch.labels, among)
        behind = past_excess(outputs.logits, learner.seen, past, task.classes, settings.margin)
        excess = [
            future_excess(logits, drawn.labels[:, 0], memory.class_task, future, settings.margin)
            for logits, drawn in (
                (outputs.logits, batch),
                (now.logits, matched.batch),
                (again.logits, labelled.batch),
            )
        ]
        excess, counts = map(jnp.concatenate, (excess, [batch.weight, drawn_first, drawn_again]))
        total = (
            task_loss
            + settings.eta * settings.past_constraint * mean_positive(behind, batch.weight)
            + settings.alpha * weighted_mean(away, matched.batch.weight)
            + settings.beta * weighted_mean(replay_losses, labelled.batch.weight)
            + settings.eta * mean_positive(excess, counts)
        )
        return total, (task_loss, stats, (now.logits, again.logits))

    gradient, (task_loss, stats, logits) = jax.grad(loss, has_aux=True)(learner.params)
    updated = tuple(
        transplant_logits(drawn.logits, new, drawn.batch.labels[:, 0], ~past, settings.gamma)
        for drawn, new in zip(batch.replay, logits, strict=True)
    )
    return gradient, StepInfo(gradient, stats, task_loss, updated)


def shuffled_rows(chosen: Bool[Array, "n"], size: int, key: PRNGKeyArray) -> Int[Array, "m"]:
    """Return rows of chosen samples in random order, then others, so that passes mix classes.

    Args:
      chosen: True for at most `size` samples.
      size: number of rows m.
      key: random key of the order.
    """
    rows = jnp.argsort(~chosen, stable=True)[:size]
    order = jax.random.uniform(key, (size,)) + ~chosen[rows]
    return rows[jnp.argsort(order)]


def training_logits(
    setup: Setup, learner: Learner, samples: Samples, key: PRNGKeyArray
) -> Float[Array, "m c"]:
    """Return logits of samples, augmented and in training mode; 0 where there is no sample."""

    def outputs_of(slots: Int[Array, "s"]) -> Float[Array, "s c"]:
        # The first slot of a block is that of no other block.
        key_inputs, key_net = jax.random.split(jax.random.fold_in(key, slots[0]))
        inputs = setup.gather(samples.index[slots], key_inputs)
        outputs, _ = setup.apply(learner.params, learner.batch_stats, inputs, True, key_net)
        return outputs.logits

    nothing = jnp.zeros((samples.mask.shape[0], learner.seen.shape[0]))
    return update_rows(outputs_of, samples.mask, BLOCK, nothing)


def transplant_logits(
    old: Float[Array, "b c"],
    new: Float[Array, "b c"],
    label: Int[Array, "b"],
    among: Bool[Array, "c"],
    gamma: float,
) -> Float[Array, "b c"]:
    """Return stored logits with those of some classes replaced by new ones, below the label's.

    Where the largest new one exceeds the stored logit of the label, all are multiplied by the
    factor that makes it `gamma` times that logit.

    Args:
      old: stored logits.
      new: logits of the network now.
      label: class of each sample, none of `among`.
      among: True for the classes that are replaced.
      gamma: largest new logit relative to that of the label.
    """
    label_logit = jnp.take_along_axis(old, label[:, None], axis=1)
    largest = jnp.max(jnp.where(among, new, -jnp.inf), axis=1, keepdims=True)
    # A sample whose features are all 0 has logits of 0, which no factor changes.
    exceeds = (largest > label_logit) & (largest != 0)
    scale = jnp.where(exceeds, gamma * label_logit / jnp.where(exceeds, largest, 1), 1)
    return jnp.where(among, scale * new, old)


def distinct_weights(
    first: SlotDraw, second: SlotDraw
) -> tuple[Float[Array, "b"], Float[Array, "b"]]:
    """Return the weights of two draws, 0 in the second one for samples of the first."""
    held = first.batch.weight > 0
    again = jnp.any((second.slots[:, None] == first.slots) & held, axis=1)
    return first.batch.weight, second.batch.weight * ~again


def balanced_choice(
    candidates: Samples,
    stored: Samples,
    past: Bool[Array, "c"],
    present: Bool[Array, "c"],
    key: PRNGKeyArray,
) -> Bool[Array, "n"]:
    """Return True for the samples that a full memory keeps when a task ends.

    Args:
      candidates: samples of the task and of the memory.
      stored: samples of the memory, whose number of slots is shared.
      past: classes of earlier tasks.
      present: classes of the task.
      key: random key of the choice.
    """
    slots, classes = stored.mask.shape[0], past.shape[0]
    key_samples, key_classes = jax.random.split(key)
    share = slots // jnp.maximum(jnp.sum(past | present), 1)
    held = jnp.zeros(classes, jnp.int32).at[stored.labels[:, 0]].add(stored.mask)
    free = slots - jnp.sum(jnp.where(past, jnp.minimum(held, share), 0))
    number = jnp.maximum(jnp.sum(present), 1)
    drawn = jax.random.uniform(key_classes, (classes,)) + ~present
    position = jnp.argsort(jnp.argsort(drawn))
    quota = jnp.where(past, share, free // number + (position < free % number))
    rank = random_ranks(candidates._replace(labels=candidates.labels[:, :1]), key_samples)[:, 0]
    return (rank >= 0) & (rank < quota[jnp.maximum(candidates.labels[:, 0], 0)])


METHODS = (
    Method(
        "X-DER-RPC",
        xder_rpc,
        Publication("Boschini et al.", 2022, "TPAMI", ("samples",)),
        "extended dark experience replay (X-DER) with a fixed polytope head (RPC)",
        requirements=(*SINGLE_LABEL_SCORES, "disjoint classes", "chosen classes"),
        authors={
            "alpha": 0.1,
            "beta": 0.5,
            "gamma": 0.85,
            "eta": 0.1,
            "margin": 0.3,
            "past_constraint": False,
            "batch size": 32,
            "replay_batch_size": 32,
            "epochs per task": 50,
        },
        # The usual loss reads the outputs that the fixed head multiplies.
        has_review=False,
        planned_total="classes",
    ),
)
