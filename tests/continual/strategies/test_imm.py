"""Incremental moment matching done again in float64 NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.base import TaskSequence
from everlight.continual.engine.protocol import Protocol
from everlight.continual.engine.tasks import take_task
from everlight.continual.strategies.imm import imm, unit_scales
from tests.continual import small_net as net
from tests.continual.small_net import DATA, RATE, START

TASKS = [[0, 1], [2, 3], [4, 5]]
TRAIN = [np.array([0, 1, 6, 7, 12, 13]) + 2 * t for t in range(3)]
BATCHES = [[net.batch_of(t[:3]), net.batch_of(t[3:]), net.batch_of(t[[5, 1, 0]])] for t in TRAIN]
SEQUENCE = [(net.task_of(t, part, TRAIN[t]), BATCHES[t]) for t, part in enumerate(TASKS)]
REGULARIZATION = 0.4
INPUTS = jnp.float32(DATA)


seen_after = functools.partial(net.seen_after, TASKS)


def fisher(params, task):
    contribution = net.cross_entropy_gradients(params, TRAIN[task], seen_after(task))
    # The official code adds the same number, so that nothing is divided by 0.
    return {name: np.mean(leaf**2, axis=0) + 1e-8 for name, leaf in contribution.items()}


def unit_weights(params, task):
    return {name: np.ones_like(leaf) for name, leaf in params.items()}


WEIGHTS = {"mean": unit_weights, "mode": fisher}


def solutions(implicit=False):
    """Return parameters after each task, which starts from, and is held near, the last one's."""
    params, after = START, []
    for task, batches in enumerate(BATCHES):

        def penalty(theta, anchor=params, held=task > 0):
            if not held:
                return net.no_penalty(theta)
            return {name: 2 * REGULARIZATION * (theta[name] - anchor[name]) for name in theta}

        if implicit:
            stored = [(unit_weights(params, task), params)] if task else []
            settle = net.proximal_point(REGULARIZATION, stored)
            params, _ = net.descend(params, batches, seen_after(task), net.no_penalty, settle)
        else:
            params, _ = net.descend(params, batches, seen_after(task), penalty)
        after.append(params)
    return after


def mixed(merge, current, ratios):
    weights = [WEIGHTS[merge](params, task) for task, params in enumerate(current)]
    return {
        name: sum(a * w[name] * p[name] for a, w, p in zip(ratios, weights, current, strict=False))
        / sum(a * w[name] for a, w in zip(ratios, weights, strict=False))
        for name in START
    }


@functools.cache
def after_tasks(merge):
    setup = net.small_setup()
    return net.run_tasks(setup, imm(setup, merge, REGULARIZATION, fisher="empirical"), SEQUENCE)


@pytest.mark.parametrize("merge", WEIGHTS)
def test_three_tasks_done_again_in_float64(merge):
    """The learner continues unmerged, the merged network predicts."""
    setup = net.small_setup()
    strategy, expected = imm(setup, merge, REGULARIZATION), solutions()
    assert strategy.parameter_copies == (2 if merge == "mean" else 3)
    for task, (memory, learner) in enumerate(after_tasks(merge)):
        net.assert_trees_close(learner.params, expected[task], atol=1e-5)
        logits = net.forward(mixed(merge, expected[: task + 1], [1] * 3), np.arange(len(DATA)))[2]
        predicted = strategy.predict(memory, learner, INPUTS)
        np.testing.assert_allclose(predicted, logits, atol=1e-4)


def test_the_l2_transfer_may_take_implicit_steps():
    setup = net.small_setup()
    after = net.run_tasks(setup, imm(setup, "mean", REGULARIZATION, implicit_rate=RATE), SEQUENCE)
    explicit, expected = solutions(), solutions(implicit=True)
    for (_, learner), part in zip(after, expected, strict=True):
        net.assert_trees_close(learner.params, part, atol=1e-5)
    assert np.abs(explicit[-1]["head"] - expected[-1]["head"]).max() > 1e-3


def test_while_a_task_is_learned_its_own_network_predicts():
    setup = net.small_setup()
    strategy, (memory, learner) = imm(setup, "mean"), after_tasks("mean")[1]
    between = strategy.predict(memory, learner, INPUTS)
    memory, learner = net.begin(setup, strategy, memory, learner, SEQUENCE[2][0])
    within = strategy.predict(memory, learner, INPUTS)
    current = setup.apply(learner.params, learner.batch_stats, INPUTS, False, None)[0].logits
    np.testing.assert_array_equal(within, current)
    assert np.abs(between - within).max() > 1e-3


def test_batch_statistics_are_those_of_the_merged_network():
    """A statistic moves halfway to the head's mean bias at each pass of training."""
    plain = net.small_setup()

    def apply(params, batch_stats, inputs, train, key):
        outputs, _ = plain.apply(params, {"passes": 0}, inputs, train, key)
        now = 0.5 * batch_stats["mean"] + 0.5 * jnp.mean(params["head_bias"])
        shifted = outputs._replace(logits=outputs.logits + batch_stats["mean"])
        return shifted, {"mean": now if train else batch_stats["mean"]}

    setup = plain._replace(
        init=lambda key: (net.as_float32(START), {"mean": jnp.float32(8)}), apply=apply
    )
    many = net.samples_of(np.tile(TRAIN[0], 25)[:130])
    sequence = [(SEQUENCE[0][0]._replace(train=many), BATCHES[0]), SEQUENCE[1]]
    strategy = net.compiled(imm(setup, "mean"))
    after = net.run_tasks(setup, strategy, sequence)
    biases = [np.float64(learner.params["head_bias"]).mean() for _, learner in after]
    # 130 samples are three passes of 64, six are one; nothing is left of what was there before.
    for merged_bias, (memory, learner) in zip((biases[0], np.mean(biases)), after, strict=True):
        assert abs(learner.batch_stats["mean"] - merged_bias) > 0.1
        np.testing.assert_allclose(memory.batch_stats["mean"], merged_bias, rtol=1e-5)
    memory, learner = after[1]
    params = {n: np.mean([np.float64(part.params[n]) for _, part in after], axis=0) for n in START}
    logits = net.forward(params, np.arange(len(DATA)))[2] + float(memory.batch_stats["mean"])
    np.testing.assert_allclose(strategy.predict(memory, learner, INPUTS), logits, atol=1e-5)


@pytest.mark.parametrize("merge", WEIGHTS)
@pytest.mark.parametrize(
    ("alpha", "ratios"),
    [
        (0.5, [[1], [0.5, 0.5], [0.25, 0.25, 0.5]]),
        (0.7, [[1], [0.3, 0.7], [0.15, 0.15, 0.7]]),
        (1.0, [[1], [0, 1], [0, 0, 1]]),
        (0.0, [[1], [1, 0], [0.5, 0.5, 0]]),
        ((0.5, 0.2, 0.3), [[0.5], [0.5, 0.2], [0.5, 0.2, 0.3]]),
    ],
)
def test_mixing_ratios_done_again_in_float64(merge, alpha, ratios):
    """A number is the last task's, as in the official code; a tuple has one per task."""
    setup, expected = net.small_setup(), solutions()
    strategy = net.compiled(imm(setup, merge, REGULARIZATION, alpha=alpha, fisher="empirical"))
    for task, (memory, learner) in enumerate(net.run_tasks(setup, strategy, SEQUENCE)):
        params = mixed(merge, expected[: task + 1], ratios[task])
        logits = net.forward(params, np.arange(len(DATA)))[2]
        predicted = strategy.predict(memory, learner, INPUTS)
        np.testing.assert_allclose(predicted, logits, atol=2e-4)


def test_a_tuple_of_ratios_fixes_the_number_of_tasks():
    strategy = net.compiled(imm(net.small_setup(), "mean", alpha=(0.5, 0.5)))
    three = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[task for task, _ in SEQUENCE])
    sequence = TaskSequence(three, SEQUENCE[0][0].train, jnp.ones((1, 6), bool), jnp.zeros(6, int))
    with pytest.raises(ValueError, match="made with tasks=2, the sequence has 3"):
        take_task(strategy, Protocol(), sequence, jnp.int32(0))


def test_the_mode_takes_the_model_s_own_labels_by_default():
    """Every sample occurs a hundred times, so that the draws come near their expectation."""
    setup = net.small_setup()
    many = net.task_of(0, TASKS[0], np.tile(TRAIN[0], 200))
    learner = net.small_learner(setup, TASKS[0])
    probability = net.softmax(
        net.forward(START, TRAIN[0])[2], np.asarray(net.classes_mask(TASKS[0]))
    )
    exact = {name: np.zeros_like(leaf) for name, leaf in START.items()}
    for label in TASKS[0]:
        contribution = net.backward(
            START, TRAIN[0], probability - np.eye(len(probability.T))[label]
        )
        for name, leaf in contribution.items():
            weight = probability[:, label].reshape(-1, *[1] * (leaf.ndim - 1))
            exact[name] += np.mean(weight * leaf**2, axis=0)
    error = {}
    for kind, settings in (("true", {}), ("empirical", {"fisher": "empirical"})):
        strategy = net.compiled(imm(setup, "mode", importance_samples=1200, **settings))
        memory = strategy.init(jax.random.key(0), learner)
        memory, _ = strategy.end_task(memory, learner, many, jax.random.key(1))
        result, expected = (
            np.sum(np.float64(tree["head"])) for tree in (memory.sums.importance, exact)
        )
        error[kind] = abs(result / expected - 1)
    assert error["true"] < 0.05
    assert error["empirical"] > 0.1


def test_the_true_fisher_needs_an_objective_that_draws_labels():
    setup = net.small_setup()
    setup = setup._replace(objective=setup.objective._replace(fisher_loss=None))
    with pytest.raises(ValueError, match="needs an objective with fisher_loss"):
        imm(setup, "mode")
    imm(setup, "mean")
    imm(setup, "mode", fisher="empirical")


DROP = 0.4


@pytest.mark.parametrize("regularization", [0.0, REGULARIZATION])
def test_drop_transfer_done_again_in_float64_with_the_same_masks(regularization):
    """The first task drops to 0, the later ones to the last solution; the penalty stays at θ."""
    setup = net.layered_setup()
    strategy = net.compiled(imm(setup, "mean", regularization, dropout=DROP))
    after = net.run_tasks(setup, strategy, SEQUENCE)
    params, anchor = START, {name: np.zeros_like(leaf) for name, leaf in START.items()}
    for task, (_, batches) in enumerate(SEQUENCE):
        for number, batch in enumerate(batches):
            key = jax.random.split(jax.random.split(jax.random.key(number), 3)[1])[0]
            scales = unit_scales(net.layered(net.as_float32(START)), DROP, key)
            dropped = np.asarray(scales["hidden"]["bias"]) == 0
            used, factor = dict(params), dict.fromkeys(params, 1.0)
            for name in ("hidden", "hidden_bias"):
                stored = (params[name] - DROP * anchor[name]) / (1 - DROP)
                used[name] = np.where(dropped, anchor[name], stored)
                factor[name] = np.where(dropped, 0, 1 / (1 - DROP))
            gradient = net.batch_gradient(used, batch.index, seen_after(task))
            pull = 2 * regularization if task else 0
            params = {
                name: leaf - RATE * (factor[name] * gradient[name] + pull * (leaf - anchor[name]))
                for name, leaf in params.items()
            }
        net.assert_trees_close(net.flat(after[task][1].params), params, atol=1e-5)
        anchor = params
    plain = net.run_tasks(setup, imm(setup, "mean", regularization), SEQUENCE)
    moved = plain[-1][1].params["hidden"]["kernel"] - params["hidden"]
    assert np.abs(moved).max() > 1e-2


def test_units_are_dropped_with_the_given_probability_and_whole():
    tree = {
        "first": {"kernel": jnp.ones((3, 4000)), "bias": jnp.ones(4000)},
        "second": {"kernel": jnp.ones((3, 4000))},
        "head": {"kernel": jnp.ones((2, 5))},
    }
    scale = unit_scales(tree, DROP, jax.random.key(0))
    first, second = np.asarray(scale["first"]["kernel"]), np.asarray(scale["second"]["kernel"])
    np.testing.assert_array_equal(scale["first"]["bias"], first)
    np.testing.assert_array_equal(scale["head"]["kernel"], 1)
    np.testing.assert_allclose(np.unique(first), [0, 1 / (1 - DROP)], rtol=1e-6)
    # The standard error of a share is 0.0077, that of a coincidence 0.0079.
    assert abs(np.mean(first == 0) - DROP) < 0.03
    assert abs(np.mean((first == 0) == (second == 0)) - (DROP**2 + (1 - DROP) ** 2)) < 0.03


def test_a_drop_of_1_and_no_ratios_are_refused():
    with pytest.raises(ValueError, match=r"dropout=1\.0 would drop every unit"):
        imm(net.small_setup(), "mean", dropout=1.0)
    with pytest.raises(ValueError, match=r"alpha=\(\) has no mixing ratio"):
        imm(net.small_setup(), "mean", alpha=())
