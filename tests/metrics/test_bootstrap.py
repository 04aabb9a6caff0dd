"""Bootstrap intervals against SciPy's and closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from everlight.metrics.bootstrap import bootstrap_interval, grouped_mean_interval

KEY = jax.random.key(0)


@pytest.fixture
def errors(rng):
    return jnp.asarray(rng.gamma(1, 2, 54), jnp.float32)


@pytest.mark.parametrize(("name", "level"), [("mean", 0.95), ("mean", 0.5), ("median", 0.9)])
def test_ends_are_those_of_scipy_up_to_sampling(errors, name, level):
    actual = bootstrap_interval(KEY, errors, getattr(jnp, name), level, resamples=20_000)
    reference = scipy.stats.bootstrap(
        (np.float64(errors),),
        getattr(np, name),
        confidence_level=level,
        n_resamples=20_000,
        method="percentile",
        random_state=1,
    ).confidence_interval
    width = reference.high - reference.low
    np.testing.assert_allclose(actual, reference, atol=0.05 * width)


def test_of_two_values_the_mean_is_a_binomial():
    """Means of two draws from {0, 1} are 0, 1/2, 1 with odds 1:2:1."""
    values = jnp.array([0.0, 1.0])
    assert bootstrap_interval(KEY, values, level=0.95, resamples=300) == (0, 1)
    assert bootstrap_interval(KEY, values, level=0.4, resamples=300) == (0.5, 0.5)


def test_the_interval_covers_the_truth_at_its_level():
    samples = jax.random.normal(jax.random.key(5), (300, 40))
    keys = jax.random.split(jax.random.key(6), 300)
    low, high = jax.jit(jax.vmap(lambda k, s: bootstrap_interval(k, s, level=0.8)))(keys, samples)
    coverage = np.mean((low <= 0) & (high >= 0))
    # The level is 0.8 less the percentile method's bias of 0.01; the standard error is 0.023.
    assert coverage == pytest.approx(0.79, abs=0.06)


def test_one_value_is_its_own_interval():
    assert bootstrap_interval(KEY, jnp.array([3.5])) == (3.5, 3.5)


def test_one_resample_is_both_ends(errors):
    low, high = bootstrap_interval(KEY, errors, resamples=1)
    assert jnp.min(errors) < low == high < jnp.max(errors)


def test_the_key_decides(errors):
    compiled = jax.jit(bootstrap_interval)
    first, again, other = (compiled(jax.random.key(seed), errors) for seed in (0, 0, 1))
    assert first == again
    assert first != other
    for interval in (first, other):
        assert interval.low < jnp.mean(errors) < interval.high


def test_a_statistic_that_some_resamples_do_not_have_has_no_interval():
    """A resample of 20 values lacks the largest one with probability 0.95^20 = 0.36."""

    def mean_with_largest(sample):
        return jnp.where(jnp.max(sample) == 19, jnp.mean(sample), jnp.nan)

    assert np.isnan(bootstrap_interval(KEY, jnp.arange(20.0), mean_with_largest)).all()


grouped = jax.jit(grouped_mean_interval, static_argnames=("count", "level", "resamples"))


def test_of_two_groups_the_mean_is_weighed_by_their_sizes():
    """Draws of {0, 0, 0} and {1} have means 0, 1/4 and 1 with odds 1:2:1."""
    values, groups = jnp.array([0.0, 1, 0, 0]), jnp.array([0, 1, 0, 0])
    assert grouped(KEY, values, groups, 2, level=0.95, resamples=300) == (0, 1)
    assert grouped(KEY, values, groups, 2, level=0.4, resamples=300) == (0.25, 0.25)


def test_groups_of_one_are_the_plain_bootstrap(errors):
    plain = bootstrap_interval(KEY, errors, resamples=5_000)
    actual = grouped(KEY, errors, jnp.arange(54), 54, resamples=5_000)
    np.testing.assert_allclose(actual, plain, rtol=1e-5)


@pytest.mark.slow
def test_a_grouped_interval_covers_the_truth_at_its_level_and_a_plain_one_does_not(rng):
    """Forty illuminants have fifty scenes; variation between and within illuminants is equal."""
    offsets, current = rng.normal(size=(300, 40, 1)), rng.normal(size=(300, 40, 50))
    samples = jnp.asarray((offsets + current).reshape(300, -1), jnp.float32)
    groups, keys = jnp.repeat(jnp.arange(40), 50), jax.random.split(jax.random.key(7), 300)

    def coverage(interval):
        low, high = jax.lax.map(lambda one: interval(*one), (keys, samples))
        return np.mean((low <= 0) & (high >= 0))

    by_illuminant = coverage(lambda k, s: grouped_mean_interval(k, s, groups, 40, 0.8, 300))
    by_scene = coverage(lambda k, s: bootstrap_interval(k, s, level=0.8, resamples=300))
    assert by_illuminant == pytest.approx(0.79, abs=0.06)
    assert by_scene < 0.35


def test_invalid_values_have_no_part_in_a_group():
    values = jnp.array([1.0, jnp.nan, 3.0, jnp.inf])
    groups = jnp.array([0, 0, 1, 2])
    assert grouped(KEY, values, groups, 3, level=0.99) == (1, 3)
