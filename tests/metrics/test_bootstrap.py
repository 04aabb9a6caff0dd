import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from everlight.metrics.bootstrap import bootstrap_interval

KEY = jax.random.key(0)


@pytest.fixture
def errors(rng):
    return jnp.asarray(rng.gamma(1, 2, 54), jnp.float32)


@pytest.mark.parametrize(("name", "level"), [("mean", 0.95), ("mean", 0.5), ("median", 0.9)])
def test_ends_are_those_of_scipy_up_to_sampling(errors, name, level):
    ours = bootstrap_interval(KEY, errors, getattr(jnp, name), level, resamples=20_000)
    theirs = scipy.stats.bootstrap(
        (np.float64(errors),),
        getattr(np, name),
        confidence_level=level,
        n_resamples=20_000,
        method="percentile",
        random_state=1,
    ).confidence_interval
    width = theirs.high - theirs.low
    np.testing.assert_allclose(ours, theirs, atol=0.05 * width)


def test_of_two_values_the_mean_is_a_binomial():
    """Means of two draws from {0, 1} are 0, 1/2, 1 with odds 1:2:1."""
    values = jnp.array([0.0, 1.0])
    assert bootstrap_interval(KEY, values, level=0.95, resamples=300) == (0, 1)
    assert bootstrap_interval(KEY, values, level=0.4, resamples=300) == (0.5, 0.5)


def test_the_interval_covers_the_truth_as_often_as_it_says():
    samples = jax.random.normal(jax.random.key(5), (300, 40))
    keys = jax.random.split(jax.random.key(6), 300)
    low, high = jax.jit(jax.vmap(lambda k, s: bootstrap_interval(k, s, level=0.8)))(keys, samples)
    coverage = np.mean((low <= 0) & (high >= 0))
    # 0.8 less the percentile method's bias of 0.01; the standard error of 300 trials is 0.023.
    assert coverage == pytest.approx(0.79, abs=0.06)


def test_one_value_is_its_own_interval():
    assert bootstrap_interval(KEY, jnp.array([3.5])) == (3.5, 3.5)


def test_one_resample_is_both_ends(errors):
    low, high = bootstrap_interval(KEY, errors, resamples=1)
    assert jnp.min(errors) < low == high < jnp.max(errors)


def test_the_key_decides_and_compiles_nothing_anew(errors):
    compiled = jax.jit(chex.assert_max_traces(bootstrap_interval, n=1))
    first, again, other = (compiled(jax.random.key(seed), errors) for seed in (0, 0, 1))
    assert first == again
    assert first != other
    for interval in (first, other):
        assert interval.low < jnp.mean(errors) < interval.high
