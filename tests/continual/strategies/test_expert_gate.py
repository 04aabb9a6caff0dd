"""Expert Gate against float64 NumPy: autoencoders, gate, relatedness, and how experts start."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.strategies.expert_gate import (
    CHOSEN,
    Autoencoder,
    expert_gate,
    most_related,
    reconstruction_error,
    relatedness,
    squared_error,
)
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.gate_features import block_means
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, DATA, LABELS

HIDDEN, EPOCHS, RATE = 2, 60, 0.05
TASKS = [[0, 1], [2, 3], [4, 5]]
TRAIN = [np.array([0, 1, 6, 7, 12, 13]) + 2 * t for t in range(3)]
BATCHES = [[net.batch_of(t[:3]), net.batch_of(t[3:])] for t in TRAIN]
SEQUENCE = [(net.task_of(t, part, TRAIN[t]), BATCHES[t]) for t, part in enumerate(TASKS)]
INPUTS = jnp.float32(DATA)
STRETCH = 2.0


SETUP = net.small_setup()


def gate_of(setup=SETUP, epochs=EPOCHS, **transfer):
    return expert_gate(setup, 3, lambda inputs: STRETCH * inputs, HIDDEN, epochs, RATE, **transfer)


GATE = net.compiled(gate_of())


@functools.cache
def after_tasks():
    return net.run_tasks(SETUP, gate_of(), SEQUENCE[:2])


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def reconstruct(autoencoder, index):
    squashed = sigmoid(STRETCH * DATA[index])
    code = np.maximum(squashed @ autoencoder["encode"] + autoencoder["encode_bias"], 0)
    return squashed, code, sigmoid(code @ autoencoder["decode"] + autoencoder["decode_bias"])


def error_by_hand(autoencoder, index):
    squashed, _, again = reconstruct(autoencoder, index)
    return -np.mean(squashed * np.log(again) + (1 - squashed) * np.log(1 - again), axis=1)


def squared_by_hand(autoencoder, index):
    squashed, _, again = reconstruct(autoencoder, index)
    return np.mean((squashed - again) ** 2, axis=1)


def relatedness_by_hand(memory, earlier, current, index):
    """Return the relatedness of two experts by their autoencoders, on samples of the newer task."""
    before, new = (squared_by_hand(stacked(memory, e), index).mean() for e in (earlier, current))
    return 1 - (before - new) / new


def gradient_by_hand(autoencoder, index):
    """Return the gradient of the mean over samples and features."""
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
    one = Autoencoder(**{n: jnp.float32(leaf) for n, leaf in by_hand.items()})
    result = reconstruction_error(one, STRETCH * INPUTS)
    np.testing.assert_allclose(result, error_by_hand(by_hand, np.arange(len(DATA))), rtol=1e-5)
    result = squared_error(one, STRETCH * INPUTS)
    np.testing.assert_allclose(result, squared_by_hand(by_hand, np.arange(len(DATA))), rtol=1e-5)


def test_an_autoencoder_is_trained_by_adam_on_its_task():
    """Six samples are one step per epoch; initial values are those that no epoch changes."""
    learner = net.small_learner(SETUP, TASKS[0])
    nothing = GATE.init(jax.random.key(1), learner)
    start, trained = (
        gate.begin_task(nothing, learner, SEQUENCE[0][0], jax.random.key(3))[0]
        for gate in (net.compiled(gate_of(epochs=0)), GATE)
    )
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
    net.assert_trees_close(stacked(trained, 0), params, rtol=1e-3, atol=1e-5)


def test_the_gate_takes_the_trained_expert_with_the_least_error():
    memory, learner = after_tasks()[1]
    everything = np.arange(len(DATA))
    errors = np.stack([error_by_hand(stacked(memory, e), everything) for e in range(2)])
    expert = np.argmin(errors, axis=0)
    assert 0 < expert.sum() < len(DATA), "both experts must be chosen"
    clear = np.abs(errors[0] - errors[1]) > 1e-5
    item = [
        net.forward({n: np.float64(leaf[e]) for n, leaf in memory.params.items()}, everything)[2]
        for e in range(2)
    ]
    expected = np.where(expert[:, None] == 0, *item)
    predicted = np.asarray(GATE.predict(memory, learner, INPUTS))
    np.testing.assert_allclose(predicted[clear], expected[clear], atol=1e-5)


def test_a_sample_is_given_to_the_chosen_expert_alone():
    """Both experts take their samples, filled up to a multiple of `CHOSEN`."""
    seen = []

    def apply(params, batch_stats, inputs, train, key):
        jax.debug.callback(lambda _: seen.append(inputs.shape[0]), inputs[0])
        return SETUP.apply(params, batch_stats, inputs, train, key)

    memory, learner = after_tasks()[1]
    many = jnp.tile(INPUTS, (5, 1))
    predicted = net.compiled(gate_of(SETUP._replace(apply=apply))).predict(memory, learner, many)
    jax.effects_barrier()
    assert sum(seen) <= len(many) + 2 * (CHOSEN - 1) < 2 * len(many)
    np.testing.assert_allclose(
        predicted, np.tile(GATE.predict(memory, learner, INPUTS), (5, 1)), atol=1e-6
    )


def third_task(strategy, train, valid=None):
    """Return memory and learner after two tasks and the beginning of a third of these samples."""
    task = net.task_of(2, [4, 5], train)
    task = task if valid is None else task._replace(valid=valid)
    return *net.begin(SETUP, strategy, *after_tasks()[1], task), task


def test_a_new_expert_starts_from_the_most_related_one():
    """The third task's samples are each earlier task's in turn."""
    memory, _ = after_tasks()[1]
    for related in range(2):
        # The slot of padding holds a sample of no task.
        train = net.samples_of(np.append(TRAIN[related], 39), np.arange(7) < 6)
        now, learner, _ = third_task(GATE, train)
        by_hand = [relatedness_by_hand(now, e, 2, TRAIN[related]) for e in range(2)]
        assert np.argmax(by_hand) == related
        np.testing.assert_allclose(now.relatedness[2, :2], by_hand, rtol=1e-3)
        for name, leaf in learner.params.items():
            np.testing.assert_array_equal(leaf, memory.params[name][related])
        # Until the task ends its own network predicts.
        current = SETUP.apply(learner.params, learner.batch_stats, INPUTS, False, None)[0].logits
        np.testing.assert_allclose(GATE.predict(now, learner, INPUTS), current, atol=1e-6)


def test_relatedness_by_hand():
    """The relatedness of hand-made errors is 1 − (0.3 − 0.2) / 0.2, and 1 for equal errors."""
    result = relatedness(jnp.array([0.3, 0.2, 0.1, 0.6]), jnp.float32(0.2))
    np.testing.assert_allclose(result, [0.5, 1.0, 1.5, -1.0], rtol=1e-5, atol=1e-6)


def test_relatedness_is_measured_on_validation_samples_where_there_are_any():
    train, held = net.samples_of(TRAIN[2]), np.array([4, 5, 10])
    valid = net.samples_of(np.append(held, 39), np.arange(4) < 3)
    for value, index in ((valid, held), (net.samples_of([39], [False]), TRAIN[2])):
        memory, _, _ = third_task(GATE, train, value)
        by_hand = [relatedness_by_hand(memory, e, 2, index) for e in range(2)]
        np.testing.assert_allclose(memory.relatedness[2, :2], by_hand, rtol=1e-3)
        # The cross-entropies' ratio would part neither from the new task.
        losses = [error_by_hand(stacked(memory, e), index).mean() for e in range(3)]
        assert max(by_hand) < 0.85 < 1 - (losses[int(np.argmax(by_hand))] - losses[2]) / losses[2]
        # Nothing else is known of the pairs with later tasks.
        assert np.all(memory.relatedness[:2, 1:] == 0)
        np.testing.assert_array_equal(memory.classes, np.eye(3, dtype=bool).repeat(2, axis=1))


def lwf_by_hand(params, teacher, index, known, regularization, temperature):
    """Return the gradient of mean cross-entropy plus λ T² KL, the teacher in evaluation mode."""
    current = net.cross_entropy_gradients(params, index, np.ones(CLASSES, bool), train=True)
    new = net.softmax(net.forward(params, index, train=True)[2] / temperature, known)
    # The engine's inputs of a batch are the shifted ones.
    hidden = np.tanh(
        net.forward(params, index, train=True)[0] @ teacher["hidden"] + teacher["hidden_bias"]
    )
    old = net.softmax((hidden @ teacher["head"] + teacher["head_bias"]) / temperature, known)
    stored = net.backward(params, index, regularization * temperature * (new - old), train=True)
    return {name: (current[name] + stored[name]).mean(axis=0) for name in current}


def test_lwf_begins_above_the_relatedness_threshold():
    """On either side of Rel the gradient is LwF's in float64, or fine-tuning's bit for bit."""
    memory, learner, task = third_task(GATE, net.samples_of(TRAIN[2]))
    related, result = most_related(memory, task.id)
    assert related == np.argmax(memory.relatedness[2, :2])
    batch, key = net.filled(SETUP, net.batch_of(TRAIN[2])), jax.random.key(0)
    # After a step the student is no longer its teacher.
    learner = learner._replace(params=jax.tree.map(lambda leaf: 0.8 * leaf, learner.params))
    plain, _ = naive(SETUP).grads((), learner, batch, task, key)

    def gradient(threshold, **transfer):
        strategy = gate_of(relatedness_threshold=threshold, **transfer)
        return strategy.grads(memory, learner, batch, task, key)[0]

    for threshold in (None, float(result) + 1e-3):
        for name, leaf in gradient(threshold).items():
            np.testing.assert_array_equal(leaf, plain[name])
    params = {name: np.float64(leaf) for name, leaf in learner.params.items()}
    teacher = {name: np.float64(leaf[related]) for name, leaf in memory.params.items()}
    known = np.isin(np.arange(CLASSES), LABELS[TRAIN[int(related)]])
    by_hand = lwf_by_hand(params, teacher, TRAIN[2], known, 3.0, 1.5)
    actual = gradient(float(result) - 1e-3, regularization=3.0, temperature=1.5)
    net.assert_trees_close(actual, by_hand)
    assert np.max(np.abs(actual["head"] - plain["head"])) > 1e-2


def test_the_first_task_has_no_teacher():
    strategy = gate_of(relatedness_threshold=-1e9)
    learner, task = net.small_learner(SETUP, TASKS[0]), SEQUENCE[0][0]
    memory = strategy.init(jax.random.key(1), learner)
    memory, learner = strategy.begin_task(memory, learner, task, jax.random.key(2))
    batch, key = net.filled(SETUP, BATCHES[0][0]), jax.random.key(0)
    expected, _ = naive(SETUP).grads((), learner, batch, task, key)
    for name, leaf in strategy.grads(memory, learner, batch, task, key)[0].items():
        np.testing.assert_array_equal(leaf, expected[name])


def test_where_the_task_is_known_its_expert_predicts():
    """They are equal bit for bit, whatever the gate selects; untrained, the newest predicts."""
    memory, learner = after_tasks()[1]

    @jax.jit
    def scores(params, batch_stats):
        return SETUP.apply(params, batch_stats, INPUTS, False, None)[0].logits

    known = jax.jit(lambda task: GATE.predict_task(memory, learner, INPUTS, task))
    gated = GATE.predict(memory, learner, INPUTS)
    for task in range(2):
        params = {name: leaf[task] for name, leaf in memory.params.items()}
        result = known(jnp.int32(task))
        np.testing.assert_array_equal(result, scores(params, learner.batch_stats))
        assert np.any(np.abs(result - gated) > 1e-3)
    newest = scores(learner.params, learner.batch_stats)
    np.testing.assert_array_equal(known(jnp.int32(2)), newest)


def test_experts_are_kept_as_their_tasks_left_them():
    (first, _), (second, learner) = after_tasks()
    np.testing.assert_array_equal(second.trained, [True, True, False])
    for name, leaf in second.params.items():
        np.testing.assert_array_equal(leaf[0], first.params[name][0])
        np.testing.assert_array_equal(leaf[1], learner.params[name])
    by_hand, _ = net.descend(
        {n: np.float64(leaf[0]) for n, leaf in first.params.items()},
        BATCHES[1],
        net.classes_mask([0, 1, 2, 3]),
        net.no_penalty,
    )
    net.assert_trees_close(learner.params, by_hand)


def test_as_many_hidden_units_as_features_are_refused():
    strategy = expert_gate(SETUP, 3, lambda inputs: inputs, hidden=3)
    with pytest.raises(ValueError, match="hidden=3 of 3 features; an autoencoder needs fewer"):
        strategy.init(jax.random.key(0), net.small_learner(SETUP, [0]))


def test_the_gate_sees_means_of_blocks(rng):
    images = rng.normal(size=(2, 16, 16, 3)).astype(np.float32)
    result = block_means(jnp.asarray(images), 8)
    by_hand = [
        images[1, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2, channel].mean()
        for row in range(8)
        for column in range(8)
        for channel in range(3)
    ]
    np.testing.assert_allclose(result[1], by_hand, rtol=1e-5, atol=1e-6)
