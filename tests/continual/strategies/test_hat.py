"""HAT: steps done again in float64 with the paper's formulas, and old tasks that lose nothing."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.continual.base import Outputs
from everlight.continual.strategies.hat import annealed, freedom, gated, hat, newly_used
from tests.continual.small_net import (
    CLASSES,
    DATA,
    LABELS,
    RATE,
    SHIFT,
    assert_trees_close,
    batch_of,
    finite_differences,
    run_tasks,
    samples_of,
    small_learner,
    small_setup,
    softmax,
    task_of,
)
from tests.continual.strategies.separable_tasks import PER_CLASS, decaying, learn

LAYERS, STEEPEST, SPARSITY, SLOW = ("first", "second"), 8.0, 0.6, 0.1
_rng = np.random.default_rng(8)
NET = {
    "first": {"kernel": _rng.normal(size=(3, 4)), "bias": _rng.normal(size=4) * 0.3},
    "second": {"kernel": _rng.normal(size=(4, 5)) * 0.7, "bias": _rng.normal(size=5) * 0.3},
    "head": {"kernel": _rng.normal(size=(5, CLASSES)), "bias": np.zeros(CLASSES)},
}


def chain_setup():
    """Two ReLU layers and a head, on the small net's data."""

    def apply(params, batch_stats, inputs, train, key):
        hidden = inputs
        for name in LAYERS:
            hidden = jax.nn.relu(hidden @ params[name]["kernel"] + params[name]["bias"])
        return Outputs(hidden @ params["head"]["kernel"] + params["head"]["bias"], hidden), {}

    def init(key):
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), NET), {}

    return small_setup()._replace(init=init, apply=apply)


SETUP = chain_setup()
STRATEGY = hat(SETUP, 2, LAYERS, SPARSITY, STEEPEST, SLOW)
TRAIN = [np.array([0, 1, 6, 7, 12, 13, 18]) + 2 * t for t in range(2)]
# Seven samples in batches of three are rounds of three steps.
BATCHES = [
    [batch_of(t[:3]), batch_of(t[3:6]), batch_of(t[[6, 0, 1]], [1, 0, 0])] * 2 for t in TRAIN
]
SEQUENCE = [(task_of(t, [2 * t, 2 * t + 1], samples_of(TRAIN[t])), BATCHES[t]) for t in range(2)]


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def flat(tree):
    return {f"{name} {leaf}": tree[name][leaf] for name in tree for leaf in tree[name]}


def logits_of(params, gates, inputs):
    """The gates where the paper has them: on the units, after ReLU."""
    hidden = inputs
    for name in LAYERS:
        hidden = gates[name] * np.maximum(
            hidden @ params[f"{name} kernel"] + params[f"{name} bias"], 0
        )
    return hidden @ params["head kernel"] + params["head bias"]


def loss_by_hand(params, embeddings, steepness, used, index, own):
    gates = {name: sigmoid(steepness * embeddings[name]) for name in LAYERS}
    logits = logits_of(params, gates, DATA[index] + SHIFT)
    right = softmax(logits, own)[np.arange(len(index)), LABELS[index]]
    taken = sum(np.sum(gates[n] * (1 - used[n])) for n in LAYERS)
    free = sum(np.sum(1 - used[n]) for n in LAYERS)
    return -np.mean(np.log(right)) + SPARSITY * taken / free


def factor(used, name):
    """1 − min of both sides, weight by weight."""
    out = used[name]
    if name == "first":
        return np.tile(1 - out, (3, 1)), 1 - out
    kernel = np.array([[1 - min(i, o) for o in out] for i in used["first"]])
    return kernel, 1 - out


def train_by_hand(start):
    """Parameters, embeddings and greatest gates after each task."""
    params, embeddings = flat(NET), {n: np.asarray(e, float) for n, e in start.items()}
    used, after = {name: np.zeros(len(NET[name]["bias"])) for name in LAYERS}, []
    for task, batches in enumerate(BATCHES):
        own = np.arange(CLASSES) // 2 == task
        for step, batch in enumerate(batches):
            b = step % 3 + 1
            s = 1 / STEEPEST + (STEEPEST - 1 / STEEPEST) * (b - 1) / (3 - 1)
            index = np.asarray(batch.index)[np.asarray(batch.weight) > 0]
            mine = {name: embeddings[name][task] for name in LAYERS}
            loss = functools.partial(loss_by_hand, steepness=s, used=used, index=index, own=own)
            gradient = finite_differences(functools.partial(loss, embeddings=mine), params)
            slope = finite_differences(functools.partial(loss, params), mine)
            for name in LAYERS:
                e = mine[name]
                steep = STEEPEST * (np.cosh(s * e) + 1) / (s * (np.cosh(e) + 1))
                embeddings[name][task] = np.clip(e - SLOW * steep * slope[name], -6, 6)
                kernel, bias = factor(used, name)
                gradient[f"{name} kernel"] *= kernel
                gradient[f"{name} bias"] *= bias
            params = {name: leaf - RATE * gradient[name] for name, leaf in params.items()}
        for name in LAYERS:
            used[name] = np.maximum(used[name], sigmoid(STEEPEST * embeddings[name][task]))
        copied = {name: leaf.copy() for name, leaf in embeddings.items()}
        after.append((params, copied, dict(used)))
    return after


def test_two_tasks_done_again_in_float64():
    """Gradients by finite differences, compensation and masks as the paper writes them."""
    found = run_tasks(SETUP, STRATEGY, SEQUENCE)
    # The key that `begin_sequence` gives.
    key = jax.random.split(jax.random.fold_in(jax.random.key(0), 0))[1]
    start = STRATEGY.init(key, found[0][1]).embeddings
    by_hand = train_by_hand(start)
    after_first = by_hand[0][2]
    for (memory, learner), (params, embeddings, used) in zip(found, by_hand, strict=True):
        assert_trees_close(flat(learner.params), params, rtol=1e-4, atol=2e-5)
        assert_trees_close(memory.embeddings, embeddings, rtol=1e-4, atol=2e-5)
        assert_trees_close(memory.used, used, rtol=1e-4, atol=1e-5)
    moved = [np.max(np.abs(embeddings[name] - start[name]), axis=1) for name in LAYERS]
    assert np.min(moved) > 0.05
    # Units that the first task used, half used and left alone.
    first = np.concatenate([after_first[name] for name in LAYERS])
    assert first.min() < 0.01 < 0.99 < first.max()
    assert np.any((first > 0.1) & (first < 0.9))


def test_told_a_task_its_gates_answer():
    memory, learner = run_tasks(SETUP, STRATEGY, SEQUENCE)[-1]
    params = {name: np.asarray(leaf, float) for name, leaf in flat(learner.params).items()}
    inputs = jnp.asarray(DATA, jnp.float32)
    for task in range(2):
        gates = {
            n: sigmoid(STEEPEST * np.asarray(memory.embeddings[n][task], float)) for n in LAYERS
        }
        found = STRATEGY.predict_task(memory, learner, inputs, jnp.array(task))
        np.testing.assert_allclose(found, logits_of(params, gates, DATA), atol=1e-4)
        # Before the task ends its own classes and gates choose the epoch.
        learning, _ = STRATEGY.begin_task(memory, learner, SEQUENCE[task][0], jax.random.key(0))
        own = np.arange(CLASSES) // 2 == task
        expected = np.where(own, found, -np.inf)
        found = STRATEGY.predict(learning, learner, inputs)
        np.testing.assert_allclose(found, expected, atol=1e-6)
    # Between tasks every unit counts that any of them uses.
    used = {name: np.asarray(leaf, float) for name, leaf in memory.used.items()}
    found = STRATEGY.predict(memory, learner, inputs)
    np.testing.assert_allclose(found, logits_of(params, used, DATA), atol=1e-4)


def test_the_gate_steepens_over_a_round():
    steps = jnp.int32(5)
    found = [annealed(jnp.int32(step), steps, 400.0) for step in range(7)]
    expected = [1 / 400, 100.001875, 200.00125, 300.000625, 400, 1 / 400, 100.001875]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert annealed(jnp.int32(3), jnp.int32(1), 400.0) == 400


def test_only_units_that_no_task_uses_cost():
    """(.5 + .25 · .5) / (1 + .5), and nothing once all are used."""
    gates = {"one": jnp.array([0.5, 1.0]), "two": jnp.array([0.25])}
    used = {"one": jnp.array([0.0, 1.0]), "two": jnp.array([0.5])}
    np.testing.assert_allclose(newly_used(gates, used), 0.625 / 1.5, rtol=1e-6)
    assert newly_used(gates, jax.tree.map(jnp.ones_like, used)) == 0


class Convolutions(nn.Module):
    """Two convolutions and a dense layer over their maps, in either order of the axes."""

    channels_first: bool

    @nn.compact
    def __call__(self, maps):
        for name, channels in (("conv1", 6), ("conv2", 5)):
            maps = nn.max_pool(nn.relu(nn.Conv(channels, (3, 3), name=name)(maps)), (2, 2), (2, 2))
        maps = maps.transpose(0, 3, 1, 2) if self.channels_first else maps
        hidden = nn.relu(nn.Dense(7, name="dense")(maps.reshape(len(maps), -1)))
        return nn.Dense(4, name="head")(hidden)


@pytest.mark.parametrize("channels_first", [False, True])
def test_what_is_free_touches_no_used_unit_of_a_convolutional_net(channels_first):
    """Gates of 0 and 1: any change of the free parameters leaves the gated outputs."""
    net, layers = Convolutions(channels_first), ("conv1", "conv2", "dense")
    keys = jax.random.split(jax.random.key(5), 6)
    images = jax.random.normal(keys[0], (3, 8, 8, 2))
    params = net.init(keys[1], images)["params"]
    widths = {"conv1": 6, "conv2": 5, "dense": 7}
    used = {name: (jnp.arange(width) % 2).astype(jnp.float32) for name, width in widths.items()}
    new_classes = jnp.arange(4) >= 2
    free = freedom(params, used, layers, new_classes, channels_first)
    noise = jax.tree.map(lambda leaf: 1 + jax.random.normal(keys[2], leaf.shape), params)
    moved = jax.tree.map(lambda leaf, f, change: leaf + f * change, params, free, noise)

    def outputs(params):
        return net.apply({"params": gated(params, used)}, images)

    before, after = outputs(params), outputs(moved)
    np.testing.assert_allclose(after[:, :2], before[:, :2], atol=1e-6)
    assert np.max(np.abs(after[:, 2:] - before[:, 2:])) > 0.1
    # Whatever one of its sides leaves open is free: half of each side, three quarters of a kernel.
    shares = {name: float(jnp.mean(free[name]["kernel"])) for name in layers}
    expected = {"conv1": 1 - 3 / 6, "conv2": 1 - 3 * 2 / 30, "dense": 1 - 2 * 3 / 35}
    for name, share in expected.items():
        np.testing.assert_allclose(shares[name], share, rtol=1e-6)
    # The other order of the axes would be seen here.
    wrong = freedom(params, used, layers, new_classes, not channels_first)
    assert np.any(wrong["dense"]["kernel"] != free["dense"]["kernel"])


@functools.cache
def separable(momentum):
    optimizer = decaying() if momentum else optax.sgd(0.05)
    return learn(lambda setup: hat(setup, 3, LAYERS), optimizer)


@pytest.mark.parametrize("momentum", [False, True])
def test_told_the_task_earlier_tasks_lose_nothing(momentum):
    """Scores of some units stay within 1e-5; gates need not be quite 0 or 1."""
    after = separable(momentum)
    for task, early in enumerate(after):
        own = slice(2 * task * PER_CLASS, 2 * (task + 1) * PER_CLASS)
        assert early.told[task] > 0.95
        for late in after[task + 1 :]:
            classes = slice(2 * task, 2 * task + 2)
            np.testing.assert_allclose(
                late.scores[own, classes], early.scores[own, classes], atol=1e-5
            )
            assert late.told[task] == early.told[task]
            changed = (
                late.learner.params["second"]["kernel"] != early.learner.params["second"]["kernel"]
            )
            assert np.mean(changed) > 0.1


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (("first",), "the parameters are first, head, second, the layers first; HAT needs all"),
        (("second", "first"), "first reads 3 units, and the layer before has 5; HAT needs each"),
    ],
)
def test_layers_that_are_no_chain_are_refused(layers, message):
    learner = small_learner(SETUP, [0])._replace(params=SETUP.init(None)[0])
    with pytest.raises(ValueError, match=message):
        hat(SETUP, 2, layers).init(jax.random.key(0), learner)
