"""Transforms under a prior against the normal equations in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everlight.color.transform_prior import (
    TransformPrior,
    fit_probable_transform,
    learn_transform_prior,
)
from everlight.color.transforms import fit_color_transform, scale_free

fit = jax.jit(fit_probable_transform)
BASE = np.array([[0.85, 0.15, 0.05], [0.2, 0.8, 0.2], [0.03, 0.2, 0.9]])


def transform_of(illuminant):
    return np.diag(1 / illuminant) @ BASE @ np.diag(illuminant)


def scenes(rng, count, colors=24):
    """Return colours of both cameras under random illuminants, and their transforms."""
    illuminants = np.stack(
        [rng.uniform(0.5, 1.5, count), np.ones(count), rng.uniform(0.5, 1.5, count)]
    )
    transforms = np.stack([transform_of(illuminant) for illuminant in illuminants.T])
    main = rng.uniform(0.05, 1, (count, colors, 3)) * illuminants.T[:, None]
    return main, main @ transforms, transforms


def between_means(transform, main, second):
    """Return transforms between views divided by their means over pixels and channels."""
    ratio = main.mean((-2, -1)) / second.mean((-2, -1))
    return transform * ratio[..., None, None]


@pytest.fixture
def prior(rng):
    main, second, _ = scenes(rng, 400)
    return learn_transform_prior(*map(jnp.float32, (main, second)), 0.05)


def test_the_prior_is_the_moments_of_the_training_transforms(rng):
    main, second, transforms = scenes(rng, 300)
    main[5] = main[5, :1]  # one colour: it determines no transform
    second[5] = second[5, :1]
    learned = learn_transform_prior(*map(jnp.float32, (main, second)), 0.05)
    stored = np.arange(300) != 5
    ratio = main.mean((1, 2)) / second.mean((1, 2))
    entries = (transforms * ratio[:, None, None]).reshape(-1, 9)[stored]
    np.testing.assert_allclose(learned.mean, entries.mean(0), rtol=1e-4)
    root = np.float64(learned.root)
    covariance = np.linalg.inv(root.T @ root)
    np.testing.assert_allclose(covariance, np.cov(entries.T, bias=True), atol=2e-5)


def test_against_float64_normal_equations(rng, prior):
    main, second, _ = scenes(rng, 1)
    main, second = main[0] + rng.normal(0, 0.02, (24, 3)), second[0] + rng.normal(0, 0.02, (24, 3))
    weights = rng.uniform(0, 2, 24)
    share = weights / weights.sum()
    a, b = (v / (share @ v).mean() for v in (main, second))
    precision = np.float64(prior.root).T @ np.float64(prior.root)
    scatter = np.kron((a * share[:, None]).T @ a, np.eye(3)) / 0.05**2
    right = ((a * share[:, None]).T @ b).ravel() / 0.05**2 + precision @ np.float64(prior.mean)
    expected = np.linalg.solve(scatter + precision, right).reshape(3, 3)
    actual = fit(*map(jnp.float32, (main, second)), prior, jnp.asarray(weights))
    assert actual.valid
    np.testing.assert_allclose(actual.transform, expected, atol=2e-4)


def test_many_clean_colors_outvote_a_weak_prior(rng, prior):
    main, second, _ = (jnp.asarray(v[0], jnp.float32) for v in scenes(rng, 1))
    trusted = prior._replace(misfit=jnp.float32(1e-4))
    np.testing.assert_allclose(
        fit(main, second, trusted).transform,
        fit_color_transform(main, second, normalize="mean").transform,
        atol=1e-3,
    )


def test_errors_from_few_or_noisy_colors_are_below_those_of_least_squares(rng, prior):
    main, second, truth = scenes(rng, 200)
    truth = between_means(truth, main, second)
    actual = jax.jit(jax.vmap(lambda a, b: fit_probable_transform(a, b, prior)))
    plain = jax.jit(jax.vmap(lambda a, b: fit_color_transform(a, b, normalize="mean")))
    noisy = [jnp.float32(v + rng.normal(0, 0.05, v.shape)) for v in (main, second)]
    assert actual(*noisy).valid.all()
    distance = [np.abs(item(*noisy).transform - truth).mean() for item in (actual, plain)]
    assert distance[0] < 0.6 * distance[1]

    one_color = [jnp.float32(np.repeat(v[:, :1], 24, axis=1)) for v in (main, second)]
    result = actual(*one_color)
    assert result.valid.all()
    assert not plain(*one_color).valid.any()
    mean = np.float64(prior.mean).reshape(3, 3)
    assert np.abs(result.transform - truth).mean() < 0.9 * np.abs(mean - truth).mean()


def test_a_most_probable_transform_with_a_negative_row_sum_is_valid(rng):
    """The mean row sum is negative, for which `scale_free` has no result."""
    transform = np.array([[-1.9, -2.0, -0.4], [2.4, 2.6, 0.9], [-0.9, -0.7, -0.4]]) / 2
    main = np.array([0.45, 1, 0.5]) * rng.uniform(0.2, 0.8, (24, 1)) + rng.normal(0, 0.01, (24, 3))
    expected = between_means(transform, main, main @ transform)
    around = TransformPrior(*map(jnp.float32, (expected.ravel(), np.eye(9) * 30, 0.05)))
    result = fit(*map(jnp.float32, (main, main @ transform)), around)
    assert result.valid
    np.testing.assert_allclose(result.transform, expected, atol=1e-4)
    assert np.isnan(scale_free(result.transform)).all()


@settings(max_examples=20)
@given(exposures=st.tuples(*[st.floats(1e-3, 1e3)] * 2), seed=st.integers(0, 2**16))
def test_transforms_do_not_depend_on_the_exposures(exposures, seed):
    rng = np.random.default_rng(seed)
    main, second, transforms = scenes(rng, 1)
    around = TransformPrior(jnp.float32(transforms.ravel()), jnp.eye(9) * 3, jnp.float32(0.05))
    as_is = fit(jnp.float32(main[0]), jnp.float32(second[0]), around)
    scaled = [jnp.float32(v[0] * e) for v, e in zip((main, second), exposures, strict=True)]
    np.testing.assert_allclose(fit(*scaled, around).transform, as_is.transform, atol=2e-5)


def test_masked_pixels_have_no_part(rng, prior):
    main, second, _ = (jnp.asarray(v[0], jnp.float32) for v in scenes(rng, 1))
    weights = jnp.ones(24).at[3].set(0)
    stored = jnp.arange(24) != 3
    np.testing.assert_allclose(
        fit(main.at[3].set(jnp.nan), second.at[3].set(1e9), prior, weights).transform,
        fit(main[stored], second[stored], prior).transform,
        atol=1e-5,
    )


@pytest.mark.parametrize("case", ["black", "NaN", "masked"])
def test_degenerate_colors_have_no_valid_transform(rng, prior, case):
    main, second, _ = (jnp.asarray(v[0], jnp.float32) for v in scenes(rng, 1))
    weights = jnp.ones(24)
    if case == "black":
        main = jnp.zeros_like(main)
    elif case == "NaN":
        second = second.at[2, 1].set(jnp.nan)
    else:
        weights = jnp.zeros(24)
    result = fit(main, second, prior, weights)
    assert not result.valid
    np.testing.assert_array_equal(result.transform, np.eye(3))


@pytest.mark.parametrize("colors", [1, 2, 24])
def test_gradients_are_finite_for_flat_scenes_too(rng, prior, colors):
    main, second, _ = (jnp.asarray(v[0], jnp.float32) for v in scenes(rng, 1))
    flat = jnp.arange(24) % colors

    def first_entry(main):
        return fit_probable_transform(main[flat], second[flat], prior).transform[0, 0]

    gradient = jax.jit(jax.grad(first_entry))(main)
    assert np.isfinite(gradient).all()
    assert np.abs(gradient).max() > 0


def test_the_distance_is_the_root_of_the_least_sum(rng, prior):
    main, second, _ = scenes(rng, 1)
    main, second = main[0], second[0] + rng.normal(0, 0.05, (24, 3))
    a, b = (v / v.mean() for v in (main, second))
    root, mean = np.float64(prior.root), np.float64(prior.mean)
    rows = np.concatenate([np.kron(a, np.eye(3)) / (0.05 * np.sqrt(24)), root])
    right = np.concatenate([b.ravel() / (0.05 * np.sqrt(24)), root @ mean])
    least = np.linalg.lstsq(rows, right)[1][0]
    actual = fit(*map(jnp.float32, (main, second)), prior)
    np.testing.assert_allclose(actual.distance, np.sqrt(least), rtol=1e-4)


def test_another_pair_of_cameras_is_far(rng, prior):
    """The pairs are one camera twice, and both cameras in reverse order."""
    main, second, _ = (jnp.asarray(v, jnp.float32) for v in scenes(rng, 100))
    both = jax.jit(jax.vmap(lambda a, b: fit_probable_transform(a, b, prior).distance))
    forward, twice, swapped = both(main, second), both(main, main), both(second, main)
    assert twice.min() > 1.5 * forward.max()
    assert swapped.min() > 1.5 * forward.max()
