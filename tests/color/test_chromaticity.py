"""Chromaticities of illuminants, and illuminants by their chromaticity."""

import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from everlight.color.chromaticity import chromaticity_to_illuminant, illuminant_to_chromaticity

channels = st.floats(2**-10, 2**10, width=32)


def test_hand_values_in_any_batch():
    illuminants = jnp.array([[[0.5, 2, 1], [3, 1, 4]]])
    np.testing.assert_array_equal(illuminant_to_chromaticity(illuminants), [[[0.25, 0.5], [3, 4]]])
    np.testing.assert_array_equal(
        chromaticity_to_illuminant(jnp.array([0.25, 0.5])), [0.25, 1, 0.5]
    )


@given(illuminant=st.tuples(channels, channels, channels))
def test_chromaticity_and_its_inverse_divide_the_illuminant_by_green(illuminant):
    illuminant = np.float32(illuminant)
    back = chromaticity_to_illuminant(illuminant_to_chromaticity(jnp.asarray(illuminant)))
    np.testing.assert_allclose(back, np.float64(illuminant) / np.float64(illuminant[1]), rtol=3e-7)


def test_without_green_there_is_no_chromaticity():
    black, magenta = jnp.zeros(3), jnp.array([1.0, 0, 2])
    assert np.isnan(illuminant_to_chromaticity(black)).all()
    assert np.isinf(illuminant_to_chromaticity(magenta)).all()
