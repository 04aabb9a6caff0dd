"""Images by other cameras, against float64 NumPy and what white and linear cameras imply."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from everlight.color.camera_calibration import CameraCalibration
from everlight.color.learned.parts.camera_mapping import (
    WHITE,
    TakenImages,
    balanced_transform,
    draw_camera,
    draw_imaginary_view,
    draw_view,
    illuminant_temperature,
    interpolated_matrix,
    mapped_illuminant,
    neighboring_illuminant,
)
from everlight.color.transforms import inverse_transform


def cameras(rng, count=3):
    return np.eye(3) + 0.2 * rng.uniform(-1, 1, (count, 3, 3))


def calibrated(low, high):
    temperatures = jnp.tile(jnp.array([2856.0, 6504.0]), (len(low), 1))
    return CameraCalibration(jnp.float32(np.stack([low, high], axis=1)), temperatures)


def taken_by(rng, count=60):
    illuminant = rng.uniform(0.4, 1, (count, 3)) * [0.6, 1, 0.8]
    return TakenImages(jnp.float32(illuminant), jnp.arange(count) % 3)


def test_a_mapped_image_is_that_of_the_other_linear_camera(rng):
    """Both are compared for surfaces under D65, and for white under any illuminant."""
    first, second = cameras(rng, 2)
    xyz = rng.uniform(0.1, 1, (20, 3))
    taken = [xyz @ item.T / (item @ WHITE) for item in (first, second)]
    transform = balanced_transform(jnp.float32(first), jnp.float32(second))
    np.testing.assert_allclose(taken[0] @ np.asarray(transform, float), taken[1], rtol=1e-4)
    np.testing.assert_allclose(jnp.sum(transform, axis=0), 1, atol=1e-5)
    inverse = inverse_transform(jnp.float32(first))
    np.testing.assert_allclose(inverse, np.linalg.inv(first), rtol=1e-4)
    illuminant = rng.uniform(0.5, 1, 3)
    result = mapped_illuminant(
        jnp.float32(first @ illuminant), jnp.float32(first), jnp.float32(second)
    )
    expected = second @ illuminant
    np.testing.assert_allclose(result, expected / expected.sum(), rtol=1e-4)


def test_an_illuminant_is_like_those_beside_it(rng):
    """Its mean and spread are those of the neighbours, with C5's factors; one is itself."""
    taken = taken_by(rng, 90)
    place = jnp.float32([0.25, 0.42, 0.33])
    keys = jax.random.split(jax.random.key(0), 4_000)
    draw = jax.jit(jax.vmap(neighboring_illuminant, (0, None, None, None)))
    drawn = np.asarray(draw(keys, place, taken, jnp.array(1)), float)
    illuminants = np.asarray(taken.illuminants[1::3], float)
    shares = illuminants / illuminants.sum(axis=1, keepdims=True)
    away = np.linalg.norm((shares - np.asarray(place))[:, :2], axis=1)
    nearest = np.argsort(away)[:15]
    weights = np.exp(1 - away[nearest] / away[nearest].sum())
    red, green = shares[nearest, 0], shares[nearest, 1]
    slope, at = np.polyfit(red, green, 1)
    expected = (weights * red).sum() / weights.sum()
    np.testing.assert_allclose(drawn.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(drawn[:, 0].mean(), expected, atol=1e-3)
    np.testing.assert_allclose(drawn[:, 0].std(), 0.7 * red.std(), rtol=0.05)
    off = drawn[:, 1] - (slope * drawn[:, 0] + at)
    np.testing.assert_allclose(off.std(), 1.2 * green.std(), rtol=0.05)
    np.testing.assert_allclose(off.mean(), 0, atol=2e-3)
    single = TakenImages(taken.illuminants[:1], jnp.array([4]))
    result = neighboring_illuminant(keys[0], place, single, jnp.array(4))
    illuminant = taken.illuminants[0]
    np.testing.assert_allclose(result, illuminant / illuminant.sum(), rtol=1e-5)


def test_other_cameras_are_equally_likely():
    numbers = jnp.array([0] * 10 + [1] * 40 + [2] * 2)
    keys = jax.random.split(jax.random.key(1), 3_000)
    drawn = jax.vmap(draw_camera, (0, None, None))(keys, numbers, jnp.array(0))
    assert set(np.unique(drawn).tolist()) == {1, 2}
    np.testing.assert_allclose(np.mean(drawn == 1), 0.5, atol=0.03)
    single = jax.vmap(draw_camera, (0, None, None))(keys[:9], numbers[:10], jnp.array(0))
    assert not np.asarray(single).any()


def test_views_show_gray_in_their_illuminant(rng):
    """A grey surface has the illuminant's colour in every view, of real and imaginary cameras."""
    taken, matrices = taken_by(rng), jnp.float32(cameras(rng))
    both = calibrated(cameras(rng), matrices)
    views = ((draw_view, matrices), (draw_imaginary_view, both))
    for draw, known in views:
        for number in range(6):
            view = draw(jax.random.key(number), jnp.array(number), taken, known)
            gray = np.asarray(taken.illuminants[number] @ view.transform, float)
            illuminant = np.asarray(view.illuminant, float)
            np.testing.assert_allclose(
                gray / np.linalg.norm(gray), illuminant / np.linalg.norm(illuminant), rtol=1e-4
            )
            assert view.camera != number % 3


def test_an_imaginary_view_lies_between_both_cameras(rng):
    """The view's colours are those of the mixed matrices, white-balanced separately."""
    taken, matrices = taken_by(rng), cameras(rng)
    view = draw_imaginary_view(
        jax.random.key(5), jnp.array(4), taken, calibrated(matrices, matrices)
    )
    share, camera = float(view.share), int(view.camera)
    illuminant = np.asarray(view.illuminant, float)
    illuminants = np.asarray(taken.illuminants[1::3], float)
    illuminants = illuminants / illuminants[:, 1:2]
    mapped = illuminants @ np.linalg.inv(matrices[1]).T @ matrices[camera].T
    mixed = share * illuminants + (1 - share) * mapped / mapped[:, 1:2]
    nearest = np.abs(mixed - illuminant).max(axis=1)
    assert nearest.min() < 1e-4
    row = nearest.argmin()
    colors = rng.uniform(0.1, 1, (5, 3))
    white = np.asarray(taken.illuminants[4], float)
    other = mapped[row] / mapped[row, 1]
    xyz = colors * (matrices[1] @ WHITE) @ np.linalg.inv(matrices[1]).T
    balanced = xyz @ matrices[camera].T / (matrices[camera] @ WHITE)
    expected = share * colors * illuminants[row] + (1 - share) * balanced * other
    np.testing.assert_allclose(
        (colors * white) @ np.asarray(view.transform, float), expected, rtol=1e-3
    )


# Matrices from XYZ to colours of a Canon EOS 600D, under standard illuminant A and D65.
TUNGSTEN = [[0.7164, -0.1916, -0.0431], [-0.3361, 1.1600, 0.2006], [-0.0244, 0.0923, 0.7271]]
DAYLIGHT = [[0.6461, -0.0907, -0.0882], [-0.4300, 1.2184, 0.2378], [-0.0819, 0.1944, 0.5931]]


def kang_chromaticity(kelvin):
    """Return x and y of Kang et al. 2002 between 2,222 and 25,000 K."""
    if kelvin <= 4_000:
        x = -0.2661239e9 / kelvin**3 - 0.2343589e6 / kelvin**2 + 0.8776956e3 / kelvin + 0.179910
        return x, -0.9549476 * x**3 - 1.37418593 * x**2 + 2.09137015 * x - 0.16748867
    x = -3.0258469e9 / kelvin**3 + 2.1070379e6 / kelvin**2 + 0.2226347e3 / kelvin + 0.240390
    return x, 3.0817580 * x**3 - 5.87338670 * x**2 + 3.75112997 * x - 0.37001483


def float64_matrix(kelvin):
    share = np.clip((1 / kelvin - 1 / 2856) / (1 / 6504 - 1 / 2856), 0, 1)
    return share * np.array(DAYLIGHT) + (1 - share) * np.array(TUNGSTEN)


@pytest.mark.parametrize("true_kelvin", [2_500, 3_100, 4_500, 6_000, 9_000])
def test_temperature_and_matrix_equal_a_float64_iteration(true_kelvin):
    """An illuminant off the Planckian locus; SciPy finds the nearest temperature."""
    x, y = kang_chromaticity(true_kelvin)
    y += 0.004
    illuminant = float64_matrix(true_kelvin) @ [x / y, 1, (1 - x - y) / y]
    kelvin = 6504.0
    for _ in range(40):
        xyz = np.linalg.solve(float64_matrix(kelvin), illuminant)
        chromaticity = xyz[:2] / xyz.sum()

        def distance(inverse, at=chromaticity):
            return np.sum((np.array(kang_chromaticity(1e6 / inverse)) - at) ** 2)

        kelvin = 1e6 / minimize_scalar(distance, bounds=(41, 449), method="bounded").x
    one = CameraCalibration(jnp.float32([TUNGSTEN, DAYLIGHT]), jnp.array([2856.0, 6504.0]))
    temperature = illuminant_temperature(one, jnp.float32(illuminant))
    # Temperatures lie 0.55 mired apart.
    np.testing.assert_allclose(1e6 / temperature, 1e6 / kelvin, atol=1.2)
    np.testing.assert_allclose(
        interpolated_matrix(one, temperature), float64_matrix(kelvin), atol=2e-3
    )
    single = CameraCalibration(jnp.float32([DAYLIGHT, DAYLIGHT]), jnp.array([2856.0, 6504.0]))
    np.testing.assert_array_equal(interpolated_matrix(single, temperature), jnp.float32(DAYLIGHT))
    single_one = CameraCalibration(jnp.float32([DAYLIGHT]), jnp.array([jnp.nan]))
    np.testing.assert_array_equal(
        interpolated_matrix(single_one, temperature), jnp.float32(DAYLIGHT)
    )
    results = [
        illuminant_temperature(known, jnp.float32(illuminant)) for known in (single, single_one)
    ]
    np.testing.assert_array_equal(*results)


def test_an_imaginary_view_has_both_cameras_matrices_at_the_illuminants_temperature(rng):
    """The colours are those that linear cameras see under the new illuminant, in float64."""
    low, high = cameras(rng), cameras(rng)
    taken, known = taken_by(rng), calibrated(low, high)
    view = draw_imaginary_view(jax.random.key(5), jnp.array(4), taken, known)
    share, camera = float(view.share), int(view.camera)
    colors = rng.uniform(0.1, 1, (5, 3))
    balanced = colors * np.asarray(taken.illuminants[4], float) @ np.asarray(view.transform, float)
    errors = []
    for first in np.asarray(taken.illuminants[1::3], float):
        first = first / first[1]
        one = CameraCalibration(known.matrices[1], known.temperatures[1])
        kelvin = float(illuminant_temperature(one, jnp.float32(first)))
        weight = np.clip((1 / kelvin - 1 / 2856) / (1 / 6504 - 1 / 2856), 0, 1)
        source, target = (weight * high[i] + (1 - weight) * low[i] for i in (1, camera))
        second = (colors * first) @ np.linalg.inv(source).T @ target.T
        mapped = target @ np.linalg.solve(source, first)
        expected = share * colors * first + (1 - share) * second / mapped[1]
        errors.append(np.abs(expected - balanced).max())
    assert min(errors) < 1e-3


def test_one_matrix_for_all_cameras_leaves_von_kries_factors(rng):
    view = draw_view(jax.random.key(0), jnp.array(2), taken_by(rng), jnp.eye(3)[None])
    off = np.asarray(view.transform) - np.diag(np.diag(view.transform))
    np.testing.assert_allclose(off, 0, atol=1e-6)
