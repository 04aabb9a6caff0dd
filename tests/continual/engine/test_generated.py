"""Learning from generated tasks against a loop in float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.base import Outputs, Samples, Setup, TaskGenerator
from everlight.continual.engine import learn_generated
from everlight.continual.objectives import regression_objective
from everlight.continual.strategies import (
    balanced_replay,
    gdumb,
    icarl,
    joint,
    naive,
    shrink_and_perturb,
    streaming_lda,
)
from everlight.scenarios import permuted_tasks
from tests.continual.small_net import small_setup
from tests.refusals import refused

RATE, TASKS, STEPS, BATCH, PROBE = 0.1, 3, 4, 2, 5


def inputs_of(index):
    return jnp.stack([jnp.sin(index * 1.0), jnp.cos(index * 2.0)], axis=1)


def setup_of():
    """Return a linear model of two outputs that starts at 0.5."""

    def apply(params, batch_stats, inputs, train, key):
        logits = inputs @ params["weights"]
        return Outputs(logits, inputs), batch_stats

    return Setup(
        init=lambda key: ({"weights": jnp.full((2, 2), 0.5)}, {}),
        apply=apply,
        objective=regression_objective(lambda label: jnp.stack([label % 3.0, label % 4.0], axis=1)),
        optimizer=optax.sgd(RATE),
        gather=lambda index, key: inputs_of(index),
    )


# Task n, counted from 1, has the samples 10 n, 10 n + 1 and so on, at every step.
GENERATOR = TaskGenerator(
    begin=lambda key: jnp.int32(0),
    next_task=lambda number, key: number + 1,
    draw=lambda number, count, key: Samples(
        10 * number + jnp.arange(count),
        (10 * number + jnp.arange(count))[:, None],
        jnp.ones(count, bool),
    ),
)


def by_hand(shrinkage=1.0, start=0.5):
    """Return weights after every task, losses and measures."""
    weights, after, losses, norms = np.full((2, 2), start), [], [], []
    for task in range(1, TASKS + 1):
        if task > 1:
            weights = weights * shrinkage
        index = 10 * task + np.arange(BATCH)
        inputs = np.stack([np.sin(index), np.cos(2 * index)], axis=1)
        targets, total = np.stack([index % 3, index % 4], axis=1), 0.0
        for _ in range(STEPS):
            away = inputs @ weights - targets
            total += np.mean(away**2)
            weights = weights - RATE * inputs.T @ away / BATCH
        after.append(weights)
        losses.append(total / STEPS)
        probe = 10 * task + np.arange(PROBE)
        norms.append(np.sin(probe) @ np.full(PROBE, 1.0) + (weights**2).sum())
    return after, losses, norms


def learn(strategy_of, tasks=TASKS):
    def measure(params, outputs):
        return jnp.sum(outputs.features[:, 0]) + jnp.sum(params["weights"] ** 2)

    setup = setup_of()._replace(measure=measure)

    def run(key):
        return learn_generated(
            setup, strategy_of(setup), GENERATOR, tasks, STEPS, key, BATCH, PROBE
        )

    return run


def test_losses_measures_and_parameters_are_the_loop_in_float64():
    for strategy_of, shrinkage in (
        (naive, 1.0),
        (lambda setup: shrink_and_perturb(setup, 0.5, 0.0), 0.5),
    ):
        result = jax.jit(learn(strategy_of))(jax.random.key(0))
        after, losses, norms = by_hand(shrinkage)
        np.testing.assert_allclose(result.learner.params["weights"], after[-1], rtol=1e-5)
        np.testing.assert_allclose(result.losses, losses, rtol=1e-5)
        np.testing.assert_allclose(result.measured, norms, rtol=1e-5)
        assert result.prequential is None
        assert result.tested is None
        assert int(result.learner.step) == TASKS * STEPS
        assert result.learner.seen.tolist() == [True, True], "one entry for each logit"


def test_the_metric_before_learning_is_minus_the_loss_of_regression():
    setup = setup_of()
    key = jax.random.key(0)
    parts = setup, naive(setup), GENERATOR, TASKS, STEPS, key, BATCH
    result = jax.jit(lambda: learn_generated(*parts, prequential=True))()
    _, losses, _ = by_hand()
    np.testing.assert_allclose(result.prequential, np.negative(losses), rtol=1e-5)


def test_parameters_are_renewed_before_and_tested_after_every_task():
    """Weights of 0 before each task make every task the same as a run of its own."""
    generator = GENERATOR._replace(
        test=lambda number: Samples(
            number + jnp.arange(3), (number + jnp.arange(3))[:, None], jnp.arange(3) < 2
        ),
        renew=lambda params: {"weights": 0 * params["weights"]},
    )
    setup = setup_of()
    parts = setup, naive(setup), generator, TASKS, STEPS, jax.random.key(0), BATCH
    result = jax.jit(lambda: learn_generated(*parts))()
    for task, weights in enumerate(by_hand(0.0, start=0.0)[0], start=1):
        # The mask leaves two of three test samples.
        index = task + np.arange(2)
        inputs = np.stack([np.sin(index), np.cos(2 * index)], axis=1)
        away = inputs @ weights - np.stack([index % 3, index % 4], axis=1)
        np.testing.assert_allclose(result.tested[task - 1], -np.mean(away**2), rtol=1e-5)


def test_the_program_does_not_grow_with_the_number_of_tasks():
    def shapes(tasks):
        traced = jax.make_jaxpr(learn(naive, tasks))(jax.random.key(0))
        return str(traced).replace(str(tasks), "T")

    assert shapes(1777) == shapes(2999)


def test_no_task_has_samples_beyond_the_indices_of_32_bits():
    """60,000 images have the indices of 35,791 tasks below 2^31 = 2,147,483,648."""
    setup, generator = setup_of(), permuted_tasks(np.array([0, 1]), 2, 60_000)
    index = generator.draw(generator.next_task(jnp.int32(35_789), None), 9, jax.random.key(0)).index
    assert set(np.asarray(index)) <= {35_790 * 60_000, 35_790 * 60_000 + 1}
    refused(
        "^tasks=35792; give 35791 or less$",
        lambda: learn_generated(setup, naive(setup), generator, 35_792, 1, jax.random.key(1)),
    )


def test_samples_and_changes_of_tasks_have_keys_of_their_own():
    """No two draws of a run are equal: three changes, three probes and twelve batches."""
    drawn = []

    def note(key):
        jax.debug.callback(
            lambda words: drawn.append(tuple(words.tolist())), jax.random.key_data(key)
        )

    def next_task(number, key):
        note(key)
        return GENERATOR.next_task(number, key)

    def draw(number, count, key):
        note(key)
        return GENERATOR.draw(number, count, key)

    setup = setup_of()
    noted = TaskGenerator(GENERATOR.begin, next_task, draw)
    jax.block_until_ready(
        learn_generated(setup, naive(setup), noted, TASKS, STEPS, jax.random.key(1), BATCH, PROBE)
    )
    jax.effects_barrier()
    assert len(drawn) == len(set(drawn)) == TASKS * (2 + STEPS)


@pytest.mark.parametrize(
    ("strategy_of", "reason"),
    [
        (streaming_lda, "has before_evaluation, single_pass, which generated tasks do not use"),
        (lambda setup: gdumb(setup, 4), "has before_evaluation, memory_training, which"),
        (lambda setup: joint(setup, TASKS), "has uses_past, which generated tasks do not use"),
        # Six classes of 20 exemplars; 12 of all classes together.
        (balanced_replay, "adds 120 samples to a task's, and generated tasks have no epochs"),
        (lambda setup: icarl(setup, buffer_size=12), "adds 12 samples to a task's"),
        (lambda setup: naive(setup)._replace(tasks=4), "made with tasks=4, the sequence has 3"),
    ],
)
def test_strategies_that_need_more_than_batches_are_refused(strategy_of, reason):
    """Unrefused, balanced replay would replay nothing and joint training would be naive."""
    setup = small_setup()
    with pytest.raises(ValueError, match=reason):
        learn_generated(
            setup, strategy_of(setup), GENERATOR, TASKS, STEPS, jax.random.key(0), BATCH, PROBE
        )
