"""Slowly changing regression against the official formulas in float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight import scenarios


def test_targets_are_those_of_the_threshold_network():
    network = scenarios.draw_target_network(jax.random.key(0), 12, 30, 0.6)
    weights, bias, outputs = (np.asarray(leaf, np.float64) for leaf in network[:3])
    assert {*weights.ravel()} == {*bias} == {*outputs} == {-1.0, 1.0}
    inputs = np.random.default_rng(1).integers(0, 2, (50, 12)).astype(np.float64)
    expected, responding = [], 0
    for row in inputs:
        total = float(network.offset)
        for unit in range(30):
            negative = (12 - weights[:, unit].sum() + bias[unit]) / 2
            if row @ weights[:, unit] + bias[unit] > 0.6 * 13 - negative:
                total += outputs[unit]
                responding += 1
        expected.append(total)
    assert 0.1 < responding / 1500 < 0.9
    np.testing.assert_array_equal(scenarios.target_values(network, jnp.float32(inputs)), expected)


def test_a_number_s_digits_are_the_slow_bits_and_then_random_ones():
    slow = jnp.array([True, False, True])
    numbers = scenarios.draw_numbers(slow, 4000, 8, jax.random.key(2))
    bits = np.asarray(scenarios.binary_digits(numbers, 8))
    assert (bits[:, :3] == [1, 0, 1]).all()
    np.testing.assert_array_equal(bits @ 2 ** np.arange(8), numbers)
    # Coins are independent and fair: means and correlations are within five standard errors.
    fast = bits[:, 3:] - 0.5
    np.testing.assert_allclose(fast.T @ fast / 4000, np.eye(5) / 4, atol=5 / 4 / np.sqrt(4000))
    np.testing.assert_allclose(fast.mean(axis=0), 0, atol=5 / 2 / np.sqrt(4000))
    samples = scenarios.draw_samples(slow, 4000, 8, jax.random.key(2))
    np.testing.assert_array_equal(samples.index, numbers)
    np.testing.assert_array_equal(samples.labels[:, 0], numbers)
    assert samples.mask.all()


def test_one_slow_bit_changes_between_tasks_each_as_often_or_all_are_drawn():
    slow, keys = jnp.array([True, False, True, True]), jax.random.split(jax.random.key(3), 4000)
    changed = np.asarray(jax.vmap(lambda key: scenarios.change_slow_bits(slow, key))(keys)) != slow
    assert (changed.sum(axis=1) == 1).all()
    np.testing.assert_allclose(changed.mean(axis=0), 0.25, atol=5 * np.sqrt(3 / 16 / 4000))
    anew = np.asarray(jax.vmap(lambda key: scenarios.change_slow_bits(slow, key, "all"))(keys))
    np.testing.assert_allclose(anew.mean(axis=0), 0.5, atol=5 / 2 / np.sqrt(4000))


def test_too_few_or_too_many_bits_are_refused():
    for inputs in (2, 32):
        with pytest.raises(ValueError, match=f"inputs is {inputs}; give 3 "):
            scenarios.draw_numbers(jnp.zeros(3, bool), 1, inputs, jax.random.key(0))
