"""Chromagenic estimation against NumPy's least squares and a search over all illuminants."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression as SklearnRegression

from everlight.color.learned import chromagenic
from everlight.color.learned.linear_regression import fit_linear_regression, linear_estimate
from tests.color.references import least_squares

ILLUMINANTS = 5
fit_chromagenic = jax.jit(chromagenic.fit_chromagenic, static_argnames="normalize")
chromagenic_estimate = jax.jit(chromagenic.chromagenic_estimate, static_argnames="normalize")


def pairs(rng, count=20, pixels=30):
    """Return pairs whose cameras relate by one transform per illuminant, with a little noise."""
    transforms = np.eye(3) + rng.normal(scale=0.2, size=(ILLUMINANTS, 3, 3))
    labels = np.arange(count) % ILLUMINANTS
    main = rng.uniform(0.05, 1, size=(count, pixels, 3))
    second = main @ transforms[labels] + rng.normal(scale=1e-3, size=main.shape)
    return main.astype(np.float32), second.astype(np.float32), labels, transforms


def fitted(rng):
    main, second, labels, _ = pairs(rng)
    illuminants = rng.uniform(0.2, 1, size=(ILLUMINANTS, 3)).astype(np.float32)
    return fit_chromagenic(*map(jnp.asarray, (main, second, labels, illuminants)))


def test_transforms_are_numpys_least_squares(rng):
    main, second, labels, _ = pairs(rng)
    model = fit_chromagenic(*map(jnp.asarray, (main, second, labels, np.ones((ILLUMINANTS, 3)))))
    for illuminant in range(ILLUMINANTS):
        chosen = labels == illuminant
        expected = least_squares(main[chosen].reshape(-1, 3), second[chosen].reshape(-1, 3))
        np.testing.assert_allclose(model.transforms[illuminant], expected, atol=1e-5)
    assert model.valid.all()


def test_weighted_transforms_are_numpys_least_squares_of_scaled_rows(rng):
    main, second, labels, _ = pairs(rng)
    weights = rng.uniform(0, 2, size=(*labels.shape, 30)).astype(np.float32)
    weights[:, :4] = 0
    second[:, :4] = 7
    candidates = np.ones((ILLUMINANTS, 3), np.float32)
    model = fit_chromagenic(*map(jnp.asarray, (main, second, labels, candidates, weights)))
    root = np.sqrt(np.float64(weights))[..., None]
    for illuminant in range(ILLUMINANTS):
        rows = [(views * root)[labels == illuminant].reshape(-1, 3) for views in (main, second)]
        np.testing.assert_allclose(model.transforms[illuminant], least_squares(*rows), atol=1e-5)


@pytest.mark.parametrize("masked", [False, True])
def test_unknown_exposures_are_divided_out(rng, masked):
    """The transforms are those of the images at mean one, whatever each image's exposure was."""
    main, second, labels, _ = pairs(rng)
    exposures = np.exp(rng.uniform(-4, 4, size=(2, len(labels), 1, 1))).astype(np.float32)
    seen = (main * exposures[0], second * exposures[1])
    weights = np.ones(main.shape[:2], np.float32)
    weights[:, :5] = 0 if masked else 1
    if masked:
        seen[0][:, :5], seen[1][:, :5] = 1e4, 3e4
    mask_rows = jnp.asarray(weights) if masked else None
    candidates = jnp.asarray(rng.uniform(0.2, 1, size=(ILLUMINANTS, 3)), jnp.float32)
    arguments = (*map(jnp.asarray, seen), jnp.asarray(labels), candidates, mask_rows)
    model = fit_chromagenic(*arguments, normalize="mean")
    unmasked = slice(5 * masked, None)
    at_one = [np.float64(view[:, unmasked]) for view in (main, second)]
    at_one = [view / view.mean(axis=(1, 2), keepdims=True) for view in at_one]
    for illuminant in range(ILLUMINANTS):
        rows = [view[labels == illuminant].reshape(-1, 3) for view in at_one]
        np.testing.assert_allclose(model.transforms[illuminant], least_squares(*rows), atol=1e-4)
    for row, (one, other) in enumerate(zip(*seen, strict=True)):
        mask = None if mask_rows is None else mask_rows[row]
        estimate = chromagenic_estimate(model, one, other, mask, normalize="mean")
        errors = [((at_one[0][row] @ t - at_one[1][row]) ** 2).sum() for t in model.transforms]
        np.testing.assert_array_equal(estimate, candidates[np.argmin(errors)])


def test_a_black_view_is_left_out_where_exposures_are_unknown(rng):
    main, second, labels, _ = pairs(rng)
    candidates = jnp.ones((ILLUMINANTS, 3))
    without = np.arange(len(labels)) > 0
    arrays = [jnp.asarray(array) for array in (main, second, labels)]
    expected = fit_chromagenic(*(array[without] for array in arrays), candidates, normalize="mean")
    black = arrays[1].at[0].set(0)
    model = fit_chromagenic(arrays[0], black, arrays[2], candidates, normalize="mean")
    np.testing.assert_allclose(model.transforms, expected.transforms, atol=1e-6)
    assert jnp.isnan(chromagenic_estimate(model, main[0], black[0], normalize="mean")).all()


def test_finds_each_pairs_illuminant(rng):
    model = fitted(rng)
    main, second, labels, _ = pairs(np.random.default_rng(0))
    estimates = jax.vmap(chromagenic_estimate, (None, 0, 0))(model, main, second)
    np.testing.assert_array_equal(estimates, model.illuminants[labels])


@settings(max_examples=25)
@given(seed=st.integers(0, 2**16), exposure=st.floats(0.01, 100))
def test_is_the_brute_force_choice_at_any_exposure(seed, exposure):
    rng = np.random.default_rng(seed)
    model = fitted(rng)
    main = rng.uniform(size=(12, 3)).astype(np.float32)
    second = rng.uniform(size=(12, 3)).astype(np.float32)
    errors = [((np.float64(main) @ np.float64(t) - second) ** 2).sum() for t in model.transforms]
    gain = np.float32(exposure)
    result = chromagenic_estimate(model, main * gain, second * gain)
    np.testing.assert_array_equal(result, model.illuminants[np.argmin(errors)])


@pytest.mark.parametrize("garbage", [np.nan, np.inf, 1e30])
def test_a_pixel_of_no_weight_has_no_influence(rng, garbage):
    model = fitted(rng)
    main, second, labels, _ = pairs(np.random.default_rng(0))
    main[0, 7], second[0, 3] = garbage, garbage
    weights = jnp.ones(30).at[jnp.array([3, 7])].set(0)
    result = chromagenic_estimate(model, main[0], second[0], weights)
    np.testing.assert_array_equal(result, model.illuminants[labels[0]])


def test_weights_are_of_squared_errors(rng):
    """Pixels of one illuminant outweigh those of another exactly where their weighted errors do."""
    model = fitted(rng)
    colors = jnp.asarray(rng.uniform(0.1, 1, size=(2, 10, 3)), jnp.float32)
    second = jnp.concatenate([colors[0] @ model.transforms[0], colors[1] @ model.transforms[1]])
    main = colors.reshape(-1, 3)
    apart = model.transforms[0] - model.transforms[1]
    gap = [float(((color @ apart) ** 2).sum()) for color in colors]
    two = model._replace(valid=jnp.arange(ILLUMINANTS) < 2)
    for factor, illuminant in [(0.9, 1), (1.1, 0)]:
        weights = jnp.repeat(jnp.asarray([factor * gap[1] / gap[0], 1.0]), 10)
        result = chromagenic_estimate(two, main, second, weights)
        np.testing.assert_array_equal(result, model.illuminants[illuminant])


def test_an_illuminant_without_pairs_is_never_chosen(rng):
    main, second, labels, _ = pairs(rng)
    illuminants = jnp.asarray(rng.uniform(size=(ILLUMINANTS + 1, 3)), jnp.float32)
    model = fit_chromagenic(*map(jnp.asarray, (main, second, labels)), illuminants)
    np.testing.assert_array_equal(model.valid, [True] * ILLUMINANTS + [False])
    # The transform kept in its place, the identity, would fit this pair without error.
    estimate = chromagenic_estimate(model, main[0], main[0])
    assert (estimate != illuminants[ILLUMINANTS]).all()


@pytest.mark.parametrize("case", ["black", "masked", "NaN", "no candidate"])
def test_no_estimate_is_nan(rng, case):
    model = fitted(rng)
    main, second, _, _ = pairs(rng)
    first, other, weights = main[0], second[0], jnp.ones(30)
    if case == "black":
        first, other = 0 * first, 0 * other
    elif case == "masked":
        weights = 0 * weights
    elif case == "NaN":
        other[4, 1] = np.nan
    else:
        model = model._replace(valid=jnp.zeros(ILLUMINANTS, bool))
    assert jnp.isnan(chromagenic_estimate(model, first, other, weights)).all()


def test_against_scikit_learn(rng):
    transforms = rng.normal(size=(80, 3, 3)).astype(np.float32)
    targets = rng.uniform(0.3, 2, size=(80, 2)).astype(np.float32)
    transforms = transforms.reshape(-1, 9)
    model = fit_linear_regression(jnp.asarray(transforms), jnp.asarray(targets))
    reference = SklearnRegression().fit(transforms.astype(float), targets)
    estimates = linear_estimate(model, jnp.asarray(transforms))
    np.testing.assert_allclose(estimates, reference.predict(transforms), atol=1e-5)
    np.testing.assert_allclose(model.slopes, reference.coef_.T, atol=1e-5)


def test_recovers_an_affine_map_of_nearly_dependent_entries(rng):
    """Rows add up to 1, as those of the released sum-normalized transforms do."""
    transforms = np.eye(3) + rng.normal(scale=0.05, size=(100, 3, 3))
    transforms /= transforms.sum(axis=2, keepdims=True)
    slopes, intercept = rng.normal(size=(9, 2)), np.array([0.5, 1.2])
    transforms = transforms.reshape(-1, 9)
    targets = transforms @ slopes + intercept
    model = fit_linear_regression(*map(jnp.float32, (transforms[:50], targets[:50])))
    estimates = linear_estimate(model, jnp.asarray(transforms[50:], jnp.float32))
    np.testing.assert_allclose(estimates, targets[50:], atol=1e-4)


def test_refuses_too_few_pairs():
    with pytest.raises(ValueError, match=r"18 pairs; 18 slopes .* at least 19"):
        fit_linear_regression(jnp.ones((18, 18)), jnp.ones((18, 2)))
