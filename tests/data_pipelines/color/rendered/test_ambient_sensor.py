"""The ambient spectral sensor's readings of rendered scenes."""

import numpy as np

from everlight_data.color.rendered.ambient_sensor import (
    BANDS,
    band_sensitivities,
    read_ambient,
)
from everlight_data.color.rendered.radiometric import Scenes
from everlight_data.color.spectra.library import WAVELENGTHS, SpectralLibrary


def test_bands_have_half_their_maximum_at_half_their_width():
    curves = band_sensitivities()
    for curve, (center, width) in zip(curves, BANDS.items(), strict=True):
        at = np.interp([center, center - width / 2, center + width / 2], WAVELENGTHS, curve)
        # The grid has 5 nm, and begins at 400.
        np.testing.assert_allclose(at, [1, 0.5, 0.5], atol=0.06)


def test_a_reading_is_the_mean_over_surfaces_as_shares(rng):
    illuminants = rng.uniform(0.1, 1, (3, len(WAVELENGTHS)))
    reflectances = rng.uniform(0, 1, (30, len(WAVELENGTHS)))
    library = SpectralLibrary(illuminants, ("a", "b", "c"), reflectances, None, (), "")
    illuminant = np.array([2, 0])
    surfaces = np.stack([rng.permutation(30)[:24] for _ in illuminant])
    none = slice(0, 0)
    scenes = Scenes(illuminant, surfaces, illuminant, none, none, slice(0, 2))
    result = read_ambient(library, scenes, 0, read_noise=0.0)
    for row, (i, part) in enumerate(zip(illuminant, surfaces, strict=True)):
        reflected = illuminants[i] * reflectances[part].mean(axis=0)
        expected = band_sensitivities() @ reflected
        np.testing.assert_allclose(result[row], expected / expected.sum(), rtol=1e-5)
    noisy = np.stack([read_ambient(library, scenes, seed)[0] for seed in range(300)])
    strongest = result[0].max()
    # Shares have the noise of one channel, and a little of the sum's.
    assert 0.7 < noisy[:, 0].std() / (0.01 * strongest) < 1.3
