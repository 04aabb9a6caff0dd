"""Readings of an ambient spectral sensor beside the camera, for the radiometric set's scenes.

The eight bands are Gaussians with the centres and widths of the visible bands of the sensor
AS7341 (ams-OSRAM's data sheet), as phones have one. Koskinen et al. 2023 report 14 bands.
"""

import numpy as np
from jaxtyping import Float

from everlight.color.radiometry import ambient_readings
from everlight_data.color.rendered.radiometric import Scenes
from everlight_data.color.spectra.library import WAVELENGTHS, SpectralLibrary

BANDS = {415: 26, 445: 30, 480: 36, 515: 39, 555: 39, 590: 40, 630: 50, 680: 52}
"""Centre and full width at half maximum of each band in nm."""
READ_NOISE = 0.01
"""Standard deviation of a reading as a share of the scene's strongest band."""


def band_sensitivities() -> Float[np.ndarray, "8 w"]:
    """Return the sensitivities of the bands on `WAVELENGTHS`, each with a maximum of 1."""
    centers, widths = (np.array([*numbers])[:, None] for numbers in (BANDS, BANDS.values()))
    return 0.5 ** ((2 * (WAVELENGTHS - centers) / widths) ** 2)


def read_ambient(
    library: SpectralLibrary, scenes: Scenes, seed: int, read_noise: float = READ_NOISE
) -> Float[np.ndarray, "n 8"]:
    """Return the sensor's reading of each scene's mean reflected light, as shares of its sum.

    Args:
      library: spectral library of the scenes.
      scenes: scenes from `draw_scenes`.
      seed: random seed of the noise.
      read_noise: standard deviation as a share of the scene's strongest band.
    """
    spectra = (library.illuminants, library.reflectances, band_sensitivities())
    table = np.asarray(ambient_readings(*(curves.astype(np.float32) for curves in spectra)))
    means = np.stack(
        [
            table[illuminant, surfaces].mean(axis=0)
            for illuminant, surfaces in zip(scenes.illuminant, scenes.surfaces, strict=True)
        ]
    )
    means /= means.max(axis=1, keepdims=True)
    noise = np.random.default_rng((seed, 3)).normal(0, read_noise, means.shape)
    noisy = np.maximum(means + noise, 0)
    return (noisy / noisy.sum(axis=1, keepdims=True)).astype(np.float32)
