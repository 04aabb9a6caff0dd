"""OCM's step against the official code's in float64 NumPy, given its draws."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.continual.engine.keys import batch_keys, update_keys
from everlight.continual.engine.updates import train_step
from everlight.continual.strategies.experience_replay import Reservoir
from everlight.continual.strategies.ocm import ocm
from everlight.continual.strategies.parts.instance_losses import class_losses
from everlight.continual.strategies.parts.projection import Linear
from everlight.continual.strategies.parts.teacher import Teacher
from tests.continual import small_net as net
from tests.continual.instance_reference import (
    BENT,
    all_forms,
    cross_entropy,
    features_of,
    form_labels,
    instance,
    projections_of,
    xent_n,
    xent_pre,
    xent_uni,
)
from tests.continual.small_net import CLASSES, DATA, HIDDEN, LABELS, RATE, SHIFT, START

MOMENTUM, TEMPERATURE, SIMILARITY, WIDTH = 0.5, 0.4, 0.6, 3
# Momentum gives the projection its own state.
SETUP = net.small_setup()._replace(optimizer=optax.sgd(RATE, MOMENTUM))
_rng = np.random.default_rng(5)
OLD = {name: leaf + 0.3 * _rng.normal(size=leaf.shape) for name, leaf in START.items()} | {
    "p kernel": _rng.normal(size=(HIDDEN, WIDTH)),
    "p bias": _rng.normal(size=WIDTH),
}


def change_of(key):
    """Return the factor that makes an image's second view."""
    return jax.random.uniform(key, minval=-1.0, maxval=-0.2)


def changes_of(key, weight, forms=1):
    """Return the factors of all forms of the samples that are no padding, each of its own key."""
    drawn = jax.vmap(jax.vmap(change_of))(jax.random.split(key, (forms, len(weight))))
    return np.float64(drawn[:, weight > 0]).reshape(-1, 1)


def strategy_of(**arguments):
    return ocm(
        SETUP,
        12,
        8,
        TEMPERATURE,
        SIMILARITY,
        WIDTH,
        augment=lambda inputs, key: change_of(key) * inputs,
        forms=lambda inputs: jnp.stack([inputs, inputs[::-1] * BENT]),
        **arguments,
    )


def logits_of(params, inputs):
    return features_of(params, inputs) @ params["head"] + params["head_bias"]


# The step is the official code's, with the forms and views of the reference for its own.


def first_loss(params, index, starts, changes, seen):
    """Compute the loss of the first task."""
    inputs, labels = DATA[index] + SHIFT, LABELS[index]
    incoming = partial(xent_n, temperature=TEMPERATURE)
    loss, _ = instance(params, inputs, labels, starts[0], 1.0, incoming, changes["incoming"])
    return np.mean(cross_entropy(params, changes["network"] * inputs, labels, seen)) + loss


def later_loss(params, index, replayed, starts, changes, seen, known):
    """Compute the loss of a later task; the first `known` outputs are those of earlier tasks."""
    incoming, stored, with_previous = (
        partial(loss, temperature=TEMPERATURE) for loss in (xent_n, xent_uni, xent_pre)
    )
    x, mem_x, mem_y = DATA[index] + SHIFT, DATA[replayed] + SHIFT, LABELS[replayed]
    loss_sim, _ = instance(
        params, x, LABELS[index], starts[0], SIMILARITY, incoming, changes["incoming"]
    )
    loss_sim_r, z = instance(
        params, mem_x, mem_y, starts[1], SIMILARITY, stored, changes["replayed"]
    )
    _, pre_u = projections_of(OLD, all_forms(mem_x))
    loss_sim_pre = with_previous(z[: len(pre_u)] @ pre_u.T, form_labels(mem_y))
    y_label = logits_of(params, changes["network"] * mem_x)
    y_label_pre = logits_of(OLD, changes["teacher"] * mem_x)
    distance = np.mean((y_label_pre[:, :known] - y_label[:, :known]) ** 2)
    entropy = np.mean(cross_entropy(params, changes["network"] * mem_x, mem_y, seen))
    return entropy + loss_sim_r + loss_sim + loss_sim_pre + distance


@pytest.mark.parametrize(
    ("later", "stored", "loss_over"),
    [(False, 5, "seen"), (True, 12, "seen"), (True, 5, "all")],
)
def test_a_step_is_the_official_one_given_its_draws(later, stored, loss_over):
    strategy = strategy_of(loss_over=loss_over)
    start = net.untrained(SETUP, strategy)[0]
    held = net.samples_of(np.arange(8, 20), np.arange(12) < stored)
    seen, old = ([0, 1, 2, 3, 4, 5], [0, 1, 2]) if later else ([0, 1, 2], [])
    teacher = Teacher(
        net.as_float32({name: OLD[name] for name in START}),
        {"passes": jnp.array(0)},
        net.classes_mask(old),
    )
    memory = start._replace(
        held=Reservoir(held, jnp.int32(stored)),
        teacher=teacher,
        teacher_layers=(Linear(jnp.float32(OLD["p kernel"]), jnp.float32(OLD["p bias"])),),
        later=jnp.array(later),
    )
    learner = net.small_learner(SETUP, seen)
    learner = learner._replace(opt_state=SETUP.optimizer.init(learner.params))
    index, task = np.array([0, 6, 1, 8]), net.task_of(1, [0, 1, 2], [0, 1, 2])
    batch, key = net.batch_of([*index, 3], [1, 1, 1, 1, 0]), jax.random.key(11)
    drawn = strategy.draw(memory, batch, task, batch_keys(update_keys(key).batch).draw)
    replayed = np.asarray(drawn.replayed.index)[np.asarray(drawn.replayed.weight) > 0]
    assert len(replayed) == min(8, stored)
    starts = [int(first) for first in drawn.starts]
    keys = jax.random.split(update_keys(key).gradient, 8)
    replay_weight = drawn.replayed.weight
    changes = {
        "incoming": changes_of(keys[0], batch.weight, 2),
        "replayed": changes_of(keys[1], replay_weight, 2),
        "network": changes_of(keys[4], replay_weight if later else batch.weight),
        "teacher": changes_of(keys[6], replay_weight),
    }
    outputs = [*range(CLASSES)] if loss_over == "all" else seen
    (layer,) = start.projection.layers
    params = START | {
        "p kernel": np.asarray(layer.kernel, float),
        "p bias": np.asarray(layer.bias, float),
    }

    def official(params):
        if later:
            return later_loss(params, index, replayed, starts, changes, outputs, len(old))
        return first_loss(params, index, starts, changes, outputs)

    slope = net.finite_differences(official, params)
    after, learned, loss = jax.jit(
        lambda m, n: train_step(SETUP, strategy, m, n, batch, task, key)
    )(memory, learner)
    np.testing.assert_allclose(loss, official(params), rtol=1e-5)
    expected = {name: params[name] - RATE * slope[name] for name in params}
    (layer,) = after.projection.layers
    result = dict(learned.params) | {"p kernel": layer.kernel, "p bias": layer.bias}
    net.assert_trees_close(result, expected, rtol=1e-4, atol=2e-5)
    # All forms in one pass, and the second views of the cross-entropy in another.
    assert learned.batch_stats["passes"] == 2
    assert int(after.held.arrived) == stored + 4


def test_windows_of_features_begin_uniformly_and_independently():
    """The official starts are `randperm(features - outputs)[0]`, here 0 or 1."""
    strategy = strategy_of()
    memory, _ = net.untrained(SETUP, strategy)
    task = net.task_of(1, [0, 1, 2], [0, 1, 2])
    draw = jax.vmap(lambda key: strategy.draw(memory, net.batch_of([0]), task, key).starts)
    starts = np.asarray(draw(jax.random.split(jax.random.key(0), 2000)))
    pairs, counts = np.unique(starts, axis=0, return_counts=True)
    np.testing.assert_array_equal(pairs, [[0, 0], [0, 1], [1, 0], [1, 1]])
    # The deviation of each count is 19.
    np.testing.assert_allclose(counts, 500, atol=80)


def test_a_task_begins_with_the_network_and_the_projection_of_then():
    tasks = [
        (net.task_of(0, [0, 1], [0, 6, 1]), [[0, 6, 1]] * 2),
        (net.task_of(1, [2, 3], [2, 8, 3]), [[2, 8, 3]]),
    ]
    strategy = strategy_of()
    (first, before), (second, learner) = net.run_tasks(SETUP, strategy, tasks)
    assert not first.later
    assert second.later
    net.assert_trees_close(second.teacher.params, before.params, rtol=0, atol=0)
    np.testing.assert_array_equal(second.teacher.known, net.classes_mask([0, 1]))
    (old,), (layer,) = second.teacher_layers, second.projection.layers
    np.testing.assert_array_equal(old.kernel, first.projection.layers[0].kernel)
    assert np.any(old.kernel != layer.kernel)
    assert np.any(second.teacher.params["head"] != learner.params["head"])
    # The official code makes one optimizer for all tasks.
    started, _ = net.begin(SETUP, strategy, first, before, tasks[1][0])
    jax.tree.map(np.testing.assert_array_equal, started.projection, first.projection)
    trace = jax.tree.leaves(first.projection.opt_state)
    assert all(np.any(np.asarray(leaf) != 0) for leaf in trace)


def test_an_empty_memory_in_a_later_task_leaves_the_losses_of_incoming_samples():
    strategy = strategy_of()
    memory, learner = net.untrained(SETUP, strategy)
    learner = learner._replace(seen=net.classes_mask([0, 1, 2, 3]))
    task = net.task_of(1, [2, 3], [2, 3])
    memory, _ = strategy.begin_task(memory, learner, task, jax.random.key(0))
    batch = net.batch_of([2, 3, 8])
    _, learned, loss = jax.jit(partial(train_step, SETUP, strategy))(
        memory, learner, batch, task, jax.random.key(1)
    )
    assert np.isfinite(loss)
    np.testing.assert_array_equal(learned.params["head"], learner.params["head"])
    assert np.any(np.asarray(learned.params["hidden"]) != np.asarray(learner.params["hidden"]))
    assert learned.batch_stats["passes"] == 1


def test_padding_has_no_effect_on_losses_with_the_old_network():
    near = jnp.float32(np.random.default_rng(1).normal(size=(4, 4)))
    ids, weight = jnp.array([0, 1, 0, 0]), jnp.float32([1, 1, 1, 0])
    losses = class_losses(near, ids, weight, TEMPERATURE)
    shorter = class_losses(near[:3, :3], ids[:3], weight[:3], TEMPERATURE)
    np.testing.assert_allclose(losses[:3], shorter, rtol=1e-5)
    assert np.all(np.isfinite(losses))
