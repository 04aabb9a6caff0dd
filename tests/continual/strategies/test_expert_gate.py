"""Expert Gate against float64 NumPy: autoencoders, the gate, and where experts start."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.engine.steps import Progress, Protocol, begin_task
from everlight.continual.strategies.expert_gate import (
    CHOSEN,
    Autoencoder,
    expert_gate,
    reconstruction_error,
)
from tests.continual.small_net import (
    DATA,
    assert_trees_close,
    batch_of,
    classes_mask,
    descend,
    forward,
    no_penalty,
    run_tasks,
    samples_of,
    small_learner,
    small_setup,
    task_of,
)

HIDDEN, EPOCHS, RATE = 2, 60, 0.05
TASKS = [[0, 1], [2, 3], [4, 5]]
TRAIN = [np.array([0, 1, 6, 7, 12, 13]) + 2 * t for t in range(3)]
BATCHES = [[batch_of(t[:3]), batch_of(t[3:])] for t in TRAIN]
SEQUENCE = [(task_of(t, own, samples_of(TRAIN[t])), BATCHES[t]) for t, own in enumerate(TASKS)]
INPUTS = jnp.asarray(DATA, jnp.float32)
STRETCH = 2.0


def gate_of(setup, epochs=EPOCHS):
    return expert_gate(setup, 3, lambda inputs: STRETCH * inputs, HIDDEN, epochs, RATE)


@functools.cache
def after_tasks():
    setup = small_setup()
    return run_tasks(setup, gate_of(setup), SEQUENCE[:2])


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def reconstruct(autoencoder, index):
    squashed = sigmoid(STRETCH * DATA[index])
    code = np.maximum(squashed @ autoencoder["encode"] + autoencoder["encode_bias"], 0)
    return squashed, code, sigmoid(code @ autoencoder["decode"] + autoencoder["decode_bias"])


def error_by_hand(autoencoder, index):
    squashed, _, again = reconstruct(autoencoder, index)
    return -np.mean(squashed * np.log(again) + (1 - squashed) * np.log(1 - again), axis=1)


def gradient_by_hand(autoencoder, index):
    """Of the mean over samples and features."""
    squashed, code, again = reconstruct(autoencoder, index)
    outer = (again - squashed) / squashed.size
    inner = outer @ autoencoder["decode"].T * (code > 0)
    return {
        "encode": squashed.T @ inner,
        "encode_bias": inner.sum(axis=0),
        "decode": code.T @ outer,
        "decode_bias": outer.sum(axis=0),
    }


def stacked(memory, expert):
    return {name: np.float64(leaf[expert]) for name, leaf in memory.autoencoders._asdict().items()}


def test_reconstruction_error_by_hand():
    rng = np.random.default_rng(3)
    shapes = {"encode": (3, 2), "encode_bias": (2,), "decode": (2, 3), "decode_bias": (3,)}
    by_hand = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    one = Autoencoder(**{n: jnp.asarray(leaf, jnp.float32) for n, leaf in by_hand.items()})
    found = reconstruction_error(one, STRETCH * INPUTS)
    np.testing.assert_allclose(found, error_by_hand(by_hand, np.arange(len(DATA))), rtol=1e-5)


def test_an_autoencoder_is_trained_by_adam_on_its_task():
    """Six samples are one step an epoch; initial values are those that no epoch changes."""
    setup = small_setup()
    strategy, learner = gate_of(setup, 0), small_learner(setup, TASKS[0])
    nothing = strategy.init(jax.random.key(1), learner)
    # The key that `run_tasks` ends a task with.
    start, _ = strategy.end_task(nothing, learner, SEQUENCE[0][0], jax.random.key(3))
    trained, _ = after_tasks()[0]
    params = stacked(start, 0)
    first = {name: np.zeros_like(leaf) for name, leaf in params.items()}
    second = dict(first)
    for step in range(1, EPOCHS + 1):
        gradient = gradient_by_hand(params, TRAIN[0])
        for name, slope in gradient.items():
            first[name] = 0.9 * first[name] + 0.1 * slope
            second[name] = 0.999 * second[name] + 0.001 * slope**2
            mean, square = first[name] / (1 - 0.9**step), second[name] / (1 - 0.999**step)
            params[name] = params[name] - RATE * mean / (np.sqrt(square) + 1e-8)
    assert np.any(params["encode_bias"] != 0), "some unit must be active"
    assert_trees_close(stacked(trained, 0), params, rtol=1e-3, atol=1e-5)


def test_the_gate_takes_the_trained_expert_with_the_least_error():
    setup = small_setup()
    memory, learner = after_tasks()[1]
    everything = np.arange(len(DATA))
    errors = np.stack([error_by_hand(stacked(memory, e), everything) for e in range(2)])
    expert = np.argmin(errors, axis=0)
    assert 0 < expert.sum() < len(DATA), "both experts must be chosen"
    clear = np.abs(errors[0] - errors[1]) > 1e-5
    each = [
        forward({n: np.float64(leaf[e]) for n, leaf in memory.params.items()}, everything)[2]
        for e in range(2)
    ]
    expected = np.where(expert[:, None] == 0, *each)
    found = np.asarray(gate_of(setup).predict(memory, learner, INPUTS))
    np.testing.assert_allclose(found[clear], expected[clear], atol=1e-5)


def test_a_sample_is_given_to_the_chosen_expert_alone():
    """Of two experts each takes its samples, filled up to a multiple of `CHOSEN`."""
    setup, seen = small_setup(), []

    def apply(params, batch_stats, inputs, train, key):
        jax.debug.callback(lambda _: seen.append(inputs.shape[0]), inputs[0])
        return setup.apply(params, batch_stats, inputs, train, key)

    memory, learner = after_tasks()[1]
    many = jnp.tile(INPUTS, (5, 1))
    found = gate_of(setup._replace(apply=apply)).predict(memory, learner, many)
    jax.effects_barrier()
    assert sum(seen) <= len(many) + 2 * (CHOSEN - 1) < 2 * len(many)
    np.testing.assert_allclose(
        found, np.tile(gate_of(setup).predict(memory, learner, INPUTS), (5, 1)), atol=1e-6
    )


def test_a_new_expert_starts_from_the_most_related_one():
    """The third task's samples are each earlier task's in turn."""
    setup = small_setup()
    strategy, (memory, learner) = gate_of(setup), after_tasks()[1]
    for related in range(2):
        # The slot of padding holds a sample of no task.
        train = samples_of(np.append(TRAIN[related], 39), np.arange(7) < 6)
        errors = [error_by_hand(stacked(memory, e), TRAIN[related]).mean() for e in range(2)]
        assert np.argmin(errors) == related
        task = task_of(2, [4, 5], train)
        ended = Progress(memory, learner, None)
        begun, new, _ = begin_task(
            setup, strategy, Protocol(select="last"), ended, task, jax.random.key(0)
        )
        for name, leaf in new.params.items():
            np.testing.assert_array_equal(leaf, memory.params[name][related])
        # Until the task ends its own network predicts.
        own = setup.apply(new.params, new.batch_stats, INPUTS, False, None)[0].logits
        np.testing.assert_allclose(strategy.predict(begun, new, INPUTS), own, atol=1e-6)


def test_experts_are_kept_as_their_tasks_left_them():
    (first, _), (second, learner) = after_tasks()
    np.testing.assert_array_equal(second.trained, [True, True, False])
    for name, leaf in second.params.items():
        np.testing.assert_array_equal(leaf[0], first.params[name][0])
        np.testing.assert_array_equal(leaf[1], learner.params[name])
    by_hand, _ = descend(
        {n: np.float64(leaf[0]) for n, leaf in first.params.items()},
        BATCHES[1],
        classes_mask([0, 1, 2, 3]),
        no_penalty,
    )
    assert_trees_close(learner.params, by_hand)


def test_as_many_hidden_units_as_features_are_refused():
    setup = small_setup()
    strategy = expert_gate(setup, 3, lambda inputs: inputs, hidden=3)
    with pytest.raises(ValueError, match="hidden=3 of 3 features; an autoencoder needs fewer"):
        strategy.init(jax.random.key(0), small_learner(setup, [0]))
