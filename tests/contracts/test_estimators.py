"""What every single-image estimator promises, one table for all."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color.bias_correction import (
    correct_bias,
    correct_bias_locally,
    fit_bias_correction,
)
from everlight.color.cross_camera import (
    CrossCameraModel,
    GeneratorNet,
    cross_camera_estimate,
)
from everlight.color.dual_mapping import (
    DualMappingModel,
    DualMappingNet,
    dual_mapping_estimate,
    four_colors,
)
from everlight.color.estimators import ESTIMATORS
from everlight.color.fourier_constancy import (
    FourierModel,
    fourier_estimate,
    log_chroma_histograms,
)
from everlight.color.gamut import fit_gamut, gamut_estimate
from everlight.color.moments import color_moments, edge_moments
from everlight.color.sensor_independent import (
    SensorIndependentModel,
    SensorIndependentNet,
    sensor_independent_estimate,
)

HEIGHT, WIDTH = 24, 40


def scenes(seed, count=4):
    """Random colours in blocks of 4x4 pixels with a little noise, under random lights."""
    rng = np.random.default_rng(seed)
    blocks = rng.uniform(0.05, 1, size=(count, HEIGHT // 4, WIDTH // 4, 3))
    lights = rng.uniform(0.3, 1, size=(count, 3)).astype(np.float32)
    images = np.repeat(np.repeat(blocks, 4, axis=1), 4, axis=2) * lights[:, None, None]
    images += rng.uniform(0, 0.02, size=images.shape)
    return jnp.asarray(images, jnp.float32), jnp.asarray(lights)


def chart_mask(seed):
    """A masked chart and a masked right border."""
    row, column = np.random.default_rng(seed).integers(0, 12, size=2)
    mask = jnp.ones((HEIGHT, WIDTH)).at[row : row + 5, column : column + 6].set(0)
    return mask.at[:, 34:].set(0)


GAMUT_ORDERS = {"Gamut Pixel": 0, "Gamut Edge": 1}


def scene_moments(image, mask):
    weights = None if mask is None else (mask > 0).astype(image.dtype).ravel()
    return color_moments(image.reshape(-1, 3), weights)


# What each reads of an image; learnt on `LEARNT` scenes as the gamuts are on four.
CORRECTIONS = {
    "Corrected moments": scene_moments,
    "Corrected edge moments": edge_moments,
    "Homography": ESTIMATORS["SoG"],
}
LEARNT = 64
ADDITIONAL_IMAGES = ("APAP", "C5", "DMCC", "FFCC", "SIIE")


def learn(name):
    """A function of an image and its mask, as those that learn nothing are."""
    images, lights = scenes(100, LEARNT)
    masks = jnp.ones(images.shape[:3])
    if name in CORRECTIONS:
        look = CORRECTIONS[name]
        matrix = fit_bias_correction(jax.vmap(look)(images, masks), lights)
        return lambda image, mask: correct_bias(matrix, look(image, mask))
    if name == "APAP":
        estimates = jax.vmap(ESTIMATORS["GW"])(images, masks)
        return lambda image, mask: correct_bias_locally(
            estimates, lights, ESTIMATORS["GW"](image, mask)
        )
    if name == "SIIE":
        pixels, weights = images[:1].reshape(1, -1, 3), masks[:1].reshape(1, -1)
        params = SensorIndependentNet().init(jax.random.key(0), pixels, weights)
        # Whatever the nets are, but that they heed what they see.
        stronger = jax.tree.map(
            lambda leaf: leaf + 0.01 * jnp.sin(jnp.arange(leaf.size)).reshape(leaf.shape), params
        )
        return partial(sensor_independent_estimate, SensorIndependentModel(stronger))
    if name == "DMCC":
        params = DualMappingNet().init(jax.random.key(0), jnp.zeros(8))
        # Whatever the net is, but that it tells lights.
        params["params"]["Dense_6"]["kernel"] *= 0.1
        params["params"]["Dense_6"]["bias"] += 1 / 3
        model = DualMappingModel(params)
        return lambda image, mask: dual_mapping_estimate(model, four_colors(image, mask))
    if name == "C5":
        others = jax.vmap(log_chroma_histograms)(images[:3], masks[:3])
        coarse = jnp.ones((1, 32, 32, 2)), jnp.ones((1, 3, 32, 32, 2))
        params = GeneratorNet().init(jax.random.key(0), *coarse)
        model = CrossCameraModel(params, jnp.full(2, -32.0))
        return lambda image, mask: cross_camera_estimate(
            model, log_chroma_histograms(image, mask), others
        )
    # Whatever the filters are: fitting them takes longer than all tests here.
    model = FourierModel(
        jax.random.normal(jax.random.key(0), (2, 64, 64)), jnp.zeros((64, 64)), jnp.full(2, -32.0)
    )
    return lambda image, mask: fourier_estimate(model, log_chroma_histograms(image, mask))


@cache
def compiled(name):
    if name in ESTIMATORS:
        return jax.jit(ESTIMATORS[name])
    if name not in GAMUT_ORDERS:
        return jax.jit(learn(name))
    images, lights = scenes(100)
    gamut = fit_gamut(images, jnp.ones(images.shape[:3]), lights, GAMUT_ORDERS[name])
    return jax.jit(partial(gamut_estimate, gamut))


@pytest.fixture(params=[*ESTIMATORS, *GAMUT_ORDERS, *CORRECTIONS, *ADDITIONAL_IMAGES])
def estimator(request):
    return compiled(request.param)


def test_is_a_unit_float32_illuminant(estimator):
    images, _ = scenes(0)
    for image in images:
        estimate = estimator(image, chart_mask(0))
        assert estimate.shape == (3,)
        assert estimate.dtype == jnp.float32
        assert (estimate > 0).all()
        np.testing.assert_allclose(jnp.linalg.norm(estimate), 1, rtol=1e-6)


def test_jit_is_eager(estimator):
    images, _ = scenes(1)
    expected = estimator(images[0], chart_mask(1))
    eager = estimator.__wrapped__(images[0], chart_mask(1))
    np.testing.assert_allclose(eager, expected, rtol=1e-4)


def test_vmap_is_one_by_one(estimator):
    images, _ = scenes(2)
    masks = jnp.stack([chart_mask(seed) for seed in range(len(images))])
    expected = [estimator(*pair) for pair in zip(images, masks, strict=True)]
    np.testing.assert_allclose(jax.vmap(estimator)(images, masks), jnp.stack(expected), rtol=1e-4)


@pytest.mark.parametrize("garbage", [jnp.nan, jnp.inf, -jnp.inf, 3e38, -1.0, 0.5])
def test_masked_garbage_changes_no_bit(estimator, garbage):
    images, _ = scenes(3)
    mask = chart_mask(3)
    spoilt = jnp.where(mask[..., None] > 0, images[0], garbage)
    np.testing.assert_array_equal(estimator(spoilt, mask), estimator(images[0], mask))


def test_a_masked_border_is_cut_off(estimator):
    images, _ = scenes(4)
    mask = jnp.ones((HEIGHT, WIDTH)).at[:, 28:].set(0)
    np.testing.assert_allclose(
        estimator(images[0], mask), estimator(images[0][:, :28], None), rtol=1e-4
    )


def test_the_mask_matters(estimator):
    images, _ = scenes(5)
    assert not np.allclose(
        estimator(images[0], chart_mask(5).at[:, :20].set(0)), estimator(images[0], None), rtol=1e-4
    )


def test_a_mask_may_be_boolean_or_absent(estimator):
    images, _ = scenes(6)
    mask = chart_mask(6)
    np.testing.assert_array_equal(
        estimator(images[0], mask.astype(bool)), estimator(images[0], mask)
    )
    np.testing.assert_allclose(
        estimator(images[0], None), estimator(images[0], jnp.ones((HEIGHT, WIDTH))), rtol=1e-5
    )


@pytest.mark.parametrize("case", ["black", "masked", "NaN", "infinite"])
def test_no_estimate_is_nan(estimator, case):
    image, mask = scenes(7)[0][0], jnp.ones((HEIGHT, WIDTH))
    if case == "black":
        image = jnp.zeros_like(image)
    elif case == "masked":
        mask = jnp.zeros_like(mask)
    else:
        image = image.at[12, 20, 1].set(jnp.nan if case == "NaN" else jnp.inf)
    assert jnp.isnan(estimator(image, mask)).all()


def test_a_bad_image_leaves_the_others_of_its_batch_alone(estimator):
    images, _ = scenes(8)
    masks = jnp.ones(images.shape[:3])
    batched = jax.vmap(estimator)
    expected = batched(images, masks)
    actual = batched(images.at[1].set(jnp.nan), masks)
    assert jnp.isnan(actual[1]).all()
    np.testing.assert_array_equal(actual[jnp.array([0, 2, 3])], expected[jnp.array([0, 2, 3])])


def test_a_second_call_of_the_same_shape_traces_nothing(estimator):
    traces = []

    @jax.jit
    def counted(image, mask):
        traces.append(image.shape)
        return estimator(image, mask)

    images, _ = scenes(9)
    for image in images:
        counted(image, chart_mask(9))
    assert len(traces) == 1
