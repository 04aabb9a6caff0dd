"""What every single-image estimator promises, one table for all."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color import BASELINES, ESTIMATORS, FOURIER_SETTINGS
from everlight.color.learned.calibrated_camera import (
    CALIBRATED_SMALL_FORM,
    calibrated_estimate,
)
from everlight.color.chroma_histogram import chroma_histograms
from everlight.color.learned.cross_camera import (
    ADDITIONAL_IMAGES,
    SMALL_FORM,
    cross_camera_estimate,
)
from everlight.color.learned.dual_mapping import DualMappingModel, DualMappingNet
from everlight.color.learned.fourier_constancy import FourierModel
from everlight.color.learned.generator_net import GeneratorNet
from everlight.color.learned.generator_training import GeneratorModel, initial_variables
from everlight.color.learned.sensor_independent import (
    SensorIndependentModel,
    SensorIndependentNet,
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


# Learnt on as many scenes, quickly; all others have drawn parameters instead.
TRAINING_SCENES = {"Gamut Pixel": 4, "Gamut Edge": 4} | dict.fromkeys(
    ("Corrected moments", "Corrected edge moments", "Homography (SoG)", "APAP (GW)"), 64
)


def drawn_model(name):
    """Parameters such that the estimate depends on the image: training takes longer than tests."""
    if name == "SIIE":
        images, _ = scenes(100, 1)
        pixels, weights = images.reshape(1, -1, 3), jnp.ones((1, HEIGHT * WIDTH))
        params = SensorIndependentNet().init(jax.random.key(0), pixels, weights)
        return SensorIndependentModel(
            jax.tree.map(
                lambda leaf: leaf + 0.01 * jnp.sin(jnp.arange(leaf.size)).reshape(leaf.shape),
                params,
            )
        )
    if name == "DMCC":
        params = DualMappingNet().init(jax.random.key(0), jnp.zeros(8))
        params["params"]["Dense_6"]["kernel"] *= 0.1
        params["params"]["Dense_6"]["bias"] += 1 / 3
        return DualMappingModel(params)
    filters = jax.random.normal(jax.random.key(0), (2, 64, 64))
    return FourierModel(filters, jnp.zeros((64, 64)), jnp.full(2, -32.0))


def learn(name):
    """Return a function of an image and its mask."""
    if name in ("C5", "CCMNet"):
        return generator(name)
    baseline = BASELINES[name]
    if name in TRAINING_SCENES:
        images, lights = scenes(100, TRAINING_SCENES[name])
        seen = jax.vmap(baseline.observe)(images, jnp.ones(images.shape[:3]))
        model = baseline.fit(seen, lights, jax.random.key(0))
    else:
        model = drawn_model(name)
    return lambda image, mask: baseline.predict(model, baseline.observe(image, mask))


def generator(name):
    """Networks of drawn parameters on histograms, with other images or a fingerprint beside."""
    settings = SMALL_FORM if name == "C5" else CALIBRATED_SMALL_FORM
    if name == "C5":
        images, _ = scenes(100, ADDITIONAL_IMAGES)
        beside = jax.vmap(lambda image: chroma_histograms(image, None, settings.window))(images)
    else:
        beside = jnp.full((32, 32, 2), 1 / 32)
    given = (beside[None], None) if name == "C5" else (None, beside[None])
    blank = jnp.zeros((1, 32, 32, 2))
    variables = initial_variables(jax.random.key(0), GeneratorNet(settings), blank, *given)
    estimate = {"C5": cross_camera_estimate, "CCMNet": calibrated_estimate}[name]
    model = GeneratorModel(variables, settings)
    return lambda image, mask: estimate(
        model, chroma_histograms(image, mask, settings.window), beside
    )


@cache
def compiled(name):
    return jax.jit(ESTIMATORS[name] if name in ESTIMATORS else learn(name))


@pytest.fixture(params=[*ESTIMATORS, *BASELINES, "C5", "CCMNet"])
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


FEWER_STEPS = {
    "FFCC": {
        "settings": FOURIER_SETTINGS["SonyA57"],
        "crossentropy_steps": 1,
        "likelihood_steps": 1,
    },
    "SIIE": {"steps": 2},
    "DMCC": {"steps": 2},
}


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_is_fitted_inside_jit_from_observations_illuminants_and_a_key(name):
    baseline, (images, lights) = BASELINES[name], scenes(10, 8)
    fit = partial(baseline.fit, **FEWER_STEPS.get(name, {}))

    def estimates(images, masks, lights, key):
        seen = jax.vmap(baseline.observe)(images, masks)
        return jax.vmap(baseline.predict, (None, 0))(fit(seen, lights, key), seen)

    masks = jnp.ones(images.shape[:3])
    found = jax.eval_shape(estimates, images, masks, lights, jax.random.key(0))
    assert (found.shape, found.dtype) == ((8, 3), jnp.float32)
