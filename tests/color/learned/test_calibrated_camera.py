"""CCMNet: a camera that took no training image, by its calibration alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color.camera_calibration import (
    CameraCalibration,
    camera_fingerprint,
    locus_illuminants,
)
from everlight.color.chroma_histogram import chroma_histograms
from everlight.color.learned.calibrated_camera import calibrated_estimate, fit_calibrated_camera
from everlight.color.learned.parts.observed_image import ObservedImage
from everlight.metrics.angular import angular_error
from tests.color.learned.tiny_generator import TINY

TEMPERATURES = (2856.0, 6504.0)


def calibrations(rng, count):
    """Return cameras whose gains differ much and whose cross-talk differs a little."""
    gains = np.exp(rng.uniform(-0.5, 0.5, (count, 3, 1)))
    matrices = gains * (np.eye(3) + 0.05 * rng.uniform(-1, 1, (count, 3, 3)))
    both = np.repeat(matrices[:, None], 2, axis=1)
    return CameraCalibration(
        jnp.float32(both), jnp.broadcast_to(jnp.array(TEMPERATURES), (count, 2))
    )


def images(rng, camera, count):
    """Draw surfaces under Planckian and daylight illuminants in the camera's colours."""
    illuminants = np.asarray(locus_illuminants(camera))[rng.integers(0, 126, count)]
    seen = rng.uniform(0.1, 1, (count, 4, 4, 3)) * illuminants[:, None, None]
    return jnp.float32(seen), jnp.float32(illuminants)


def of_camera(interval, number):
    return jax.tree.map(lambda leaf: leaf[number], interval)


@pytest.mark.slow
def test_the_calibration_gives_an_unseen_cameras_gains():
    rng = np.random.default_rng(0)
    cameras = calibrations(rng, 13)
    parts = [images(rng, of_camera(cameras, number), 24) for number in range(13)]
    seen, illuminants = (jnp.concatenate(item) for item in zip(*parts[:12], strict=True))
    observed = ObservedImage(seen, jnp.ones(seen.shape[:3]))
    numbers, key = jnp.arange(12).repeat(24), jax.random.key(0)
    model = fit_calibrated_camera(
        observed, illuminants, numbers, cameras, key=key, settings=TINY, steps=300
    )
    requested = jax.vmap(lambda image: chroma_histograms(image, None, TINY.window))(parts[12][0])
    complete = jax.jit(jax.vmap(calibrated_estimate, (None, 0, None)))

    def error_with(number):
        current = camera_fingerprint(of_camera(cameras, number), TINY.fingerprint_window)
        return np.mean(jax.vmap(angular_error)(complete(model, requested, current), parts[12][1]))

    others = [error_with(number) for number in range(12)]
    assert error_with(12) < 0.95 * np.mean(others)
