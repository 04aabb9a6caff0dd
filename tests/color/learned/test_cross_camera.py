"""C5: what may change nothing, images that spoil nothing, and a camera that took no image."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color.camera_calibration import CameraCalibration
from everlight.color.chroma_histogram import ChromaWindow, chroma_histograms
from everlight.color.illuminant_method import ADDITIONAL_IMAGES
from everlight.color.learned.calibrated_camera import fit_calibrated_camera
from everlight.color.learned.cross_camera import cross_camera_estimate, fit_cross_camera
from everlight.color.learned.parts.generator_net import GeneratorNet, GeneratorSettings
from everlight.color.learned.parts.generator_training import GeneratorModel, initial_variables
from everlight.color.learned.parts.observed_image import ObservedImage
from everlight.metrics.angular import angular_error

TINY = GeneratorSettings(ChromaWindow(16, -1.4, 1.4), (4, 8), separate=False)
estimate = jax.jit(cross_camera_estimate)


@jax.jit
@jax.vmap
def histograms_of(image):
    return chroma_histograms(image, None, TINY.window)


def drawn_model():
    same_camera, others = jnp.ones((1, 16, 16, 2)), jnp.ones((1, ADDITIONAL_IMAGES, 16, 16, 2))
    variables = initial_variables(jax.random.key(1), GeneratorNet(TINY), same_camera, others)
    return GeneratorModel(variables, TINY)


def images(rng, count, gains=(1.0, 1.0, 1.0)):
    """Draw surfaces of any colour under similar illuminants, and return the illuminants too."""
    illuminants = rng.uniform(0.9, 1, (count, 3)) * gains
    seen = rng.uniform(0.1, 1, (count, 4, 4, 3)) * illuminants[:, None, None]
    return jnp.float32(seen), jnp.float32(illuminants)


def test_the_other_images_matter_and_their_order_does_not(rng):
    histograms = histograms_of(images(rng, 13)[0])
    model, same_camera = drawn_model(), histograms[0]
    result = estimate(model, same_camera, histograms[1:7])
    np.testing.assert_allclose(
        estimate(model, same_camera, histograms[1:7][::-1]), result, rtol=1e-5
    )
    assert np.abs(estimate(model, same_camera, histograms[7:]) - result).max() > 1e-4


def test_spoilt_images_beside_one_count_as_empty(rng):
    histograms = histograms_of(images(rng, 7)[0])
    model = drawn_model()
    spoilt = histograms[1:].at[1].set(jnp.nan)
    result = estimate(model, histograms[0], spoilt)
    assert np.isfinite(result).all()
    empty = histograms[1:].at[1].set(0)
    np.testing.assert_array_equal(result, estimate(model, histograms[0], empty))
    assert np.isnan(estimate(model, histograms[0] * 0, empty)).all()


@pytest.mark.parametrize("fit", [fit_cross_camera, fit_calibrated_camera])
def test_camera_numbers_beyond_the_matrices_are_refused(rng, fit):
    seen, illuminants = images(rng, 3)
    both = jnp.broadcast_to(jnp.eye(3), (2, 2, 3, 3))
    temperatures = jnp.broadcast_to(jnp.array([2856.0, 6504]), (2, 2))
    known = both[:, 1] if fit is fit_cross_camera else CameraCalibration(both, temperatures)
    observed, cameras = ObservedImage(seen, jnp.ones(seen.shape[:3])), jnp.arange(3)
    with pytest.raises(ValueError, match="cameras holds 2"):
        fit(observed, illuminants, cameras, known, key=jax.random.key(0), steps=1)


@pytest.mark.slow
def test_other_images_of_an_unseen_camera_correct_its_gains():
    """Training cameras differ in gains; other images of the unseen camera show its gains."""
    rng = np.random.default_rng(0)
    gains = np.exp(rng.uniform(-0.4, 0.4, (9, 3)))
    parts = [images(rng, 24, same_camera) for same_camera in gains]
    seen, illuminants = (jnp.concatenate(item) for item in zip(*parts[:8], strict=True))
    observed = ObservedImage(seen, jnp.ones(seen.shape[:3]))
    cameras = jnp.arange(8).repeat(24)
    model = fit_cross_camera(
        observed, illuminants, cameras, key=jax.random.key(0), settings=TINY, steps=200
    )
    requested, truth = histograms_of(parts[8][0]), parts[8][1]
    complete = jax.jit(jax.vmap(cross_camera_estimate, (None, 0, 0)))

    def error_beside(pool):
        others = jnp.stack([jnp.roll(pool, -place, 0)[1:7] for place in range(len(requested))])
        return np.mean(jax.vmap(angular_error)(complete(model, requested, others), truth))

    mean = jnp.broadcast_to(illuminants.mean(axis=0), truth.shape)
    current = error_beside(requested)
    assert current < np.mean(jax.vmap(angular_error)(mean, truth)) - 0.5
    assert current < error_beside(histograms_of(parts[3][0])) - 1
