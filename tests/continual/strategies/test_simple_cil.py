"""SimpleCIL against PILOT's prototypes and cosine scores in float64."""

import jax.numpy as jnp
import numpy as np

from everlight.continual.strategies import nearest_mean, simple_cil
from tests.continual.small_net import DATA, START, compiled, forward, small_setup
from tests.continual.strategies.frozen_stream import MET, after, arrivals, one_by_one

SETUP = small_setup()
TEST = np.arange(20, 40)
INPUTS = jnp.asarray(DATA[TEST], jnp.float32)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def test_scores_are_cosines_with_the_means_of_features():
    """`replace_fc` of `models/simplecil.py`, then its CosineLinear with a scale of 1."""
    strategy = compiled(simple_cil(SETUP))
    features, labels = arrivals()
    prototypes = np.stack([features[labels == c].mean(axis=0) for c in MET])
    expected = unit(forward(START, TEST)[1]) @ unit(prototypes).T
    for batches in (None, one_by_one()):
        memory, learner = after(strategy, batches)
        found = np.asarray(strategy.predict(memory, learner, INPUTS))
        np.testing.assert_allclose(found[:, MET], expected, atol=1e-5)
        assert np.all(found[:, [3, 4]] == -np.inf)


def test_it_differs_from_the_nearest_mean_of_directions():
    """Where features differ in length: a long one weighs more in a mean that is not of units."""
    memory, _ = after(compiled(simple_cil(SETUP)))
    other, _ = after(compiled(nearest_mean(SETUP, directions=True)))
    gap = unit(np.asarray(memory.mean)[MET]) - unit(np.asarray(other.mean)[MET])
    assert np.abs(gap).max() > 1e-3
