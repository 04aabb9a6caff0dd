"""Shrink and perturb: its factor, its noise and when it acts."""

import jax
import jax.numpy as jnp
import numpy as np

from everlight.continual.strategies.shrink_and_perturb import shrink_and_perturb
from tests.continual.small_net import START, small_learner, small_setup, task_of

SETUP = small_setup()


def started_parameters(strategy, step, keys):
    learner = small_learner(SETUP, [0, 1])._replace(step=jnp.int32(step))
    task = task_of(1, [0, 1], [0])
    begin = jax.vmap(lambda key: strategy.begin_task((), learner, task, key)[1].params)
    return begin(jax.random.split(jax.random.key(4), keys))


def test_parameters_are_shrunk_and_the_noise_has_its_deviation():
    """4,000 draws have mean and deviation within five standard errors; no two leaves are alike."""
    result = started_parameters(shrink_and_perturb(SETUP, 0.7, 0.05), 1, 4000)
    noise = {name: np.asarray(result[name]) - 0.7 * START[name] for name in START}
    for leaf in noise.values():
        assert np.abs(leaf.mean(axis=0)).max() < 5 * 0.05 / np.sqrt(4000)
        np.testing.assert_allclose(leaf.std(axis=0), 0.05, rtol=5 / np.sqrt(2 * 4000))
    pairs = np.corrcoef(noise["hidden_bias"].T, noise["head_bias"].T)
    assert np.abs(pairs - np.eye(len(pairs))).max() < 5 / np.sqrt(4000)


def test_initial_and_frozen_parameters_are_not_perturbed():
    strategy = shrink_and_perturb(SETUP, 0.0)
    for name, leaf in started_parameters(strategy, 0, 1).items():
        np.testing.assert_array_equal(leaf[0], np.float32(START[name]))
    frozen = SETUP._replace(trainable=lambda params: {name: name == "head" for name in params})
    result = started_parameters(shrink_and_perturb(frozen, 0.0, 0.0), 5, 1)
    np.testing.assert_array_equal(result["hidden"][0], np.float32(START["hidden"]))
    np.testing.assert_array_equal(result["head"][0], 0)
