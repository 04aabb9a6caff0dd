"""Nearest class mean against float64 means and scikit-learn's nearest centroid, and SimpleCIL's."""

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.neighbors import NearestCentroid

from everlight.continual.strategies import nearest_mean, simple_cil
from everlight.continual.strategies.parts.class_statistics import add_to_means, no_means
from tests.continual import small_net as net
from tests.continual.many_labels import PAIRS, binary_setup, labelled_batch
from tests.continual.small_net import CLASSES, DATA, HIDDEN, START
from tests.continual.strategies.references import frozen_stream as stream
from tests.continual.strategies.references.frozen_stream import MET

SETUP = net.small_setup()
TEST = np.arange(20, 40)


def scores_of(strategy):
    memory, learner = stream.state_after(strategy)
    return strategy.predict(memory, learner, jnp.float32(DATA[TEST]))


@pytest.mark.parametrize("directions", [False, True])
def test_scores_are_the_squared_distances_to_the_means(directions):
    scale = net.unit if directions else lambda rows: rows
    features, labels = stream.arrivals()
    means = np.stack([scale(features)[labels == c].mean(axis=0) for c in MET])
    test = net.forward(START, TEST)[1]
    away = scale(test)[:, None] - scale(means)
    result = np.asarray(scores_of(nearest_mean(SETUP, directions=directions)))
    np.testing.assert_allclose(result[:, MET], -np.sum(away**2, axis=2), atol=1e-5)
    assert np.all(result[:, [3, 4]] == -np.inf)


def test_predictions_are_scikit_learn_s_nearest_centroid():
    reference = NearestCentroid().fit(*stream.arrivals())
    result = np.argmax(scores_of(nearest_mean(SETUP)), axis=1)
    expected = reference.predict(net.forward(START, TEST)[1])
    assert len(set(expected)) > 2
    np.testing.assert_array_equal(result, expected)


def test_of_two_labels_both_classes_count():
    setup, index = binary_setup(), np.array([0, 3, 9, 12, 27])
    memory, _ = stream.state_after(nearest_mean(setup), [labelled_batch(index)], setup)
    features = net.forward(START, index, train=True)[1]
    for c in range(CLASSES):
        carried = np.any(PAIRS[index] == c, axis=1)
        assert memory.count[c] == carried.sum()
        if carried.any():
            np.testing.assert_allclose(memory.mean[c], features[carried].mean(axis=0), atol=1e-6)


def test_a_mean_far_from_0_keeps_its_digits():
    """50,000 samples lie about 1,000: the mean moves by less than its last digits."""
    rng = np.random.default_rng(0)
    block = (1000 + rng.normal(size=(1000, HIDDEN))).astype(np.float32)
    means, member = no_means(1, HIDDEN), jnp.ones((1000, 1), bool)
    for _ in range(50):
        means = add_to_means(means, jnp.asarray(block), member)
    assert means.count[0] == 50_000
    np.testing.assert_allclose(means.mean[0], block.astype(float).mean(axis=0), atol=1e-4)


@pytest.mark.parametrize("shift", [0, 1000])
def test_scores_of_digits_do_not_depend_on_where_0_lies(shift):
    """The reference is the float64 scores of the same features; accuracy is 0.9 at both shifts."""
    _, result, train, test = stream.streamed_digits(nearest_mean, shift)
    _, labels, _, truth = stream.digits()
    means = np.stack([train[labels == c].mean(axis=0) for c in range(CLASSES)])
    expected = -np.sum((test[:, None] - means) ** 2, axis=2)
    np.testing.assert_allclose(result, expected, rtol=2e-6, atol=1e-5)
    assert (result.argmax(axis=1) == truth).mean() > 0.9


def test_scores_are_cosines_with_the_means_of_features():
    """The reference is `replace_fc` of `models/simplecil.py`, and its CosineLinear of scale 1."""
    strategy = net.compiled(simple_cil(SETUP))
    features, labels = stream.arrivals()
    prototypes = np.stack([features[labels == c].mean(axis=0) for c in MET])
    expected = net.unit(net.forward(START, TEST)[1]) @ net.unit(prototypes).T
    for batches in (None, stream.one_by_one()):
        memory, learner = stream.state_after(strategy, batches)
        np.testing.assert_array_equal(memory.count, [4, 5, 4, 0, 0, 2])
        predicted = np.asarray(strategy.predict(memory, learner, jnp.float32(DATA[TEST])))
        np.testing.assert_allclose(predicted[:, MET], expected, atol=1e-5)
        assert np.all(predicted[:, [3, 4]] == -np.inf)
