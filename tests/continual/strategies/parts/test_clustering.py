"""k-means against SciPy's, and the draw of its first centres."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.cluster.vq import kmeans2

from everlight.continual.strategies.parts.clustering import first_centers, k_means, moved_centers

KEY = jax.random.key(0)


@pytest.mark.parametrize("seed", range(4))
def test_moved_centers_are_scipys(seed):
    """The first centres are arguments; rows outside the cluster, NaN among them, have no effect."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(60, 3))
    member = rng.random(60) < 0.7
    start = rows[member][:5]
    expected, _ = kmeans2(rows[member], start, 300, minit="matrix")
    result = jax.jit(moved_centers)(jnp.float32(rows), member, jnp.float32(start))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    assert np.abs(expected - start).max() > 0.1


def test_a_center_without_members_stays():
    rows = jnp.float32([[0.0], [1.0], [10.0]])
    start = jnp.float32([[0.2], [50.0]])
    result = moved_centers(rows, jnp.array([True, True, False]), start)
    np.testing.assert_allclose(result, [[0.5], [50.0]], rtol=1e-6)


def test_first_centers_are_drawn_by_their_squared_distance():
    """Points are 0, 1 and 3: after 0 the rest have 1 and 9 parts of 10, after 1 they have 1, 4."""
    rows = jnp.float32([[0.0], [1.0], [3.0], [70.0]])
    member = jnp.array([True, True, True, False])
    keys = jax.random.split(KEY, 4000)
    drawn = jax.jit(jax.vmap(lambda key: first_centers(rows, member, 2, key)))(keys)
    pairs = np.asarray(drawn)[:, :, 0]
    assert set(np.unique(pairs)) == {0.0, 1.0, 3.0}
    expected = {0: {1: 1 / 10, 3: 9 / 10}, 1: {0: 1 / 5, 3: 4 / 5}, 3: {0: 9 / 13, 1: 4 / 13}}
    for first, shares in expected.items():
        selected = pairs[pairs[:, 0] == first, 1]
        # The bound is five deviations of a share among a third of 4,000 draws.
        assert len(selected) == pytest.approx(4000 / 3, abs=150)
        for second, share in shares.items():
            assert np.mean(selected == second) == pytest.approx(share, abs=0.07)


def test_clusters_far_apart_are_found_whatever_the_key():
    """Four groups, each as wide as a hundredth of their distance, have their means as centres."""
    rng = np.random.default_rng(3)
    group = rng.integers(0, 4, 50)
    rows = 100 * np.eye(4)[group] + rng.normal(size=(50, 4))
    means = np.stack([rows[group == number].mean(axis=0) for number in range(4)])
    cluster = jax.jit(lambda key: k_means(jnp.float32(rows), jnp.ones(50, bool), 4, key))
    for key in jax.random.split(KEY, 5):
        centers = np.asarray(cluster(key))
        np.testing.assert_allclose(centers[centers.argmax(axis=0)], means, rtol=1e-4, atol=1e-4)


def test_with_fewer_members_than_clusters_centers_are_equal():
    rows = jnp.float32([[1.0, 2.0], [9.0, 9.0], [3.0, 4.0]])
    centers = k_means(rows, jnp.array([True, False, True]), 5, KEY)
    np.testing.assert_array_equal(np.unique(centers, axis=0), [[1, 2], [3, 4]])
