"""Incremental moment matching done again in float64 NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.engine.steps import Progress, Protocol, begin_task
from everlight.continual.strategies.imm import FLOOR, imm
from tests.continual.small_net import (
    DATA,
    RATE,
    START,
    as_float32,
    assert_trees_close,
    batch_of,
    classes_mask,
    cross_entropy_gradients,
    descend,
    forward,
    no_penalty,
    proximal_point,
    run_tasks,
    samples_of,
    small_setup,
    task_of,
)

TASKS = [[0, 1], [2, 3], [4, 5]]
TRAIN = [np.array([0, 1, 6, 7, 12, 13]) + 2 * t for t in range(3)]
BATCHES = [[batch_of(t[:3]), batch_of(t[3:]), batch_of(t[[5, 1, 0]])] for t in TRAIN]
SEQUENCE = [(task_of(t, own, samples_of(TRAIN[t])), BATCHES[t]) for t, own in enumerate(TASKS)]
STRENGTH = 0.4
INPUTS = jnp.asarray(DATA, jnp.float32)


def seen_after(task):
    return classes_mask([c for classes in TASKS[: task + 1] for c in classes])


def fisher(params, task):
    each = cross_entropy_gradients(params, TRAIN[task], seen_after(task))
    return {name: np.mean(leaf**2, axis=0) + FLOOR for name, leaf in each.items()}


def alike(params, task):
    return {name: np.ones_like(leaf) for name, leaf in params.items()}


WEIGHTS = {"mean": alike, "mode": fisher}


def solutions(implicit=False):
    """Parameters after each task: each starts from, and is held near, the last one's."""
    params, after = START, []
    for task, batches in enumerate(BATCHES):

        def penalty(theta, anchor=params, held=task > 0):
            if not held:
                return no_penalty(theta)
            return {name: 2 * STRENGTH * (theta[name] - anchor[name]) for name in theta}

        if implicit:
            kept = [(alike(params, task), params)] if task else []
            settle = proximal_point(STRENGTH, kept)
            params, _ = descend(params, batches, seen_after(task), no_penalty, settle)
        else:
            params, _ = descend(params, batches, seen_after(task), penalty)
        after.append(params)
    return after


def merged(merge, own):
    weights = [WEIGHTS[merge](params, task) for task, params in enumerate(own)]
    return {
        name: sum(w[name] * p[name] for w, p in zip(weights, own, strict=True))
        / sum(w[name] for w in weights)
        for name in START
    }


@functools.cache
def after_tasks(merge):
    setup = small_setup()
    return run_tasks(setup, imm(setup, merge, STRENGTH), SEQUENCE)


@pytest.mark.parametrize("merge", WEIGHTS)
def test_three_tasks_done_again_in_float64(merge):
    """The learner goes on unmerged, the merged network predicts."""
    setup = small_setup()
    strategy, expected = imm(setup, merge, STRENGTH), solutions()
    for task, (memory, learner) in enumerate(after_tasks(merge)):
        assert_trees_close(learner.params, expected[task], atol=1e-5)
        logits = forward(merged(merge, expected[: task + 1]), np.arange(len(DATA)))[2]
        found = strategy.predict(memory, learner, INPUTS)
        np.testing.assert_allclose(found, logits, atol=1e-4)


def test_the_l2_transfer_may_take_implicit_steps():
    setup = small_setup()
    after = run_tasks(setup, imm(setup, "mean", STRENGTH, implicit_rate=RATE), SEQUENCE)
    explicit, expected = solutions(), solutions(implicit=True)
    for (_, learner), own in zip(after, expected, strict=True):
        assert_trees_close(learner.params, own, atol=1e-5)
    assert np.abs(explicit[-1]["head"] - expected[-1]["head"]).max() > 1e-3


def test_the_two_merges_differ_by_far_more_than_they_are_off():
    own = solutions()
    mean, mode = (forward(merged(m, own), np.arange(len(DATA)))[2] for m in WEIGHTS)
    assert np.abs(mean - mode).max() > 0.1


def test_while_a_task_is_learnt_its_own_network_predicts():
    setup = small_setup()
    strategy, (memory, learner) = imm(setup, "mean"), after_tasks("mean")[1]
    between = strategy.predict(memory, learner, INPUTS)
    progress = Progress(memory, learner, None)
    task, last = SEQUENCE[2][0], Protocol(select="last")
    memory, learner, _ = begin_task(setup, strategy, last, progress, task, jax.random.key(0))
    within = strategy.predict(memory, learner, INPUTS)
    own = setup.apply(learner.params, learner.batch_stats, INPUTS, False, None)[0].logits
    np.testing.assert_array_equal(within, own)
    assert np.abs(between - within).max() > 1e-3


def test_parameters_that_matter_to_no_task_are_averaged():
    """Nothing reaches the last classes' weights before they are seen."""
    memory, _ = after_tasks("mode")[1]
    sums = memory.sums
    unseen = np.array([4, 5])
    ratio = sums.weighted_anchor["head"][:, unseen] / sums.importance["head"][:, unseen]
    mean = np.mean([params["head"] for params in solutions()[:2]], axis=0)
    np.testing.assert_allclose(ratio, mean[:, unseen], rtol=1e-5)


def test_batch_statistics_are_those_of_the_merged_network():
    """A statistic that moves halfway to the head's mean bias at each pass of training."""
    plain = small_setup()

    def apply(params, batch_stats, inputs, train, key):
        outputs, _ = plain.apply(params, {"passes": 0}, inputs, train, key)
        now = 0.5 * batch_stats["mean"] + 0.5 * jnp.mean(params["head_bias"])
        shifted = outputs._replace(logits=outputs.logits + batch_stats["mean"])
        return shifted, {"mean": now if train else batch_stats["mean"]}

    setup = plain._replace(
        init=lambda key: (as_float32(START), {"mean": jnp.float32(8)}), apply=apply
    )
    many = samples_of(np.tile(TRAIN[0], 25)[:130])
    sequence = [(SEQUENCE[0][0]._replace(train=many), BATCHES[0]), SEQUENCE[1]]
    strategy = imm(setup, "mean")
    after = run_tasks(setup, strategy, sequence)
    biases = [np.float64(learner.params["head_bias"]).mean() for _, learner in after]
    # 130 samples are three passes of 64, six are one; nothing is left of what was there before.
    for merged_bias, (memory, learner) in zip((biases[0], np.mean(biases)), after, strict=True):
        assert abs(learner.batch_stats["mean"] - merged_bias) > 0.1
        np.testing.assert_allclose(memory.batch_stats["mean"], merged_bias, rtol=1e-5)
    memory, learner = after[1]
    params = {n: np.mean([np.float64(own.params[n]) for _, own in after], axis=0) for n in START}
    logits = forward(params, np.arange(len(DATA)))[2] + float(memory.batch_stats["mean"])
    np.testing.assert_allclose(strategy.predict(memory, learner, INPUTS), logits, atol=1e-5)


def test_a_merge_that_there_is_not_is_named():
    with pytest.raises(ValueError, match="merge='median'; choose 'mean' or 'mode'"):
        imm(small_setup(), "median")
