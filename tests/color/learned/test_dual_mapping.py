"""DMCC: its four colours and drawn illuminants against NumPy, its size, and learned worlds."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from everlight.color import ILLUMINANT_METHODS, LabelledImages, SideInformation
from everlight.color.learned import dual_mapping
from everlight.color.learned.dual_mapping import (
    DAYLIGHT_WHITES,
    RADIUS,
    DualMappingModel,
    DualMappingNet,
    draw_illuminants,
    dual_mapping_estimate,
    fit_dual_mapping,
    four_colors,
)
from everlight.color.learned.parts.observed_image import ObservedImage
from everlight.metrics.angular import angular_error


def by_hand(pixels):
    """Apply the authors' rule in float64 to pixels above 0 and below 0.98 of the largest value."""
    stored = pixels[(pixels > 0).all(axis=1) & (pixels < 0.98 * pixels.max()).all(axis=1)]
    order = stored.sum(axis=1)
    four = np.array([stored[order.argmax()], stored.max(0), stored.mean(0), stored[order.argmin()]])
    return (four / four.sum(axis=1, keepdims=True))[:, :2].ravel()


def test_the_four_colors_leave_saturated_and_black_pixels_out(rng):
    image = rng.uniform(0.1, 0.9, (6, 7, 3))
    image[0, 0], image[1, 1], image[2, 2] = [0.99, 0.2, 0.2], [1.0, 0.3, 0.1], [0.01, 0.0, 0.01]
    image[3, 3] = [0.97, 0.9, 0.9]
    mask = np.ones((6, 7))
    mask[5] = 0
    expected = by_hand(image[:5].reshape(-1, 3))
    brightest = image[3, 3] / image[3, 3].sum()
    np.testing.assert_allclose(expected[:2], brightest[:2])
    spoilt = np.where(mask[..., None] > 0, image, 5)
    actual = jax.jit(four_colors)(jnp.float32(spoilt), jnp.float32(mask))
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_illuminants_are_drawn_evenly_from_disks_around_those_given():
    illuminants = np.array([[0.2, 0.5, 0.3], [0.5, 0.4, 0.1]])
    drawn = np.asarray(
        draw_illuminants(jax.random.key(0), jnp.float32(3 * illuminants), 20_000), float
    )
    np.testing.assert_allclose(drawn.sum(axis=1), 1, rtol=1e-5)
    away = (drawn[:, None] - illuminants)[..., :2]
    squares = (away**2).sum(axis=2)
    nearest = squares.argmin(axis=1)
    assert abs(nearest.mean() - 0.5) < 0.02
    least = squares.min(axis=1)
    assert least.max() <= RADIUS**2 * 1.0001
    # In a disk the squared distance is uniform between 0 and the radius' square.
    for share in (0.1, 0.5, 0.9):
        assert abs((least < share * RADIUS**2).mean() - share) < 0.02
    assert np.abs(away[nearest == 0, 0].mean(axis=0)).max() < 0.002


def test_where_a_disk_leaves_the_illuminants_it_is_the_center():
    inputs = jnp.array([[0.6, 0.395, 0.005]])
    drawn = np.asarray(draw_illuminants(jax.random.key(0), inputs, 2_000))
    assert (drawn > 0).all()
    at_center = np.isclose(drawn, np.asarray(inputs), rtol=1e-5).all(axis=1)
    assert 0.3 < at_center.mean() < 0.7


def test_the_net_has_the_papers_size():
    params = jax.eval_shape(DualMappingNet().init, jax.random.key(0), jnp.zeros(8))
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 783


def test_invalid_illuminants_are_nan():
    params = DualMappingNet().init(jax.random.key(0), jnp.zeros(8))
    zero = jax.tree.map(jnp.zeros_like, params)
    gray = ObservedImage(jnp.full((2, 2, 3), 0.3).at[0, 0].set(1), jnp.ones((2, 2)))
    predicted = dual_mapping_estimate(DualMappingModel(zero), gray)
    assert np.isnan(predicted).all()
    zero["params"]["Dense_6"]["bias"] = jnp.array([0.2, 0.5])
    predicted = dual_mapping_estimate(DualMappingModel(zero), gray)
    unit = np.array([0.2, 0.5, 0.3]) / np.sqrt(0.04 + 0.25 + 0.09)
    np.testing.assert_allclose(predicted, unit, rtol=1e-6)


def test_illuminants_of_a_camera_without_images_are_learned(rng):
    """Four surfaces of any colour show little: the net learns where the camera's illuminants are.

    The estimate is right where the illuminants are mapped, and some degrees off where they are not.
    """
    ratio = np.array([1.5, 1.0, 0.6])
    illuminants = rng.uniform(0.9, 1, (60, 3)) * [0.8, 1.0, 0.6]
    surfaces = rng.uniform(0.05, 1, (60, 2, 2, 3)) ** 2
    images = surfaces * illuminants[:, None, None]
    masks = jnp.ones(images.shape[:3])
    source, target = jnp.float32(illuminants), jnp.float32(illuminants * ratio)
    tested = ObservedImage(jnp.float32(images * ratio), masks)
    means = {}
    for name, mapped in (("mapped", target), ("own", source)):
        seen = ObservedImage(jnp.float32(images), masks)
        model = fit_dual_mapping(seen, source, mapped, key=jax.random.key(0), steps=400)
        predicted = jax.vmap(dual_mapping_estimate, (None, 0))(model, tested)
        means[name] = np.nanmean(jax.vmap(angular_error)(predicted, target))
    gray = np.mean(jax.vmap(angular_error)(jnp.float32(images * ratio).mean((1, 2)), target))
    assert gray > 10
    assert means["mapped"] < 6
    assert means["own"] > means["mapped"] + 5


def test_the_tested_cameras_illuminants_are_learned(monkeypatch, rng):
    """Von Kries factors of both cameras' white map the illuminants."""
    monkeypatch.setattr(
        dual_mapping, "fit_dual_mapping", lambda *arguments, **training: arguments[2]
    )
    illuminants = jnp.float32(rng.uniform(0.4, 1, (4, 3)))
    train = LabelledImages(jnp.ones((4, 2, 2, 4)), illuminants, jnp.array([1, 1, 1, 0]))
    fit = partial(ILLUMINANT_METHODS["DMCC"].fit, steps=1)
    cameras = "SonyA57", "NikonD5200"
    mapped = fit(train, SideInformation(cameras, "NikonD5200"))[3]
    expected = (
        illuminants[3] * np.array(DAYLIGHT_WHITES["NikonD5200"]) / np.array([0.16, 0.49, 0.35])
    )
    np.testing.assert_allclose(mapped, expected, rtol=1e-6)
    same = fit(train, SideInformation(cameras, "SonyA57"))[3]
    np.testing.assert_allclose(same, illuminants[3], rtol=1e-6)
