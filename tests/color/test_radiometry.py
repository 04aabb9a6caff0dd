"""Rendering of colours from spectra against integrals, hand computation and colour-science."""

import colour
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everlight.color import radiometry

WAVELENGTHS = np.arange(400, 721, 5)


def spectra(seed, illuminants=3, surfaces=5):
    rng = np.random.default_rng(seed)
    shapes = (illuminants, 65), (surfaces, 65), (3, 65)
    return tuple(np.float32(rng.uniform(0, 1, shape)) for shape in shapes)


def integrate(illuminant, surface, sensitivity):
    """Return the sum over wavelengths in float64."""
    return (np.float64(illuminant) * np.float64(surface) * np.float64(sensitivity)).sum(-1)


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1))
def test_table_is_the_integral_of_every_illuminant_on_every_surface(seed):
    illuminants, surfaces, sensitivity = spectra(seed)
    table = radiometry.response_table(illuminants, surfaces, sensitivity)
    for i, illuminant in enumerate(illuminants):
        white = integrate(illuminant, 1, sensitivity)
        np.testing.assert_allclose(table.illuminants[i], white, rtol=1e-6)
        for r, surface in enumerate(surfaces):
            expected = integrate(illuminant, surface, sensitivity)
            np.testing.assert_allclose(table.surfaces[i, r], expected, rtol=1e-6)


def test_a_spectral_line_hand_computed():
    illuminant = jnp.zeros(65).at[10].set(2.0).at[20].set(1.0)
    surface = jnp.zeros((1, 65)).at[0, 10].set(0.5).at[0, 20].set(0.25)
    sensitivity = jnp.zeros((3, 65)).at[:, 10].set(jnp.array([1.0, 2, 3])).at[0, 20].set(4.0)
    responses = radiometry.camera_responses(illuminant, surface, sensitivity)
    np.testing.assert_array_equal(responses, [[2.0, 2.0, 3.0]])
    np.testing.assert_array_equal(
        radiometry.illuminant_response(illuminant, sensitivity), [6, 4, 6]
    )


@pytest.mark.parametrize("name", ["A", "D65", "FL2"])
def test_chromaticities_of_daylight_and_lamps_equal_color_science(name):
    shape = colour.SpectralShape(400, 720, 5)
    camera = colour.MSDS_CAMERA_SENSITIVITIES["Nikon 5100 (NPL)"].copy().align(shape)
    illuminant = colour.SDS_ILLUMINANTS[name].copy().align(shape)
    white = colour.sd_ones(shape)
    expected = colour.sd_to_XYZ(white, camera, illuminant, method="Integration")
    actual = radiometry.illuminant_response(
        jnp.float32(illuminant.values), jnp.float32(camera.values.T)
    )
    np.testing.assert_allclose(actual[::2] / actual[1], expected[::2] / expected[1], rtol=1e-5)


def test_a_scene_gathers_its_illuminant_and_surfaces():
    illuminants, surfaces, sensitivity = spectra(2)
    table = radiometry.response_table(illuminants, surfaces, sensitivity)
    scenes = jnp.array([2, 0]), jnp.array([[4, 1], [3, 3]])
    colors = jax.vmap(radiometry.scene_colors, (None, 0, 0))(table, *scenes)
    expected = [
        [integrate(illuminants[illuminant], surfaces[item], sensitivity) for item in shown]
        for illuminant, shown in ((2, (4, 1)), (0, (3, 3)))
    ]
    np.testing.assert_allclose(colors, expected, rtol=1e-6)


def test_thumbnail_is_a_grid_of_patches_row_by_row():
    colors = jnp.arange(72.0).reshape(24, 3)
    y, x = np.mgrid[:32, :48] // 8
    np.testing.assert_array_equal(radiometry.patch_thumbnail(colors), colors[6 * y + x])


def shoot(colors, sensor, count=200):
    """Return thumbnails of one scene, `[count, 32, 48, 3]`."""
    keys = jax.random.split(jax.random.key(0), count)
    return jax.jit(jax.vmap(lambda key: radiometry.take_photograph(key, colors, sensor)))(keys)


COLORS = jnp.asarray(np.random.default_rng(3).uniform(0.05, 0.9, (24, 3)), jnp.float32)


def test_noise_has_the_variance_of_its_photons_and_of_reading():
    sensor = radiometry.Sensor(read_noise=0.02, full_well=2_000.0, bits=16, stops=0.0)
    # The exposure is to the brightest colour; dimmer ones are not clipped.
    exact = np.float64(radiometry.patch_thumbnail(COLORS / COLORS.max()))
    photographs = np.float64(shoot(COLORS, sensor))
    unclipped = exact < 0.8
    residual = (photographs - exact)[:, unclipped]
    variance = 0.02**2 + exact[unclipped] / 2_000
    assert np.abs(residual.mean(0) / np.sqrt(variance / 200)).mean() == pytest.approx(0.8, abs=0.03)
    for low, high in ((0, 0.1), (0.3, 0.5), (0.6, 0.8)):
        some = (exact[unclipped] > low) & (exact[unclipped] < high)
        assert (residual[:, some] ** 2).mean() == pytest.approx(variance[some].mean(), rel=0.05)


def test_values_are_whole_levels_up_to_white():
    thumbnail = np.float64(shoot(COLORS, radiometry.Sensor(read_noise=0.05, bits=6), 20))
    np.testing.assert_allclose(thumbnail * 63, np.round(thumbnail * 63), atol=1e-5)
    assert thumbnail.max() == 1


def test_noise_is_not_clipped_at_black():
    """The mean of a black patch is black: clipped at 0 it would be 0.4 of the noise."""
    dark = COLORS.at[5].set(0)
    means = jax.vmap(radiometry.patch_means)(shoot(dark, radiometry.Sensor(read_noise=0.05)))
    assert np.abs(means[:, 5].mean()) < 4 * 0.05 / np.sqrt(200 * 64 * 3)


def test_black_colors_give_read_noise():
    sensor = radiometry.Sensor(read_noise=0.05, bits=16)
    black = jnp.zeros((24, 3))
    frames = radiometry.take_exposures(jax.random.key(0), black, sensor)
    for frame in (*frames, radiometry.take_photograph(jax.random.key(0), black, sensor)):
        assert np.std(frame) == pytest.approx(0.05, rel=0.05)
        assert np.abs(np.mean(frame)) < 4 * 0.05 / np.sqrt(frame.size)


def test_exposures_are_even_in_stops():
    exact = radiometry.Sensor(read_noise=0.0, full_well=1e12, bits=16, stops=2.0)
    brightest = np.sort(np.log2(shoot(COLORS, exact, 400).max((1, 2, 3))))
    assert -2 <= brightest[0] <= brightest[-1] <= 0
    even = np.linspace(-2, 0, 400)
    assert np.abs(brightest - even).max() < 2 * 1.63 / np.sqrt(400)  # Kolmogorov, 1%


def test_patch_means_undo_the_thumbnail():
    np.testing.assert_allclose(
        radiometry.patch_means(radiometry.patch_thumbnail(COLORS)), COLORS, rtol=1e-6
    )


@pytest.mark.parametrize("shape", [(33, 48, 3), (32, 47, 3), (3, 48, 3)])
def test_a_thumbnail_without_equal_patches_is_refused(shape):
    with pytest.raises(ValueError, match=f"a thumbnail of {shape[0]}×{shape[1]} pixels"):
        radiometry.patch_means(jnp.ones(shape))


@pytest.mark.parametrize("kelvin", [1500, 2856, 6500, 25000])
def test_black_bodies_are_those_of_other_code(kelvin):
    wavelengths = np.arange(380, 781, 20)

    def radiance(nanometers):  # That package's own constant is the rounded one of CIE 15.
        return colour.colorimetry.planck_law(nanometers * 1e-9, kelvin, c2=1.438776877e-2)

    actual = radiometry.blackbody_power(jnp.float32(kelvin), jnp.asarray(wavelengths, jnp.float32))
    np.testing.assert_allclose(actual, radiance(wavelengths) / radiance(560), rtol=2e-5)
