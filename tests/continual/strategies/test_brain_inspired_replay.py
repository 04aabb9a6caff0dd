"""Brain-inspired replay against float64 NumPy; gradients of losses are finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.objectives.multilabel import binary_objective
from everlight.continual.strategies.brain_inspired_replay import (
    brain_inspired_replay,
    random_classes,
    random_gates,
)
from everlight.continual.strategies.parts.teacher import Teacher
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, DATA, FEATURES, GAIN, LABELS, SHIFT

HEADS = jnp.array([0, 0, 1, 1, 2, 2])
INDEX = np.array([4, 5, 10, 11, 17])
TASK = net.task_of(2, [4, 5], INDEX)
COUNT, LATENT, TEMPERATURE = 7, 2, 1.7
KEY = jax.random.key(3)


def strategy_of(gating="class", group=None, **changes):
    setup = net.small_setup(group)
    form = {
        "hidden": (4, 3),
        "latent": LATENT,
        "gated_share": 0.4,
        "temperature": TEMPERATURE,
        "replay_batch_size": COUNT,
    } | changes
    return setup, brain_inspired_replay(setup, **form, gating=gating, tasks=3)


def within_the_third_task(setup, strategy):
    """Return memory and learner whose previous network is another one, of four known classes."""
    memory, learner = net.untrained(setup, strategy)
    old = jax.tree.map(lambda leaf: 0.7 * leaf + 0.1, learner.params)
    # First biases are 0, so that a unit with closed ones below it would be at the kink of its ReLU.
    moved = jax.tree.map(lambda leaf: leaf + 0.07, memory.decoder.params)
    memory = memory._replace(
        decoder=memory.decoder._replace(params=moved),
        teacher=Teacher(old, learner.batch_stats, net.classes_mask(range(4))),
        previous=jax.tree.map(lambda leaf: 1.5 * leaf + 0.3, memory.decoder.params),
    )
    return memory, learner._replace(seen=net.classes_mask(range(CLASSES)))


def flattened(params, decoder):
    """Return all parameters in float64 by one name each."""
    leaves = {name: np.float64(leaf) for name, leaf in params.items()}
    for path, leaf in jax.tree_util.tree_leaves_with_path(decoder):
        leaves["decoder" + jax.tree_util.keystr(path)] = np.float64(leaf)
    return leaves


def dense(leaves, name, values):
    return values @ leaves[f"decoder['{name}']['kernel']"] + leaves.get(
        f"decoder['{name}']['bias']", 0.0
    )


def decoded(leaves, latent, gates):
    for number, gate in enumerate(gates):
        latent = np.maximum(gate * dense(leaves, f"decoder_{number}", latent), 0)
    return dense(leaves, "output", latent)


def forward(leaves, inputs, gain):
    """Return features and logits of the network."""
    hidden = np.tanh(inputs @ leaves["hidden"] + leaves["hidden_bias"]) * gain
    return hidden, hidden @ leaves["head"] + leaves["head_bias"]


def log_density(values, mean, log_variance):
    return -0.5 * np.sum(log_variance + (values - mean) ** 2 / np.exp(log_variance), axis=-1)


def generative_losses(leaves, features, inputs, probabilities, gates, noise):
    mean = dense(leaves, "mean", features)
    log_variance = dense(leaves, "log_variance", features)
    latent = mean + np.exp(log_variance / 2) * noise
    reconstruction = 0.5 * np.sum((decoded(leaves, latent, gates) - inputs) ** 2, axis=1)
    prior = leaves["decoder['class_means']"], leaves["decoder['class_log_variances']"]
    by_class = np.exp(log_density(latent[:, None], *prior))
    divergence = log_density(latent, mean, log_variance)
    divergence = divergence - np.log(np.sum(probabilities * by_class, axis=1))
    return (reconstruction + divergence) / FEATURES


def noise_of(key, count):
    return np.float64(jax.random.normal(key, (count, LATENT)))


@pytest.mark.parametrize(("gating", "group"), [("class", None), ("task", None), ("class", HEADS)])
def test_a_step_is_the_gradient_of_the_written_loss(gating, group):
    setup, strategy = strategy_of(gating, group)
    memory, learner = within_the_third_task(setup, strategy)
    batch = net.filled(setup, net.batch_of(INDEX, [1, 1, 0, 1, 1]))
    gradient, info = jax.jit(strategy.grads)(memory, learner, batch, TASK, KEY)

    keys = jax.random.split(KEY, 5)
    key_label, key_task, key_noise = jax.random.split(keys[0], 3)
    drawn = np.asarray(random_classes(memory.teacher.known, COUNT, key_label))
    domain = np.asarray(jax.random.randint(key_task, (COUNT,), 0, 2))
    tables = [np.float64(table) for table in memory.gates]
    assert len(tables[0]) == {"class": CLASSES, "task": 3}[gating]
    old_row, new_row = (drawn, LABELS[INDEX]) if gating == "class" else (domain, [2] * len(INDEX))

    old = flattened(memory.teacher.params, memory.previous)
    prior = [old[f"decoder['class_{name}']"][drawn] for name in ("means", "log_variances")]
    latent = prior[0] + np.exp(prior[1] / 2) * noise_of(key_noise, COUNT)
    inputs = decoded(old, latent, [table[old_row] for table in tables])
    same_head = np.asarray(HEADS)[:, None] == np.asarray(HEADS)
    active = np.ones((COUNT, CLASSES), bool) if group is None else same_head[drawn]
    known = active & (np.arange(CLASSES) < 4)
    targets = net.softmax(forward(old, inputs, 1.0)[1] / TEMPERATURE, known)
    soft = [targets @ table if gating == "class" else table[old_row] for table in tables]
    counted = np.array([0, 1, 3, 4])

    def loss(leaves):
        features, logits = forward(leaves, inputs, GAIN)
        log_probability = np.log(net.softmax(logits / TEMPERATURE, active) + ~active)
        replayed = -np.sum(targets * log_probability, axis=1) + generative_losses(
            leaves, features, inputs, targets, soft, noise_of(keys[2], COUNT)
        )
        features, logits = forward(leaves, DATA[INDEX] + SHIFT, GAIN)
        among = np.ones(CLASSES, bool) if group is None else same_head[LABELS[INDEX]]
        probability = net.softmax(logits, among)[np.arange(len(INDEX)), LABELS[INDEX]]
        new = -np.log(probability) + generative_losses(
            leaves,
            features,
            DATA[INDEX] + SHIFT,
            np.eye(CLASSES)[LABELS[INDEX]],
            [table[new_row] for table in tables],
            noise_of(keys[1], len(INDEX)),
        )
        return new[counted].mean() / 3 + 2 / 3 * replayed.mean()

    start = flattened(learner.params, memory.decoder.params)
    expected = net.finite_differences(loss, start)
    net.assert_trees_close(flattened(gradient, info.aux), expected, rtol=1e-3, atol=1e-5)
    assert info.batch_stats["passes"] == learner.batch_stats["passes"] + 2


def test_the_first_task_replays_nothing():
    setup, strategy = strategy_of()
    memory, learner = net.untrained(setup, strategy)
    task = net.task_of(0, [0, 1], [0, 1, 6, 7])
    learner = learner._replace(seen=task.classes)
    batch = net.filled(setup, net.batch_of([0, 1, 6, 7]))
    grads = jax.jit(strategy.grads)
    gradient, info = grads(memory, learner, batch, task, KEY)
    other = jax.tree.map(lambda leaf: 3 * leaf + 1, (memory.previous, memory.teacher.params))
    changed = memory._replace(previous=other[0], teacher=memory.teacher._replace(params=other[1]))
    again, changed_info = grads(changed, learner, batch, task, KEY)
    net.assert_trees_close(again, gradient, 0, 0)
    jax.tree.map(np.testing.assert_array_equal, changed_info.aux, info.aux)
    assert info.batch_stats["passes"] == learner.batch_stats["passes"] + 1
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((gradient, info.aux)))


def test_adam_trains_the_decoder_and_a_task_s_end_makes_it_the_previous_one():
    """Two steps of Adam with betas of 0.9 and 0.999; the second gradient is three times the first.

    The first step is the rate, the second ((0.09 + 0.3) / 0.19) / sqrt((0.000999 + 0.009) /
    0.001999) = 0.9178 times the rate, as long as the gradient is much larger than 1e-8.
    """
    setup, strategy = strategy_of(generator_learning_rate=0.05)
    memory, learner = within_the_third_task(setup, strategy)
    batch = net.filled(setup, net.batch_of(INDEX))
    _, info = jax.jit(strategy.grads)(memory, learner, batch, TASK, KEY)
    first, _ = strategy.after_step(memory, learner, info, KEY)
    steeper = info._replace(aux=jax.tree.map(lambda slope: 3 * slope, info.aux))
    new, _ = strategy.after_step(first, learner, steeper, KEY)
    for before, after, share in ((memory, first, 1.0), (first, new, 0.9178)):
        leaves = map(jax.tree.leaves, (after.decoder.params, before.decoder.params, info.aux))
        for moved, old, slope in zip(*leaves, strict=True):
            change = share * 0.05 * slope / (np.abs(slope) + 1e-8)
            np.testing.assert_allclose(moved, old - change, atol=3e-5)
    jax.tree.map(np.testing.assert_array_equal, new.previous, memory.previous)
    learner = learner._replace(batch_stats={"passes": learner.batch_stats["passes"] + 5})
    ended, _ = strategy.end_task(new, learner, TASK, KEY)
    jax.tree.map(np.testing.assert_array_equal, ended.decoder, new.decoder)
    jax.tree.map(np.testing.assert_array_equal, ended.previous, new.decoder.params)
    trained = learner.params, learner.batch_stats, learner.seen
    jax.tree.map(np.testing.assert_array_equal, tuple(ended.teacher), trained)
    jax.tree.map(np.testing.assert_array_equal, ended.gates, memory.gates)


def test_as_many_inputs_as_incoming_ones_are_replayed_by_default():
    setup, strategy = strategy_of(replay_batch_size=None)
    memory, learner = within_the_third_task(setup, strategy)
    _, same = strategy_of(replay_batch_size=len(INDEX))
    batch = net.filled(setup, net.batch_of(INDEX))
    results = [item.grads(memory, learner, batch, TASK, KEY)[0] for item in (strategy, same)]
    net.assert_trees_close(*results, 0, 0)


def test_inputs_that_are_no_pixels_make_a_bernoulli_decoder_nan():
    setup, strategy = strategy_of(likelihood="bernoulli")
    memory, learner = within_the_third_task(setup, strategy)
    batch = net.filled(setup, net.batch_of(INDEX))
    for inputs, is_nan in ((jnp.full_like(batch.inputs, 0.5), False), (batch.inputs + 2, True)):
        changed = batch._replace(inputs=inputs)
        _, info = jax.jit(strategy.grads)(memory, learner, changed, TASK, KEY)
        assert bool(jnp.isnan(info.aux["output"]["bias"]).all()) == is_nan


def test_gates_close_the_share_of_units_and_none_without_a_share():
    tables = random_gates(40, (50, 30), 0.2, KEY)
    assert [table.shape for table in tables] == [(40, 50), (40, 30)]
    assert {float(value) for value in np.unique(tables[0])} == {0.0, 1.0}
    np.testing.assert_allclose([table.mean() for table in tables], 0.8, atol=0.04)
    assert np.any(tables[0][0] != tables[0][1])
    assert np.any(np.not_equal(*random_gates(40, (50, 50), 0.2, KEY)))
    assert all(np.all(table == 1) for table in random_gates(3, (5, 4), 0.0, KEY))


def test_classes_are_drawn_among_the_known_ones():
    known = net.classes_mask([1, 2, 5])
    drawn, count = np.unique(random_classes(known, 3000, KEY), return_counts=True)
    np.testing.assert_array_equal(drawn, [1, 2, 5])
    np.testing.assert_allclose(count / 3000, 1 / 3, atol=0.03)


def test_gates_of_tasks_need_their_number_and_scores_need_probabilities():
    setup = net.small_setup()
    with pytest.raises(ValueError, match="gating='task' needs the number of tasks; give tasks"):
        brain_inspired_replay(setup, gating="task")
    assert brain_inspired_replay(setup, gating="task", tasks=3).tasks == 3
    assert brain_inspired_replay(setup, tasks=3).tasks is None
    with pytest.raises(ValueError, match="no label_losses; give one that has"):
        brain_inspired_replay(setup._replace(objective=binary_objective()))
