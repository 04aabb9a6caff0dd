"""Chromaticities of illuminants, and illuminants by their chromaticity."""

import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from everlight.color.chromaticity import from_chromaticity, to_chromaticity

channels = st.floats(2**-10, 2**10, width=32)


def test_hand_values_in_any_batch():
    lights = jnp.array([[[0.5, 2, 1], [3, 1, 4]]])
    np.testing.assert_array_equal(to_chromaticity(lights), [[[0.25, 0.5], [3, 4]]])
    np.testing.assert_array_equal(from_chromaticity(jnp.array([0.25, 0.5])), [0.25, 1, 0.5])


@given(light=st.tuples(channels, channels, channels))
def test_there_and_back_is_the_light_divided_by_green(light):
    light = np.float32(light)
    back = from_chromaticity(to_chromaticity(jnp.asarray(light)))
    np.testing.assert_allclose(back, np.float64(light) / np.float64(light[1]), rtol=3e-7)


def test_without_green_there_is_no_chromaticity():
    black, magenta = jnp.zeros(3), jnp.array([1.0, 0, 2])
    assert np.isnan(to_chromaticity(black)).all()
    assert np.isinf(to_chromaticity(magenta)).all()
