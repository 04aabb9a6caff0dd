"""Colour transforms by least squares against float64 and colour-science."""

import warnings

import colour
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import TypeCheckError

from everlight.color.transforms import (
    apply_color_transform,
    fit_color_transform,
    mean_normalized,
    normalize_sum,
    reilluminate_transform,
    scale_free,
)
from tests.color.references import least_squares, relative_error

PIXELS = 1536  # the paper's thumbnail, 32x48
CAMERA_CHANGE = np.array([[0.8, 0.1, 0.05], [0.2, 0.7, 0.1], [0.02, 0.2, 0.9]])
fit_compiled = jax.jit(fit_color_transform, static_argnames="normalize")
seeds = st.integers(0, 2**32 - 1)


def views(rng, pixels=PIXELS, noise=0.01):
    """Return two cameras' colours whose best transform leaves a residual."""
    source = rng.uniform(0, 1, (pixels, 3))
    target = source @ CAMERA_CHANGE + rng.normal(0, noise, (pixels, 3))
    return jnp.asarray(source, jnp.float32), jnp.asarray(target, jnp.float32)


def colors_of_condition(rng, pixels, condition):
    left = np.linalg.qr(rng.normal(size=(pixels, 3)))[0]
    right = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    scale = 0.3 * np.sqrt(pixels)
    return np.float32(scale * (left * np.geomspace(1, 1 / condition, 3)) @ right.T)


@settings(max_examples=20)
@given(seed=seeds, pixels=st.sampled_from([3, 4, 24, 300]))
def test_fit_equals_color_science(seed, pixels):
    source, target = views(np.random.default_rng(seed), pixels)
    fit = fit_compiled(source, target)
    # colour-science multiplies columns, M @ colour; colours are rows here.
    expected = colour.characterisation.matrix_colour_correction_Cheung2004(
        np.float64(source), np.float64(target), terms=3
    ).T
    bound = 3e-7 * np.linalg.cond(np.float64(source))
    assert fit.valid
    assert fit.transform.dtype == jnp.float32
    assert relative_error(fit.transform, expected) < bound


# Normal equations in float32 are off by 1e-3 at 3e2 and know nothing at 3e4.
@pytest.mark.parametrize(
    ("condition", "median", "worst"), [(3, 9e-7, 2e-6), (3e2, 5e-6, 2e-5), (3e4, 1.6e-3, 2e-2)]
)
def test_error_against_float64_by_condition_number(rng, condition, median, worst):
    sources = np.stack([colors_of_condition(rng, PIXELS, condition) for _ in range(40)])
    noise = rng.normal(0, 0.01, sources.shape)
    targets = np.float32(sources @ CAMERA_CHANGE + noise)
    fits = jax.vmap(fit_color_transform)(sources, targets)
    errors = [
        relative_error(transform, least_squares(source, target))
        for transform, source, target in zip(fits.transform, sources, targets, strict=True)
    ]
    assert np.all(fits.valid)
    assert np.median(errors) < median
    assert np.max(errors) < worst


def test_a_million_pixels_lose_no_digits(rng):
    source, target = views(rng, 1_000_000)
    transform = fit_compiled(source, target).transform
    assert relative_error(transform, least_squares(source, target)) < 1e-6


@settings(max_examples=20)
@given(seed=seeds)
def test_weights_are_those_of_weighted_least_squares(seed):
    rng = np.random.default_rng(seed)
    source, target = views(rng, 60, noise=0.1)
    weights = jnp.asarray(rng.uniform(0.01, 4, 60), jnp.float32)
    transform = fit_compiled(source, target, weights).transform
    assert relative_error(transform, least_squares(source, target, weights)) < 5e-6
    assert relative_error(transform, least_squares(source, target)) > 1e-4


@pytest.mark.parametrize("normalize", [None, "sum"])
@settings(max_examples=15)
@given(seed=seeds, garbage=st.floats(-1e18, 1e18))
def test_masked_pixels_change_no_bit(normalize, seed, garbage):
    rng = np.random.default_rng(seed)
    source, target = views(rng, 40)
    mask = jnp.asarray(rng.permutation(40) < 30, jnp.float32)
    hidden = (mask == 0)[:, None]
    spoiled = jnp.where(hidden, garbage, source), jnp.where(hidden, -garbage, target)
    fit = fit_compiled(source, target, mask, normalize)
    same = fit_compiled(*spoiled, mask, normalize)
    np.testing.assert_array_equal(same.transform, fit.transform)
    assert same.valid


@settings(max_examples=30)
@given(seed=seeds)
def test_sum_normalization_divides_each_pixel_by_its_sum(seed):
    rng = np.random.default_rng(seed)
    source, target = views(rng, 50)
    target = jnp.abs(target)
    transform = fit_compiled(source, target, normalize="sum").transform
    ratios = [np.float64(v) / np.float64(v).sum(1, keepdims=True) for v in (source, target)]
    assert relative_error(transform, least_squares(*ratios)) < 1e-5
    # 1 = C1 1 and 1 = C2 1, so T 1 = 1 is the only solution.
    np.testing.assert_allclose(transform.sum(1), 1, atol=1e-5)


def test_sums_are_floored_at_a_millionth():
    pixels = jnp.array([[0.0, 0, 0], [1e-7, 2e-7, 1e-7], [2, 1, 1]])
    expected = [[0, 0, 0], [0.1, 0.2, 0.1], [0.5, 0.25, 0.25]]
    np.testing.assert_allclose(normalize_sum(pixels), expected, rtol=1e-6)


def invalid(fit):
    np.testing.assert_array_equal(fit.transform, np.eye(3))
    return not np.any(fit.valid)


@settings(max_examples=200)
@given(seed=seeds, pixels=st.sampled_from([3, 24, PIXELS]), spread=st.sampled_from([1e-3, 0.1, 1]))
def test_scenes_of_two_colors_are_invalid(seed, pixels, spread):
    rng = np.random.default_rng(seed)
    first = rng.uniform(0.1, 1, 3)
    second = first + spread * rng.uniform(0, 1, 3)
    source = np.float32(rng.uniform(0, 1, (pixels, 2)) @ [first, second])
    assert invalid(fit_compiled(source, source))


@settings(max_examples=30)
@given(seed=seeds, condition=st.floats(1, 1e5))
def test_three_colors_however_close_are_valid(seed, condition):
    source = colors_of_condition(np.random.default_rng(seed), 200, condition)
    assert fit_compiled(source, source).valid


@pytest.mark.parametrize(
    "source",
    [
        np.zeros((10, 3)),
        np.ones((10, 3)),
        np.outer(np.linspace(0.1, 1, 10), [0.2, 0.5, 0.3]),
        np.random.default_rng(0).uniform(0, 1, (10, 3)) * [1, 0, 1],
    ],
    ids=["black", "white", "one hue", "no green"],
)
def test_colors_that_span_too_little_are_invalid(source, rng):
    target = jnp.asarray(rng.uniform(0, 1, (10, 3)), jnp.float32)
    assert invalid(fit_compiled(jnp.asarray(source, jnp.float32), target))


def test_two_colors_in_float64_arrays_are_invalid(rng):
    """The bound was that of float64, and the products those of float32."""
    colors = rng.uniform(0.1, 1, (2, 3))
    source = colors[rng.integers(0, 2, 500)] * rng.uniform(0.2, 1, (500, 1))
    with warnings.catch_warnings(action="error"):
        fit = fit_color_transform(source, rng.uniform(0, 1, (500, 3)))
    assert invalid(fit)


@pytest.mark.parametrize("normalize", [None, "mean", "scale"])
def test_a_dark_gray_scene_has_no_transform_and_a_gradient_of_0(rng, normalize):
    """Its second pivot is rounding alone, and the square of its square is below float32."""
    noise = 1 + 1e-7 * rng.normal(size=(256, 3))
    source = jnp.float32(1e-6 * rng.uniform(0.1, 1, (256, 1)) * noise)
    target = jnp.float32(rng.uniform(0.1, 1, (256, 3)))

    def total(source):
        fit = fit_color_transform(source, target, normalize=normalize)
        return jnp.sum(jnp.where(fit.valid, fit.transform, 0))

    np.testing.assert_array_equal(jax.jit(jax.grad(total))(source), 0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("view", [0, 1])
def test_input_that_is_not_finite_is_invalid(rng, value, view):
    pair = list(views(rng, 30))
    pair[view] = pair[view].at[7, 1].set(value)
    assert invalid(fit_compiled(*pair))


def test_weights_that_leave_two_pixels_or_are_negative_are_invalid(rng):
    pair = views(rng, 30)
    assert invalid(fit_compiled(*pair, jnp.zeros(30).at[:2].set(1)))
    assert invalid(fit_compiled(*pair, jnp.ones(30).at[3].set(-1)))


@pytest.mark.parametrize("exposure", [2.0**-30, 2.0**30])
def test_exposure_of_either_view_scales_the_transform(rng, exposure):
    source, target = views(rng, 30)
    fit = fit_compiled(source, target)
    dim = fit_compiled(source * exposure, target)
    assert dim.valid
    np.testing.assert_allclose(dim.transform * exposure, fit.transform, rtol=1e-5)


def test_bad_arguments_are_named(rng):
    pair = views(rng, 30)
    with pytest.raises(ValueError, match=r"source has 2 pixels; .* at least 3"):
        fit_color_transform(pair[0][:2], pair[1][:2])
    # The type checker of the tests finds it first; without it, the function does.
    with pytest.raises((ValueError, TypeCheckError), match=r"normalize"):
        fit_compiled(*pair, normalize="max")


def test_a_scene_of_one_color_leaves_the_others_of_its_batch_alone(rng):
    pairs = [views(rng, 64) for _ in range(5)]
    sources, targets = (jnp.stack(side) for side in zip(*pairs, strict=True))
    sources = sources.at[2].set(sources[2, 0])  # one scene of one colour, in a batch of good ones
    batched = jax.vmap(fit_color_transform)(sources, targets)
    for index in range(5):
        single = fit_compiled(sources[index], targets[index])
        assert batched.valid[index] == single.valid == (index != 2)
        np.testing.assert_allclose(batched.transform[index], single.transform, rtol=2e-6, atol=1e-6)


@settings(max_examples=20)
@given(seed=seeds)
def test_apply_is_the_matrix_product_of_rows(seed):
    rng = np.random.default_rng(seed)
    image, transform = np.float32(rng.uniform(0, 1, (4, 5, 3))), np.float32(rng.normal(size=(3, 3)))
    applied = apply_color_transform(jnp.asarray(image), jnp.asarray(transform))
    expected = np.einsum("hwi,io->hwo", np.float64(image), np.float64(transform))
    np.testing.assert_allclose(applied, expected, atol=1e-6)


@settings(max_examples=20)
@given(seed=seeds)
def test_reillumination_in_closed_form_is_a_new_fit(seed):
    rng = np.random.default_rng(seed)
    source, target = views(rng, 100, noise=0.05)
    first, second = (np.eye(3) + rng.uniform(-0.2, 0.2, (2, 3, 3))).astype(np.float32)
    transform = fit_compiled(source, target).transform
    closed = reilluminate_transform(transform, jnp.asarray(first), jnp.asarray(second))
    refit = least_squares(np.float64(source) @ first, np.float64(target) @ second)
    assert relative_error(closed, refit) < 1e-5


@settings(max_examples=20)
@given(seed=seeds, ratio=st.floats(0.01, 100))
def test_without_scale_the_exposures_have_no_part(seed, ratio):
    source, target = views(np.random.default_rng(seed), 24)
    fit = fit_compiled(source, target * np.float32(ratio), normalize="scale")
    expected = least_squares(source, target)
    expected /= expected.sum() / 3
    assert fit.valid
    np.testing.assert_allclose(fit.transform, expected, atol=2e-5)


MAGENTA_BELOW_ZERO = np.array([[-1.9, -2.0, -0.4], [2.4, 2.6, 0.9], [-0.9, -0.7, -0.4]])
"""A transform with the mean row sum -0.13, as of scenes of few hues; greens stay positive."""


def greens(rng, count):
    """Return colours of a scene whose second view through `MAGENTA_BELOW_ZERO` is positive."""
    return np.array([0.45, 1.0, 0.5]) * rng.uniform(0.2, 0.8, (count, 1)) + rng.uniform(
        -0.01, 0.01, (count, 3)
    )


@settings(max_examples=20)
@given(seed=seeds, ratio=st.floats(0.01, 100))
def test_a_valid_pair_with_a_negative_row_sum_has_a_normalized_transform(seed, ratio):
    """The expected transform is float64 least squares of views divided by their means."""
    source = greens(np.random.default_rng(seed), 64)
    target = source @ MAGENTA_BELOW_ZERO
    assert target.min() > 0
    assert MAGENTA_BELOW_ZERO.sum() < 0
    expected = least_squares(source / source.mean(), target / target.mean())
    views = np.float32(source), np.float32(target * ratio)
    fit = fit_compiled(*views, normalize="mean")
    assert fit.valid
    assert relative_error(fit.transform, expected) < 2e-2
    assert not fit_compiled(*views, normalize="scale").valid


@settings(max_examples=20)
@given(seed=seeds)
def test_masked_pixels_have_no_part_in_the_mean(seed):
    rng = np.random.default_rng(seed)
    source, target = views(rng, 30, noise=0.05)
    weights = np.float32(rng.uniform(0, 1, 30) * (np.arange(30) % 3 > 0))
    share = weights[:, None] / weights.sum()
    means = [np.sum(np.float64(view) * share) / 3 for view in (source, target)]
    root = np.sqrt(np.float64(weights))[:, None]
    expected = least_squares(source * root / means[0], target * root / means[1])
    fit = fit_compiled(source, target, jnp.asarray(weights), normalize="mean")
    assert fit.valid
    np.testing.assert_allclose(fit.transform, expected, atol=5e-5)


@settings(max_examples=20)
@given(seed=seeds)
def test_the_mean_of_a_re_illuminated_pair_is_known_without_its_pixels(seed):
    """A pair with a negative row sum, under other illuminants, against a fit of its new pixels."""
    rng = np.random.default_rng(seed)
    source = greens(rng, 64)
    target = source @ MAGENTA_BELOW_ZERO
    first, second = (np.diag(rng.uniform(0.7, 1.4, 3)) for _ in range(2))
    relit = np.linalg.solve(first, MAGENTA_BELOW_ZERO) @ second
    mean_colors = (source @ first).mean(axis=0), (target @ second).mean(axis=0)
    scaled = mean_normalized(*map(jnp.float32, (relit, *mean_colors)))
    new = source @ first, target @ second
    expected = least_squares(*(view / view.mean() for view in new))
    np.testing.assert_allclose(scaled, expected, rtol=1e-4)


def test_black_images_have_no_mean_to_divide_by(rng):
    source, target = views(rng, 24)
    fit = fit_compiled(source, target * 0, normalize="mean")
    assert not fit.valid
    np.testing.assert_array_equal(fit.transform, np.eye(3))
    assert np.isnan(mean_normalized(jnp.eye(3), jnp.ones(3), jnp.array([0.5, -0.3, -0.2]))).all()


def test_noise_around_black_is_no_color(rng):
    """T is exact for 500 colours, also with a block whose noise adds up to less than 0."""
    source = rng.uniform(0.05, 0.9, (500, 3))
    expected = fit_color_transform(*map(jnp.float32, (source, source @ CAMERA_CHANGE)), None, "sum")
    black = np.array([[0.0005, -0.0003, -0.0005]])
    noisy = (np.append(item, black, axis=0) for item in (source, source @ CAMERA_CHANGE))
    result = fit_color_transform(*map(jnp.float32, noisy), None, "sum")
    np.testing.assert_allclose(result.transform, expected.transform, atol=0.02)


def test_the_scale_is_the_mean_row_sum(rng):
    transforms = rng.uniform(0, 1, (4, 2, 3, 3))
    scaled = scale_free(jnp.asarray(transforms, jnp.float32))
    np.testing.assert_allclose(scaled.sum((-2, -1)), 3, rtol=1e-6)
    factors = (3 / transforms.sum((-2, -1)))[..., None, None]
    np.testing.assert_allclose(scaled, transforms * factors, rtol=1e-6)


def test_a_transform_without_a_positive_scale_is_not_valid(rng):
    source, _ = views(rng, 24)
    fit = fit_compiled(source, -source, normalize="scale")
    assert not fit.valid
    np.testing.assert_array_equal(fit.transform, np.eye(3))
    assert np.isnan(scale_free(-jnp.eye(3))).all()
