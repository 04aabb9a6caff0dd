"""Reilluminated transforms between cameras: the closed form against pixels."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from everlight.color.reillumination import augment_transforms, chart_transforms, von_kries
from everlight.color.transforms import fit_color_transform
from tests.color.references import least_squares, relative_error

PAIRS, PIXELS = 4, 400
EYE = jnp.eye(3)[None, None]


def scene_pairs(seed: int):
    """Return pixels and charts of four scenes in two cameras with nearly linear responses.

    Both are mixtures of nine latent channels, so that every fit leaves a residual.
    """
    rng = np.random.default_rng(seed)
    sensors = np.abs(rng.normal(size=(2, 9, 3))) + 0.1
    illuminants = rng.uniform(0.3, 1.5, (PAIRS, 9))
    surfaces = rng.uniform(0, 1, (PAIRS, PIXELS, 9)) ** 3
    patches = rng.uniform(0, 1, (24, 9)) ** 3
    images = np.einsum("mpl,ml,clr->cmpr", surfaces, illuminants, sensors)
    charts = np.einsum("pl,ml,clr->cmpr", patches, illuminants, sensors)
    return jnp.asarray(images, jnp.float32), jnp.asarray(charts, jnp.float32)


def fit_each(first, second, normalize=None):
    return jax.vmap(lambda one, other: fit_color_transform(one, other, normalize=normalize))(
        first, second
    ).transform


def closed_form(images, charts, normalize=None):
    first, second = chart_transforms(charts[0]), chart_transforms(charts[1])
    return augment_transforms(fit_each(*images, normalize), first, second)


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_closed_form_is_the_pixel_route_in_float64(seed):
    images, charts = scene_pairs(seed)
    augmented = closed_form(images, charts)
    for i in range(PAIRS):
        for j in range(PAIRS):
            first, second = (
                np.float64(image[i]) @ least_squares(chart[i], chart[j])
                for image, chart in zip(images, charts, strict=True)
            )
            assert relative_error(augmented[i, j], least_squares(first, second)) < 2e-5


def reilluminated(images, charts):
    return [
        jnp.einsum("ipc,ijcd->ijpd", image, chart_transforms(chart), precision="highest")
        for image, chart in zip(images, charts, strict=True)
    ]


def test_the_closed_form_is_the_pixel_route_in_float32():
    images, charts = scene_pairs(7)
    augmented = closed_form(images, charts)
    first, second = reilluminated(images, charts)
    refitted = jax.vmap(fit_each)(first, second)
    assert relative_error(augmented, refitted) < 2e-5


def test_under_sum_normalization_the_closed_form_is_only_approximate():
    images, charts = scene_pairs(7)
    augmented = closed_form(images, charts, "sum")
    first, second = reilluminated(images, charts)
    refitted = np.asarray(jax.vmap(lambda one, other: fit_each(one, other, "sum"))(first, second))
    rows = np.arange(PAIRS)
    assert relative_error(augmented[rows, rows], refitted[rows, rows]) < 1e-4
    others = ~np.eye(PAIRS, dtype=bool)
    item = zip(augmented[others], refitted[others], strict=True)
    errors = [relative_error(*both) for both in item]
    assert min(errors) > 0.005


def test_chart_transforms_match_float64_least_squares():
    _, (charts, _) = scene_pairs(3)
    transforms = np.asarray(chart_transforms(charts))
    for i in range(PAIRS):
        for j in range(PAIRS):
            assert relative_error(transforms[i, j], least_squares(charts[i], charts[j])) < 1e-5


def test_a_patch_without_weight_in_either_chart_does_not_count():
    _, (charts, _) = scene_pairs(3)
    weights = jnp.ones((PAIRS, 24)).at[1, 5].set(0).at[2, 8].set(0)
    spoiled = charts.at[1, 5].set(100).at[2, 8].set(100)
    stored = np.delete(np.arange(24), [5, 8])
    transform = chart_transforms(spoiled, weights)[1, 2]
    assert relative_error(transform, least_squares(charts[1, stored], charts[2, stored])) < 1e-5


def test_a_chart_of_one_color_has_no_valid_transform():
    _, (charts, _) = scene_pairs(3)
    charts = charts.at[1].set(charts[1, :1] * jnp.linspace(1, 2, 24)[:, None])
    transforms = np.asarray(chart_transforms(charts))
    assert np.isnan(transforms[1]).all()
    assert np.isfinite(transforms[[0, 2, 3]]).all()


def test_von_kries_carries_every_illuminant_to_every_other(rng):
    illuminants = jnp.asarray(rng.uniform(0.2, 1, (5, 3)), jnp.float32)
    transforms = np.asarray(von_kries(illuminants))
    for i in range(5):
        for j in range(5):
            np.testing.assert_allclose(illuminants[i] @ transforms[i, j], illuminants[j], rtol=1e-6)
            assert np.count_nonzero(transforms[i, j]) == 3


def test_von_kries_worlds_augment_exactly(rng):
    """Under diagonal illuminants M the true transform of pair i as j is that of pair j itself."""
    illuminants = jnp.asarray(rng.uniform(0.2, 1, (2, 5, 3)), jnp.float32)
    sensor = jnp.asarray(rng.uniform(0.1, 1, (3, 3)) + np.eye(3), jnp.float32)
    transforms = sensor * illuminants[1][:, None, :] / illuminants[0][:, :, None]
    augmented = augment_transforms(transforms, von_kries(illuminants[0]), von_kries(illuminants[1]))
    expected = np.broadcast_to(transforms[None], (5, 5, 3, 3))
    np.testing.assert_allclose(augmented, expected, rtol=2e-5)


def test_a_singular_re_illumination_is_not_finite():
    illuminants = jnp.asarray([[0.5, 0, 0.7], [0.4, 0.9, 0.3]])
    factors = von_kries(illuminants)
    augmented = np.asarray(augment_transforms(jnp.stack([jnp.eye(3)] * 2), factors, factors))
    assert not np.isfinite(augmented[0, 1]).all()
    np.testing.assert_allclose(augmented[1, 1], np.eye(3), atol=1e-6)


def test_a_re_illumination_to_fewer_than_three_colors_is_nan():
    """Its inverse is rounding of its entries, though no pivot is 0."""
    singular = jnp.asarray([[0.1, 0.2, 0.3], [0.3, 0.6, 0.9], [0.5, 0.1, 0.7]])
    assert np.isnan(augment_transforms(jnp.eye(3)[None], singular[None, None], EYE)).all()


def test_a_dark_channel_is_not_singular():
    relit = augment_transforms(jnp.eye(3)[None], EYE * jnp.array([1e-9, 1, 1]), EYE)
    np.testing.assert_allclose(relit[0, 0], np.diag([1e9, 1, 1]), rtol=1e-6)
