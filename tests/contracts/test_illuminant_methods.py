"""Contracts of every method that estimates one illuminant per image, for all rows alike."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight import color
from everlight.color.learned.capture_aware import CAPTURE_AWARE, IMAGE_ALONE
from everlight.color.learned.confidence_pooling import TrunkViews
from everlight.color.learned.fourier_constancy import TUNED_HERE

HEIGHT, WIDTH = 24, 32
TRAINING_SCENES = 64
ROWS = {name: row for name, row in color.ILLUMINANT_METHODS.items() if not row.costly}
"""The costly ones are the same functions with larger networks."""
STEPS, ROUNDS = {"steps": 30}, {"crossentropy_steps": 2, "likelihood_steps": 2}
TAKING_STEPS = ("C5, small form", "CCMNet, small form", "DMCC", "FC4-style", "SIIE")
FEW_STEPS = dict.fromkeys((*TAKING_STEPS, CAPTURE_AWARE, IMAGE_ALONE), STEPS)
FEW_STEPS |= dict.fromkeys(("FFCC", TUNED_HERE), ROUNDS)
"""Training arguments of rows that take steps."""


def scenes(seed, count=4):
    """Draw colours in blocks of 4x4 pixels with a little noise, under random illuminants."""
    rng = np.random.default_rng(seed)
    blocks = rng.uniform(0.05, 1, size=(count, HEIGHT // 4, WIDTH // 4, 3))
    illuminants = rng.uniform(0.3, 1, size=(count, 3)).astype(np.float32)
    images = np.repeat(np.repeat(blocks, 4, axis=1), 4, axis=2) * illuminants[:, None, None]
    images += rng.uniform(0, 0.02, size=images.shape)
    return jnp.asarray(images, jnp.float32), jnp.asarray(illuminants)


def chart_mask(seed):
    """Return a mask of a chart and of a right border."""
    row, column = np.random.default_rng(seed).integers(0, 12, size=2)
    mask = jnp.ones((HEIGHT, WIDTH)).at[row : row + 5, column : column + 6].set(0)
    return mask.at[:, 28:].set(0)


def block_means(images, masks):
    """Return means of 8x8 blocks as maps of a frozen network, in two equal views."""
    seen = jax.vmap(color.keep_observed)(images, masks)
    blocks = seen.reshape(len(seen), 8, seen.shape[1] // 8, 8, seen.shape[2] // 8, 3)
    views = jnp.stack([jnp.mean(blocks, axis=(2, 4))] * 2, axis=1)
    brightest = jnp.max(views, axis=(1, 2, 3, 4), keepdims=True)
    maps = jnp.sqrt(jnp.abs(views) / jnp.where(brightest > 0, brightest, 1))
    return TrunkViews(maps, views, jnp.ones((len(seen), 2, 3)))


def side_of(count):
    """Return side information on `count` images by a camera of FFCC's and DMCC's authors."""
    calibration = color.CameraCalibration(
        jnp.eye(3)[None, None].repeat(2, 1), jnp.array([[2856, 6504.0]])
    )
    captures = np.sin(np.arange(15 * count, dtype=np.float32)).reshape(count, 15)
    return color.SideInformation(
        ("SonyA57",), "SonyA57", calibration, "", captures, block_means, missing_trunk=str
    )


def described(row, image, mask):
    """Return the features of one image."""
    if row.features is not None and not row.reads_capture:
        return row.features(image, mask)
    mask = jnp.ones(image.shape[:2]) if mask is None else mask
    return jax.tree.map(lambda leaf: leaf[0], row.describe(image[None], mask[None], side_of(1)))


def reads_pixels_alone(row):
    """Return whether a row needs neither captures, nor other images, nor maps of places."""
    return row.features is not None and not (row.reads_others or row.reads_capture)


def labelled(row, images, illuminants):
    features = row.describe(images, jnp.ones(images.shape[:3]), side_of(len(images)))
    return color.LabelledImages(features, illuminants, jnp.zeros(len(images), int))


@cache
def compiled(name):
    """Return the compiled function of an image and its mask, fitted to scenes."""
    row, (images, illuminants) = ROWS[name], scenes(100, TRAINING_SCENES)
    train = labelled(row, images, illuminants)
    parameters = row.fit(train, side_of(TRAINING_SCENES), **FEW_STEPS.get(name, {}))
    others = jax.tree.map(lambda leaf: leaf[:6], train.features)
    more = (others,) if row.reads_others else ()
    return jax.jit(lambda image, mask: row.predict(parameters, described(row, image, mask), *more))


@pytest.fixture(
    params=[
        pytest.param(name, marks=[pytest.mark.medium] if name in FEW_STEPS else []) for name in ROWS
    ]
)
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


def test_the_exposure_does_not_matter(estimator, request):
    (image, *_), _ = scenes(11)
    mask = chart_mask(11)
    of_any_unit = request.node.callspec.params["estimator"] in color.ESTIMATORS
    for scale in (1 / 8, 1e-6, 65535.0) if of_any_unit else (1 / 8,):
        result = estimator(image * scale, mask)
        np.testing.assert_allclose(result, estimator(image, mask), rtol=1e-4)


@pytest.mark.parametrize("garbage", [jnp.nan, jnp.inf, -jnp.inf, 3e38, -1.0, 0.5])
def test_masked_garbage_changes_no_bit(estimator, garbage):
    images, _ = scenes(3)
    mask = chart_mask(3)
    spoilt = jnp.where(mask[..., None] > 0, images[0], garbage)
    np.testing.assert_array_equal(estimator(spoilt, mask), estimator(images[0], mask))


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if reads_pixels_alone(row)])
def test_a_masked_border_is_cut_off(name):
    images, _ = scenes(4)
    mask = jnp.ones((HEIGHT, WIDTH)).at[:, 24:].set(0)
    cut_off = compiled(name)(images[0][:, :24], None)
    np.testing.assert_allclose(compiled(name)(images[0], mask), cut_off, rtol=1e-4)


def test_the_mask_matters(estimator):
    images, _ = scenes(5)
    masked = estimator(images[0], chart_mask(5).at[:, :16].set(0))
    assert not np.allclose(masked, estimator(images[0], None), rtol=1e-4)


def test_a_mask_may_be_boolean_or_absent(estimator):
    images, _ = scenes(6)
    mask = chart_mask(6)
    boolean, full = (estimator(images[0], item) for item in (mask.astype(bool), None))
    np.testing.assert_array_equal(boolean, estimator(images[0], mask))
    expected = estimator(images[0], jnp.ones((HEIGHT, WIDTH)))
    np.testing.assert_allclose(full, expected, rtol=1e-5)


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


@pytest.mark.parametrize("name", ROWS)
def test_every_row_is_fitted_and_applied_inside_jit(name):
    row, (images, illuminants) = ROWS[name], scenes(10, 8)

    def estimates(images, illuminants):
        train = labelled(row, images, illuminants)
        return color.estimate_fold(row, train, train.features, side_of(8))

    assert not row.incompatibility(side_of(8))
    shaped = jax.eval_shape(estimates, images, illuminants)
    assert (shaped.shape, shaped.dtype) == ((8, 3), jnp.float32)


@pytest.mark.parametrize(
    ("name", "case"),
    [
        *((name, "masked") for name in FEW_STEPS),
        *((name, "not finite") for name in ("C5, small form", "CCMNet, small form")),
    ],
)
def test_a_spoilt_image_spoils_no_training(name, case):
    row, (images, illuminants), masks = ROWS[name], scenes(13, 8), jnp.ones((8, HEIGHT, WIDTH))
    if case == "masked":
        masks = masks.at[1].set(0)
    else:
        images = images.at[1, 5, 5].set(jnp.nan)
    train = color.LabelledImages(
        row.describe(images, masks, side_of(8)), illuminants, jnp.zeros(8, int)
    )
    parameters = row.fit(train, side_of(8), **dict.fromkeys(FEW_STEPS[name], 2))
    for leaf in jax.tree.leaves(parameters):
        assert np.isfinite(leaf).all()


def test_an_estimator_is_a_function_of_an_image_and_its_mask():
    images, _ = scenes(12)
    for name, row in color.ESTIMATORS.items():
        np.testing.assert_allclose(row(images[0], None), compiled(name)(images[0], None), rtol=1e-4)
        assert not row.is_selectable


def test_rows_without_side_information():
    """FFCC's tuning of a camera and the network without captures have none; others say why."""
    rows = color.methods_for(color.SideInformation())
    assert {row.name for row in color.ILLUMINANT_METHODS.values() if row.name not in rows} == {
        "FFCC, its settings tuned by its authors on this camera's folds",
        "Capture-aware, without the capture",
    }
    reasons = {name: row.incompatibility(color.SideInformation()) for name, row in rows.items()}
    assert {name for name, reason in reasons.items() if reason} == {
        *("CCMNet, small form", "CCMNet at the authors' size", "FC4-style", "Capture-aware")
    }
