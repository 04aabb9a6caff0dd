"""Every estimator and metric of illuminant has a finite gradient where its value is finite.

People use them as losses; one NaN in a batch's gradient ends a training.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color.illuminant_registry import ESTIMATORS
from everlight.color.learned.bias_correction import (
    TrainingEstimates,
    correct_bias,
    correct_bias_locally,
    fit_bias_correction,
)
from everlight.color.learned.chromagenic import chromagenic_estimate, fit_chromagenic
from everlight.color.learned.gamut import fit_gamut, gamut_estimate
from everlight.color.learned.linear_regression import fit_linear_regression, linear_estimate
from everlight.color.learned.parts.observed_image import ObservedImage, observe_image
from everlight.color.moments import color_moments, edge_moments, extreme_chromaticities
from everlight.color.radiometry import patch_thumbnail
from everlight.color.transforms import fit_color_transform
from everlight.metrics.angular import angular_error, reproduction_error, summarize_errors
from everlight.metrics.bootstrap import bootstrap_interval

ILLUMINANT = jnp.array([0.6, 1.0, 0.8])


def surfaces(seed=0):
    return jax.random.uniform(jax.random.key(seed), (24, 3), minval=0.05)


def patches(side=8):
    """Return flat patches under an illuminant: most gradients of the image are 0."""
    return patch_thumbnail(surfaces() * ILLUMINANT, patch=side)


def one_patch():
    """Return one edge on flat ground: every colour on a line."""
    return jnp.full(patches().shape, 0.2).at[4:12, 4:12].set(ILLUMINANT)


def dark_corner():
    """Return patches of which some are black, as below a masked chart."""
    return patches().at[:8, :8].set(0)


IMAGES = {"patches": patches, "one patch": one_patch, "dark corner": dark_corner}


@cache
def gamut_of(order):
    images = jnp.stack([patch_thumbnail(surfaces(seed)) for seed in range(3)])
    seen = ObservedImage(images, jnp.ones(images.shape[:3]))
    return fit_gamut(seen, jnp.ones((3, 3)), order=order)


GAMUT_ORDERS = {"Gamut Pixel": 0, "Gamut Edge": 1}
SINGLE_IMAGE = dict(ESTIMATORS) | {
    "Gamut Pixel": lambda *seen: gamut_estimate(gamut_of(0), observe_image(*seen)),
    "Gamut Edge": lambda *seen: gamut_estimate(gamut_of(1), observe_image(*seen)),
    "moments": lambda image, mask: color_moments(image.reshape(-1, 3), mask.ravel())[:3],
    "edge moments": lambda image, mask: edge_moments(image, mask)[:3],
    "extremes": lambda image, mask: extreme_chromaticities(image, mask)[3:6],
    "correction": lambda image, mask: correct_bias(
        fit_bias_correction(surfaces(), surfaces(1), iterations=3), ESTIMATORS["GW"](image, mask)
    ),
}


@cache
def error_and_gradient(name):
    """Return error and gradient for an image whose last two rows are masked."""
    if name in GAMUT_ORDERS:
        gamut_of(GAMUT_ORDERS[name])  # outside of jit

    def error(image):
        mask = jnp.ones(image.shape[:2]).at[-2:].set(0)
        return angular_error(SINGLE_IMAGE[name](image, mask), jnp.array([0.3, 1.0, 0.5]))

    return jax.jit(jax.value_and_grad(error))


@pytest.mark.parametrize("name", SINGLE_IMAGE)
@pytest.mark.parametrize("scene", IMAGES)
def test_single_image_estimators(name, scene):
    value, gradient = error_and_gradient(name)(IMAGES[scene]())
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()
    assert np.abs(gradient[:-2]).max() > 0
    np.testing.assert_array_equal(gradient[-2:], 0)


@pytest.mark.parametrize("name", [*ESTIMATORS, "moments"])
def test_gradients_are_those_of_finite_differences(name):
    """The direction is smooth and the scene has no flat ground; differences are in float64."""
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(1))
        image, direction = (jax.random.uniform(key, (14, 14, 3), minval=0.2) for key in keys)

        @jax.jit
        @jax.value_and_grad
        def error(step):
            estimate = SINGLE_IMAGE[name](image + step * direction, jnp.ones((14, 14)))
            return angular_error(estimate, jnp.array([0.3, 1.0, 0.5]))

        slope = (error(1e-6)[0] - error(-1e-6)[0]) / 2e-6
        np.testing.assert_allclose(error(0.0)[1], slope, rtol=1e-4)


def test_a_local_correction_has_a_gradient():
    def total(estimate):
        return jnp.sum(correct_bias_locally(TrainingEstimates(surfaces(), surfaces(1)), estimate))

    gradient = jax.jit(jax.grad(total))(ILLUMINANT)
    assert np.isfinite(gradient).all()
    assert np.abs(gradient).max() > 0


WHITE, COLORED, RED = [1.0, 1.0, 1.0], [0.3, 1.0, 0.25], [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("metric", "illuminant"),
    [
        *((angular_error, illuminant) for illuminant in (WHITE, COLORED, RED)),
        *((reproduction_error, illuminant) for illuminant in (WHITE, COLORED)),
    ],
)
def test_the_error_of_an_illuminant_with_itself(metric, illuminant):
    """At the kink the gradient is 0, the middle of all slopes."""
    for scale in (1.0, 2.0):
        inputs = jnp.array(illuminant), scale * jnp.array(illuminant)
        value, gradient = jax.value_and_grad(metric)(*inputs)
        assert value == 0
        np.testing.assert_array_equal(gradient, 0)


def test_the_angle_away_from_the_kink():
    """On the unit circle the angle grows by one radian per unit of length."""
    gradient = jax.grad(angular_error)(jnp.array([1.0, 0, 0]), jnp.array([0.0, 1, 0]))
    np.testing.assert_allclose(gradient, [0, -180 / np.pi, 0], atol=1e-4)


def test_statistics_with_an_invalid_error():
    errors = jnp.array([1.0, 4.0, jnp.nan, 2.0, 2.0, 8.0])
    for name in ("mean", "median", "trimean", "best25", "worst25", "q1", "q3", "max"):
        gradient = jax.jit(jax.grad(lambda e, n=name: getattr(summarize_errors(e), n)))(errors)
        assert np.isfinite(gradient).all(), name
        assert gradient[2] == 0, name
        assert gradient.sum() == pytest.approx(1), name


def test_the_ends_of_an_interval():
    errors = jnp.array([1.0, 4.0, 3.0, 2.0])
    low = jax.grad(lambda e: bootstrap_interval(jax.random.key(0), e, resamples=50).low)(errors)
    assert np.isfinite(low).all()
    assert low.sum() == pytest.approx(1)


@pytest.mark.parametrize("normalize", [None, "mean", "scale", "sum"])
def test_transforms_and_what_reads_them(normalize):
    second = surfaces() @ jnp.array([[0.8, 0.1, 0.0], [0.1, 0.9, 0.1], [0.0, 0.1, 0.7]])
    transforms = 1 + jax.random.uniform(jax.random.key(3), (12, 3, 3))
    model = fit_linear_regression(transforms.reshape(12, 9), transforms.reshape(12, 9)[:, :2])

    def total(main):
        transform = fit_color_transform(main, second, normalize=normalize).transform
        return jnp.sum(linear_estimate(model, transform.ravel()))

    for main in (surfaces(), surfaces().at[:4].set(0)):
        gradient = jax.jit(jax.grad(total))(main)
        assert np.isfinite(gradient).all()
        assert np.abs(gradient).max() > 0


def test_chromagenic_choices():
    """The choice is a step, so its gradient is 0; that of the candidates is the choice."""
    main, labels = surfaces()[None], jnp.array([0])
    model = fit_chromagenic(main, main * ILLUMINANT, labels, ILLUMINANT[None])
    error = jax.grad(lambda c: jnp.sum(chromagenic_estimate(model, c, main[0] * ILLUMINANT)))(
        main[0]
    )
    np.testing.assert_array_equal(error, 0)
