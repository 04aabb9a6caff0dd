"""HAT: steps done again in float64 with the paper's formulas, and old tasks that lose nothing."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.base import Outputs
from everlight.continual.engine.keys import sequence_keys
from everlight.continual.engine.tasks import init_learner
from everlight.continual.strategies.hat import hat
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, DATA, LABELS, RATE, SHIFT
from tests.continual.strategies.references import official_hat as official
from tests.continual.strategies.references.separable_tasks import (
    assert_nothing_is_lost,
    decaying,
    learn,
)

LAYERS, STEEPEST, SPARSITY, SLOW = ("first", "second"), 8.0, 0.6, 0.1
_rng = np.random.default_rng(8)
NET = {
    "first": {"kernel": _rng.normal(size=(3, 4)), "bias": _rng.normal(size=4) * 0.3},
    "second": {"kernel": _rng.normal(size=(4, 5)) * 0.7, "bias": _rng.normal(size=5) * 0.3},
    "head": {"kernel": _rng.normal(size=(5, CLASSES)), "bias": np.zeros(CLASSES)},
}


def chain_setup():
    """Return a setup of two ReLU layers and a head, on the small net's data."""

    def apply(params, batch_stats, inputs, train, key):
        hidden = inputs
        for name in LAYERS:
            hidden = jax.nn.relu(hidden @ params[name]["kernel"] + params[name]["bias"])
        return Outputs(hidden @ params["head"]["kernel"] + params["head"]["bias"], hidden), {}

    def init(key):
        return jax.tree.map(lambda leaf: jnp.float32(leaf), NET), {}

    return net.small_setup()._replace(init=init, apply=apply)


SETUP = chain_setup()
STRATEGY = net.compiled(hat(SETUP, 2, LAYERS, SPARSITY, STEEPEST, SLOW))
# At the paper's s_max almost all of these are saturated in the later batches.
FED = {
    "first": np.array([[-5.9999, -0.4, 0.01, 0.6], [-0.02, 0.9, -1.1, 0.3]]),
    "second": np.array([[0.02, -0.2, 1.5, -0.1, 0.5], [5.9999, -0.6, 0.2, -0.05, 1.0]]),
}
PAPERS = net.compiled(hat(SETUP, 2, LAYERS, SPARSITY, 400.0, SLOW))
FED_PAPERS = PAPERS._replace(
    init=lambda key, learner: PAPERS.init(key, learner)._replace(
        embeddings={name: jnp.float32(item) for name, item in FED.items()}
    )
)
TRAIN = [np.array([0, 1, 6, 7, 12, 13, 18]) + 2 * t for t in range(2)]
# Seven samples in batches of three are rounds of three steps.
BATCHES = [
    [net.batch_of(t[:3]), net.batch_of(t[3:6]), net.batch_of(t[[6, 0, 1]], [1, 0, 0])] * 2
    for t in TRAIN
]
# Its first task uses some units fully, some by half and some not at all.
SEED = 1
SEQUENCE = [(net.task_of(t, [2 * t, 2 * t + 1], TRAIN[t]), BATCHES[t]) for t in range(2)]


def flat(tree):
    return {f"{name} {leaf}": tree[name][leaf] for name in tree for leaf in tree[name]}


def logits_of(params, gates, inputs):
    """Return logits with the gates where the paper has them: on the units, after ReLU."""
    hidden = inputs
    for name in LAYERS:
        hidden = gates[name] * np.maximum(
            hidden @ params[f"{name} kernel"] + params[f"{name} bias"], 0
        )
    return hidden @ params["head kernel"] + params["head bias"]


def loss_by_hand(params, gates, used, index, current):
    logits = logits_of(params, gates, DATA[index] + SHIFT)
    right = net.softmax(logits, current)[np.arange(len(index)), LABELS[index]]
    taken = sum(np.sum(gates[n] * (1 - used[n])) for n in LAYERS)
    free = sum(np.sum(1 - used[n]) for n in LAYERS)
    return -np.mean(np.log(right)) + SPARSITY * taken / free


def factor(used, name):
    """Return 1 − the minimum of both sides, weight by weight."""
    out = used[name]
    if name == "first":
        return np.tile(1 - out, (3, 1)), 1 - out
    kernel = np.array([[1 - min(i, o) for o in out] for i in used["first"]])
    return kernel, 1 - out


def train_by_hand(start, steepest=STEEPEST, backward=official.slope_in_float64):
    """Return parameters, embeddings and greatest gates after each task, in official order."""
    params, embeddings = flat(NET), {n: np.array(e, float) for n, e in start.items()}
    used, after = {name: np.zeros(len(NET[name]["bias"])) for name in LAYERS}, []
    for task, batches in enumerate(BATCHES):
        selected = np.arange(CLASSES) // 2 == task
        for step, batch in enumerate(batches):
            b = step % 3 + 1
            s = 1 / steepest + (steepest - 1 / steepest) * (b - 1) / (3 - 1)
            index = np.asarray(batch.index)[np.asarray(batch.weight) > 0]
            gates = {name: official.sigmoid(s * embeddings[name][task]) for name in LAYERS}
            loss = functools.partial(loss_by_hand, used=used, index=index, current=selected)
            gradient = net.finite_differences(functools.partial(loss, gates=gates), params)
            by_gate = net.finite_differences(functools.partial(loss, params), gates)
            slope = {}
            for name in LAYERS:
                kernel, bias = factor(used, name)
                gradient[f"{name} kernel"] *= kernel
                gradient[f"{name} bias"] *= bias
                mine = embeddings[name][task]
                slope[name] = official.official_gradient(mine, by_gate[name], s, steepest, backward)
            # There the norm is clipped here, over weights and embeddings, at a value never met.
            complete = (*gradient.values(), *slope.values())
            assert np.sqrt(sum(np.sum(item**2) for item in complete)) < 10_000
            for name in LAYERS:
                moved = embeddings[name][task] - SLOW * slope[name]
                embeddings[name][task] = np.clip(moved, -6, 6)
            params = {name: leaf - RATE * gradient[name] for name, leaf in params.items()}
        for name in LAYERS:
            used[name] = np.maximum(used[name], official.sigmoid(steepest * embeddings[name][task]))
        copied = {name: leaf.copy() for name, leaf in embeddings.items()}
        after.append((params, copied, dict(used)))
    return after


@functools.cache
def after_tasks():
    """Return memory and learner after each of the two tasks."""
    return net.run_tasks(SETUP, STRATEGY, SEQUENCE, SEED)


def test_two_tasks_done_again_in_float64():
    """Gradients are finite differences; compensation and masks are as the paper writes them."""
    result = after_tasks()
    # The key is that of `begin_state`.
    key = sequence_keys(jax.random.key(SEED)).memory
    start = STRATEGY.init(key, result[0][1]).embeddings
    by_hand = train_by_hand(start)
    after_first = by_hand[0][2]
    for (memory, learner), (params, embeddings, used) in zip(result, by_hand, strict=True):
        net.assert_trees_close(flat(learner.params), params, rtol=1e-4, atol=2e-5)
        net.assert_trees_close(memory.embeddings, embeddings, rtol=1e-4, atol=2e-5)
        net.assert_trees_close(memory.used, used, rtol=1e-4, atol=1e-5)
    moved = [np.max(np.abs(embeddings[name] - start[name]), axis=1) for name in LAYERS]
    assert np.min(moved) > 0.05
    # The first task used some units fully, some by half and some not at all.
    first = np.concatenate([after_first[name] for name in LAYERS])
    assert first.min() < 0.01 < 0.99 < first.max()
    assert np.any((first > 0.1) & (first < 0.9))


def test_the_official_procedure_at_the_papers_steepness():
    """Twelve steps at s = 1/400, 200 and 400 test clip, compensation, masks and bounds."""
    result = net.run_tasks(SETUP, FED_PAPERS, SEQUENCE)
    by_hand = train_by_hand(FED, 400.0, official.slope_in_float32)
    for (memory, learner), (params, embeddings, used) in zip(result, by_hand, strict=True):
        net.assert_trees_close(flat(learner.params), params, rtol=1e-3, atol=1e-4)
        net.assert_trees_close(memory.embeddings, embeddings, rtol=1e-3, atol=1e-3)
        net.assert_trees_close(memory.used, used, rtol=1e-2, atol=1e-2)
    last = np.concatenate([by_hand[1][1][name].ravel() for name in LAYERS])
    assert np.max(np.abs(last)) == 6, "some embedding must be clipped"
    assert np.min(np.abs(last)) < 6


def test_with_the_task_identity_its_gates_predict():
    memory, learner = after_tasks()[-1]
    params = {name: np.asarray(leaf, float) for name, leaf in flat(learner.params).items()}
    inputs = jnp.float32(DATA)
    for task in range(2):
        gates = {
            n: official.sigmoid(STEEPEST * np.asarray(memory.embeddings[n][task], float))
            for n in LAYERS
        }
        result = STRATEGY.predict_task(memory, learner, inputs, jnp.array(task))
        np.testing.assert_allclose(result, logits_of(params, gates, DATA), atol=1e-4)
        # Before the task ends its own classes and gates choose the epoch.
        learning, _ = STRATEGY.begin_task(memory, learner, SEQUENCE[task][0], jax.random.key(0))
        selected = np.arange(CLASSES) // 2 == task
        expected = np.where(selected, result, -np.inf)
        result = STRATEGY.predict(learning, learner, inputs)
        np.testing.assert_allclose(result, expected, atol=1e-6)
    # Between tasks every unit counts that any of them uses.
    used = {name: np.asarray(leaf, float) for name, leaf in memory.used.items()}
    result = STRATEGY.predict(memory, learner, inputs)
    np.testing.assert_allclose(result, logits_of(params, used, DATA), atol=1e-4)


def test_the_rate_of_the_embeddings_follows_the_schedule():
    learner = init_learner(SETUP, CLASSES, jax.random.key(0))
    memory = STRATEGY.init(jax.random.key(1), learner)
    task, (first, *_) = SEQUENCE[0]
    memory, learner = STRATEGY.begin_task(memory, learner, task, jax.random.key(2))
    batch, key = net.filled(SETUP, first), jax.random.key(3)

    @jax.jit
    def change(factor):
        schedule = learner.schedule._replace(factor=factor)
        _, info = STRATEGY.grads(memory, learner._replace(schedule=schedule), batch, task, key)
        return jax.tree.map(jnp.subtract, info.aux.embeddings, memory.embeddings)

    full, part = change(jnp.float32(1)), change(jnp.float32(0.25))
    for name in LAYERS:
        assert np.max(np.abs(full[name])) > 1e-4
        np.testing.assert_allclose(part[name], 0.25 * full[name], rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize("momentum", [False, True])
def test_with_the_task_identity_earlier_tasks_lose_nothing(momentum):
    """Scores of some units stay within 1e-5; gates need not be quite 0 or 1."""
    optimizer = decaying() if momentum else optax.sgd(0.05)
    after = learn(lambda setup: hat(setup, 3, LAYERS), optimizer)
    assert_nothing_is_lost(after, atol=1e-5)
    for early, late in itertools.combinations(after, 2):
        kernels = [state.learner.params["second"]["kernel"] for state in (early, late)]
        assert np.mean(kernels[0] != kernels[1]) > 0.1


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (("first",), "the parameters are first, head, second, the layers first; HAT needs all"),
        (("second", "first"), "first reads 3 units, and the layer before has 5; HAT needs each"),
    ],
)
def test_layers_that_are_no_chain_are_refused(layers, message):
    learner = net.small_learner(SETUP, [0])._replace(params=SETUP.init(None)[0])
    with pytest.raises(ValueError, match=message):
        hat(SETUP, 2, layers).init(jax.random.key(0), learner)
