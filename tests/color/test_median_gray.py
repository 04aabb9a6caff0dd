"""Gray World with medians against NumPy, and among the methods that the command offers."""

import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color import ESTIMATORS
from everlight_data.errors import MissingDataError
from everlight_experiments.illuminant.estimate import estimate
from everlight_experiments.illuminant.estimate_settings import EstimateSettings


def test_it_is_numpys_median_of_the_unmasked_pixels(rng):
    image, mask = rng.uniform(0.1, 1, (9, 8, 3)), rng.uniform(size=(9, 8)) < 0.7
    expected = np.median(image[mask], axis=0)
    estimate = ESTIMATORS["GW by medians"](jnp.float32(image), jnp.asarray(mask))
    np.testing.assert_allclose(estimate, expected / np.linalg.norm(expected), rtol=1e-6)


def test_the_command_offers_it(tmp_path):
    with pytest.raises(MissingDataError, match=r"needs no training: .*GW by medians"):
        estimate(EstimateSettings((tmp_path / "a.dng",), tmp_path / "none"))
