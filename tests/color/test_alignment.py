"""Homographies against a float64 NumPy DLT, warps against SciPy, block means against loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import map_coordinates

from everlight.color.alignment import apply_homography, area_downsample, fit_homography, warp_image
from tests.color.references import mapped

# A phone's second camera has scale 0.9, a shift of 20 pixels, small rotation and perspective.
PHONE = np.array([[0.9, -0.02, 20.0], [0.015, 0.91, -14.0], [2e-5, -1e-5, 1.0]])
CORNERS = np.array([[0.0, 0], [900, 0], [900, 600], [0, 600]])


def dlt_float64(source, target, weights):
    """Return the normalized DLT by an eigenvector of A'WA, in float64 with explicit loops."""

    def conditioner(points):
        mean = np.average(points, axis=0, weights=weights)
        spread = np.sqrt(np.average(np.sum((points - mean) ** 2, axis=1), weights=weights))
        scale = np.sqrt(2) / spread
        moved = np.array([[1, 0, -mean[0]], [0, 1, -mean[1]], [0, 0, 1]])
        return np.diag([scale, scale, 1]) @ moved

    to_source, to_target = conditioner(source), conditioner(target)
    normal = np.zeros((9, 9))
    for (x, y), (u, v), weight in zip(
        mapped(to_source, source), mapped(to_target, target), weights, strict=True
    ):
        for row in ([x, y, 1, 0, 0, 0, -u * x, -u * y, -u], [0, 0, 0, x, y, 1, -v * x, -v * y, -v]):
            normal += weight * np.outer(row, row)
    solution = np.linalg.eigh(normal)[1][:, 0].reshape(3, 3)
    homography = np.linalg.inv(to_target) @ solution @ to_source
    return homography / homography[2, 2]


def fit(source, target, weights=None):
    weights = None if weights is None else jnp.float32(weights)
    return fit_homography(jnp.float32(source), jnp.float32(target), weights)


def test_four_points_determine_the_homography():
    result = fit(CORNERS, mapped(PHONE, CORNERS))
    assert result.valid
    inner = np.array([[450.0, 300], [100, 500], [800, 50]])
    np.testing.assert_allclose(mapped(result.homography, inner), mapped(PHONE, inner), atol=2e-3)
    assert result.homography[2, 2] == 1


def test_apply_homography_is_the_projective_map():
    points = np.array([[3.0, 4.0], [250.0, 70.0]])
    result = apply_homography(jnp.asarray(PHONE, jnp.float32), jnp.asarray(points, jnp.float32))
    np.testing.assert_allclose(result, mapped(PHONE, points), rtol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
def test_noisy_points_agree_with_a_float64_fit(rng, weighted):
    source = rng.uniform(0, 900, (60, 2))
    target = mapped(PHONE, source) + rng.normal(0, 2, (60, 2))
    weights = rng.uniform(0.1, 3, 60) if weighted else np.ones(60)
    result = fit(source, target, weights if weighted else None)
    expected = dlt_float64(source, target, weights)
    assert result.valid
    actual = mapped(result.homography, CORNERS)
    np.testing.assert_allclose(actual, mapped(expected, CORNERS), atol=5e-3)


def test_a_weight_of_zero_leaves_a_pair_out(rng):
    source = rng.uniform(0, 900, (12, 2))
    target = mapped(PHONE, source)
    target[5] += 200
    weights = np.ones(12)
    expected = mapped(PHONE, CORNERS)
    assert np.abs(mapped(fit(source, target).homography, CORNERS) - expected).max() > 5
    weights[5] = 0
    result = mapped(fit(source, target, weights).homography, CORNERS)
    np.testing.assert_allclose(result, expected, atol=5e-3)


@settings(max_examples=25)
@given(scale=st.floats(0.05, 4), shift_x=st.floats(-500, 500), shift_y=st.floats(-500, 500))
def test_a_similarity_of_the_points_moves_the_fit_with_them(scale, shift_x, shift_y):
    noise = np.random.default_rng(1).normal(0, 2, (20, 2))
    source = np.random.default_rng(2).uniform(0, 900, (20, 2))
    target = mapped(PHONE, source) + noise
    similarity = np.array([[scale, 0, shift_x], [0, scale, shift_y], [0, 0, 1]])
    plain = np.asarray(fit(source, target).homography, float)
    moved = fit(mapped(similarity, source), mapped(similarity, target))
    assert moved.valid
    expected = mapped(similarity @ plain, CORNERS)
    actual = mapped(np.asarray(moved.homography, float) @ similarity, CORNERS)
    np.testing.assert_allclose(actual, expected, atol=2e-2 * max(scale, 1))


@pytest.mark.parametrize(
    "source",
    [
        [[0, 0], [100, 50], [200, 100], [300, 150], [400, 200]],
        [[0, 0], [900, 0], [900, 600], [900, 600], [0, 0]],
        [[7, 7]] * 5,
        [[0, 0], [300, 200], [600, 400], [900, 600], [0, 600]],
    ],
    ids=["on a line", "three distinct", "one point", "four of five on a line"],
)
def test_degenerate_points_are_flagged_and_give_the_identity(source):
    source = np.array(source, float)
    result = fit(source, mapped(PHONE, source))
    assert not result.valid
    np.testing.assert_array_equal(result.homography, np.eye(3))


LINE = np.array([[0, 0], [300, 200], [600, 400], [0, 600.0]])
SEEN = mapped(PHONE, CORNERS)
NOT_FINITE = np.where(np.eye(4, 2, -2) > 0, np.nan, SEEN)


@pytest.mark.parametrize(
    ("source", "target"),
    [(CORNERS, LINE), (LINE, CORNERS), (CORNERS, SEEN[[0, 1, 3, 2]]), (CORNERS, NOT_FINITE)],
    ids=["a line in the target", "a line in the source", "mixed up", "not finite"],
)
def test_points_without_a_homography_are_flagged(source, target):
    result = fit(source, target)
    assert not result.valid
    np.testing.assert_array_equal(result.homography, np.eye(3))


def test_three_pairs_are_refused():
    with pytest.raises(ValueError, match="3 point pairs"):
        fit(CORNERS[:3], CORNERS[:3])


def test_fit_maps_over_a_batch_inside_jit(rng):
    source = rng.uniform(0, 900, (3, 8, 2))
    homographies = [PHONE, np.eye(3), np.diag([2.0, 2, 1])]
    target = np.stack([mapped(h, points) for h, points in zip(homographies, source, strict=True)])
    source[1] = 5
    batch = jax.jit(jax.vmap(fit_homography))(jnp.float32(source), jnp.float32(target))
    assert batch.valid.tolist() == [True, False, True]
    for index in (0, 2):
        result = mapped(batch.homography[index], CORNERS)
        np.testing.assert_allclose(result, mapped(homographies[index], CORNERS), atol=0.01)


def test_warp_agrees_with_scipy(rng):
    image = rng.uniform(size=(50, 70, 3)).astype(np.float32)
    homography = np.array([[0.9, -0.05, -3.13], [0.04, 0.85, -2.17], [4e-4, 2e-4, 1]])
    warped = warp_image(jnp.asarray(image), jnp.asarray(homography, jnp.float32), (60, 80))
    y, x = np.mgrid[:60, :80]
    column, row = mapped(homography, np.column_stack([x.ravel(), y.ravel()])).T
    inside = ((column >= 0) & (column <= 69) & (row >= 0) & (row <= 49)).reshape(60, 80)
    np.testing.assert_array_equal(warped.mask, inside)
    assert 0.5 < inside.mean() < 0.95
    for channel in range(3):
        expected = map_coordinates(image[..., channel].astype(float), [row, column], order=1)
        expected = np.where(inside, expected.reshape(60, 80), 0)
        np.testing.assert_allclose(warped.image[..., channel], expected, atol=2e-5)


def test_points_beyond_the_horizon_are_outside():
    image = jnp.ones((100, 100, 1))
    # The horizon is x = 50; beyond it, the map's image points run back into the frame.
    homography = jnp.array([[1.0, 0, 0], [0, 1, 0], [-0.02, 0, 1]])
    mask = warp_image(image, homography, (100, 100)).mask
    assert mask[0, :34].all()
    assert not mask[:, 50:].any()
    shifted = jnp.array([[1.0, 0, -90], [0, -1, 0], [-0.02, 0, 1]])
    assert not warp_image(image, shifted, (100, 100)).mask[:, 50:].any()


def test_the_homographys_scale_and_sign_do_not_matter(rng):
    image = jnp.asarray(rng.uniform(size=(20, 20, 1)), jnp.float32)
    homography = jnp.asarray(PHONE, jnp.float32).at[:2, 2].set(2)
    expected = warp_image(image, homography, (20, 20))
    actual = warp_image(image, -2 * homography, (20, 20))
    np.testing.assert_array_equal(actual.mask, expected.mask)
    np.testing.assert_allclose(actual.image, expected.image, atol=1e-5)


def test_downsampling_averages_blocks_and_crops_the_rest(rng):
    image = rng.uniform(size=(14, 20, 3))
    result = area_downsample(jnp.asarray(image, jnp.float32))
    assert result.image.shape == (2, 3, 3)
    assert result.mask.all()
    for row in range(2):
        for column in range(3):
            block = image[6 * row : 6 * row + 6, 6 * column : 6 * column + 6]
            np.testing.assert_allclose(result.image[row, column], block.mean((0, 1)), rtol=1e-5)


def test_a_block_counts_where_all_of_its_pixels_do():
    mask = jnp.ones((9, 7), bool).at[4, 2].set(False).at[8, 6].set(False)
    result = area_downsample(jnp.ones((9, 7, 1)), 2, mask)
    expected = np.ones((4, 3), bool)
    expected[2, 1] = False  # the pixel at (8, 6) lies in the cropped rest
    np.testing.assert_array_equal(result.mask, expected)


def test_an_image_smaller_than_a_block_is_refused():
    with pytest.raises(ValueError, match="5×12"):
        area_downsample(jnp.ones((5, 12, 3)))


@pytest.mark.parametrize("kind", ["on a line", "in one place"])
def test_the_gradient_of_points_without_a_homography_is_0(kind):
    """The value is the identity there, which no point moves."""
    steps = jnp.arange(5.0) if kind == "on a line" else jnp.zeros(5)
    points = jnp.stack([steps, 2 * steps], axis=1)

    def total(source, target):
        return jnp.sum(fit_homography(source, target).homography)

    for gradient in jax.grad(total, (0, 1))(points, points + 1):
        np.testing.assert_array_equal(gradient, 0)


def test_the_gradient_of_a_fit_is_that_of_finite_differences():
    corners = np.asarray(CORNERS, np.float32)[:4] / 100
    target = mapped(np.array([[1.1, 0.1, 0.2], [0.0, 0.9, 0.1], [0.01, 0.02, 1]]), corners)

    def total(source):
        return jnp.sum(fit_homography(source, jnp.asarray(target, jnp.float32)).homography)

    result = np.asarray(jax.grad(total)(jnp.asarray(corners)))
    step = np.zeros_like(corners)
    step[1, 0] = 1e-2
    around = [float(total(jnp.asarray(corners + sign * step))) for sign in (1, -1)]
    np.testing.assert_allclose(result[1, 0], (around[0] - around[1]) / 2e-2, rtol=0.05)


def test_the_gradient_at_a_square_is_that_of_float64_differences():
    """A square makes singular values of the linear system equal."""
    square = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    gradient = jax.grad(lambda points: jnp.sum(fit_homography(points, jnp.float32(square))[0]))
    computed = gradient(jnp.float32(square))
    expected = np.zeros_like(square)
    for place in np.ndindex(square.shape):
        step = np.zeros_like(square)
        step[place] = 1e-5
        ends = [dlt_float64(square + sign * step, square, np.ones(4)).sum() for sign in (1, -1)]
        expected[place] = (ends[0] - ends[1]) / 2e-5
    np.testing.assert_allclose(computed, expected, atol=1e-4)
