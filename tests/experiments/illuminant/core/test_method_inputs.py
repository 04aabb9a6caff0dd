"""The fingerprint of images changes with all that methods learn from."""

import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color.camera_calibration import CameraCalibration
from everlight_data.color.photographs.camera_images import IlluminantImages
from everlight_data.sets.constancy_set import Captures
from everlight_experiments.illuminant.core.method_inputs import images_fingerprint

FOLDS = [np.array([0, 1]), np.array([2, 3])]
DATA = IlluminantImages(
    images=np.ones((4, 2, 2, 3), np.float32),
    masks=np.ones((4, 2, 2), np.float32),
    illuminants=np.ones((4, 3), np.float32),
    folds=FOLDS,
    note="",
    camera="A1",
    taken_by=["A1"] * 4,
    names=["a", "b", "c", "d"],
    captures=Captures(np.ones((4, 1), np.float32), ("lux",)),
    calibrations={"A1": CameraCalibration(jnp.ones((1, 3, 3)), jnp.array([5000.0]))},
)


def differing(data, folds):
    """Return the entries in which a fingerprint differs from that of `DATA` in its folds."""
    first, second = images_fingerprint(DATA, FOLDS), images_fingerprint(data, folds)
    return {name for name in first.keys() | second.keys() if first.get(name) != second.get(name)}


@pytest.mark.parametrize("field", ["images", "masks", "illuminants"])
def test_images_and_folds_are_the_data(field):
    assert differing(DATA, FOLDS) == set()
    assert differing(DATA._replace(**{field: 2 * getattr(DATA, field)}), FOLDS) == {"data"}
    assert differing(DATA, FOLDS[::-1]) == {"data"}


def test_captures_and_calibrations_have_entries_where_there_are_some():
    """Stored runs without them have none."""
    brighter = Captures(2 * DATA.captures.values, ("lux",))
    assert differing(DATA._replace(captures=brighter), FOLDS) == {"captures"}
    assert differing(DATA._replace(captures=None), FOLDS) == {"captures"}
    other = CameraCalibration(jnp.zeros((1, 3, 3)), jnp.array([5000.0]))
    assert differing(DATA._replace(calibrations={"A1": other}), FOLDS) == {"matrices"}
    plain = DATA._replace(captures=None, calibrations={})
    assert images_fingerprint(plain, FOLDS).keys() == {"data"}


def test_temperatures_of_two_matrices_are_of_the_calibration():
    """A single matrix's temperature is not read, so that stored runs stay valid."""
    one, two = jnp.ones((1, 3, 3)), jnp.ones((2, 3, 3))

    def checksum(matrices, *temperatures):
        calibration = CameraCalibration(matrices, jnp.array(temperatures))
        data = DATA._replace(calibrations={"A1": calibration})
        return images_fingerprint(data, FOLDS)["matrices"]

    assert checksum(one, 5000.0) == checksum(one, 6500.0)
    assert checksum(two, 2856.0, 5000.0) != checksum(two, 2856.0, 6500.0)
