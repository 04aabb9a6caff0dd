"""Illuminants through a camera's calibration matrices, and the camera's fingerprint made of them.

A DNG states the matrix from XYZ to camera colours under two illuminants. Between them it is
interpolated in inverse temperature (DNG specification 1.4, chapter 6). The colours of Planckian and
daylight illuminants then follow without a photograph. Their histogram is the input by which CCMNet
(Kim, Afifi, Brown 2025, "CCMNet: Leveraging Calibrated Color Correction Matrices for Cross-Camera
Color Constancy", arXiv 2504.07959) knows a camera; imaginary cameras are interpolated matrices.

The network that reads the fingerprint is `learned.calibrated_camera`. Differences from CCMNet's
code (DY112/CCMNet at 298275b, `src/ccmnet/ccmnet.py` and `src/diff_hist.py`):

- Daylight is used in addition to the Planckian locus.
- Temperatures end at 7,500 K, in the official code at 7,460 K: 63 in steps of 80 K from 2,500 K.
- The code gives the second matrix, of daylight, all weight at 2,856 K, and the first one, of
  standard illuminant A, at 6,504 K. In everlight it is the other way round, as in the DNG
  specification and in the code's own preprocessing.
- The code adds 1e-8 to every bin.
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from everlight.checks import Between, UnitInterval, checked
from everlight.color.chroma_histogram import ChromaWindow, weighted_chroma_histogram
from everlight.precision import matrix_product

PLANCKIAN = (2_500.0, 7_500.0)
"""Range of the Planckian illuminants of a fingerprint in kelvin."""
DAYLIGHT = (4_000.0, 7_500.0)
"""Range of its daylight illuminants; below 4,000 K the CIE defines none."""
COUNT = 63
"""Number of illuminants of each kind."""
FINGERPRINT_WINDOW = ChromaWindow(64, -0.5, 1.5)
"""Range and bins of CCMNet's fingerprint."""


class CameraCalibration(NamedTuple):
    """Matrices from XYZ to camera colours under two illuminants, or under one.

    Attributes:
      matrices: matrices, one or two, one row per camera channel; XYZ are columns. A single one
        serves all temperatures.
      temperatures: correlated colour temperatures of the illuminants in kelvin, ascending; that of
        a single one is not read and may be NaN.
    """

    matrices: Float[Array, "k 3 3"]
    temperatures: Float[Array, "k"]


@checked
def planckian_chromaticity(
    temperature: Annotated[Float[Array, ""], Between(1_667, 25_000)],
) -> Float[Array, "2"]:
    """Return CIE x and y of a black body, by the cubic splines of Kang et al. 2002.

    Kang et al. 2002, "Design of advanced color temperature control system for HDTV applications"
    (Journal of the Korean Physical Society 41).

    Args:
      temperature: kelvin, 1,667 to 25,000, the range of the splines. Traced values beyond it are
        not checked, and the splines are then extrapolated, without meaning.
    """
    inverse = 1e3 / temperature
    low = jnp.array([-0.2661239, -0.2343589, 0.8776956, 0.179910])
    high = jnp.array([-3.0258469, 2.1070379, 0.2226347, 0.240390])
    x = jnp.polyval(jnp.where(temperature <= 4_000, low, high), inverse)
    coldest = jnp.array([-1.1063814, -1.34811020, 2.18555832, -0.20219683])
    cold = jnp.array([-0.9549476, -1.37418593, 2.09137015, -0.16748867])
    warm = jnp.array([3.0817580, -5.87338670, 3.75112997, -0.37001483])
    weights = jnp.where(temperature <= 4_000, cold, warm)
    y = jnp.polyval(jnp.where(temperature <= 2_222, coldest, weights), x)
    return jnp.stack([x, y])


@checked
def daylight_chromaticity(
    temperature: Annotated[Float[Array, ""], Between(4_000, 25_000)],
) -> Float[Array, "2"]:
    """Return CIE x and y of the daylight illuminant D (CIE 15:2004).

    Args:
      temperature: kelvin, 4,000 to 25,000, as CIE 15 defines it; traced values are not checked.
    """
    inverse = 1e3 / temperature
    low = jnp.array([-4.6070, 2.9678, 0.09911, 0.244063])
    high = jnp.array([-2.0064, 1.9018, 0.24748, 0.237040])
    x = jnp.polyval(jnp.where(temperature <= 7_000, low, high), inverse)
    return jnp.stack([x, -3.000 * x**2 + 2.870 * x - 0.275])


@checked
def calibrated_matrix(
    calibration: CameraCalibration, temperature: Float[Array, ""]
) -> Float[Array, "3 3"]:
    """Return the matrix from XYZ to camera colours at a temperature; outside the range its end.

    A single matrix is not interpolated.
    """
    if len(calibration.matrices) == 1:
        return calibration.matrices[0]
    first, second = 1 / calibration.temperatures
    span = jnp.where(second == first, 1.0, second - first)
    share = jnp.clip((1 / temperature - first) / span, 0, 1)
    return (1 - share) * calibration.matrices[0] + share * calibration.matrices[1]


@checked
def calibrated_illuminant(
    calibration: CameraCalibration, temperature: Float[Array, ""], chromaticity: Float[Array, "2"]
) -> Float[Array, "3"]:
    """Return the camera's colour of an illuminant of luminance 1.

    Args:
      calibration: the camera's matrices.
      temperature: correlated colour temperature in kelvin, which selects the matrix.
      chromaticity: CIE x and y.
    """
    x, y = chromaticity
    xyz = jnp.stack([x / y, jnp.ones_like(x), (1 - x - y) / y])
    matrix = calibrated_matrix(calibration, temperature)
    return matrix_product(matrix, xyz)


@checked
def locus_illuminants(calibration: CameraCalibration) -> Float[Array, "126 3"]:
    """Return the camera's colours of the Planckian illuminants, then those of daylight."""
    colors = []
    for chromaticity, ends in (
        (planckian_chromaticity, PLANCKIAN),
        (daylight_chromaticity, DAYLIGHT),
    ):
        temperatures = jnp.linspace(*ends, COUNT)
        points = jax.vmap(chromaticity)(temperatures)
        of_all = jax.vmap(calibrated_illuminant, (None, 0, 0))
        colors.append(of_all(calibration, temperatures, points))
    return jnp.concatenate(colors)


@checked
def camera_fingerprint(
    calibration: CameraCalibration, window: ChromaWindow = FINGERPRINT_WINDOW
) -> Float[Array, "b b 2"]:
    """Return the histograms of Planckian and of daylight illuminants in the camera's colours.

    Illuminants of a channel that is not positive are left out.

    Args:
      calibration: the camera's matrices.
      window: range and number of bins, static.
    """
    colors = locus_illuminants(calibration).reshape(2, COUNT, 3)
    weights = jnp.linalg.norm(colors, axis=-1)
    histograms = jax.vmap(weighted_chroma_histogram, (0, 0, None))(colors, weights, window)
    return jnp.moveaxis(histograms, 0, -1)


@checked
def imaginary_camera(
    first: CameraCalibration,
    second: CameraCalibration,
    share: UnitInterval | Annotated[Float[Array, ""], Between(0, 1)],
) -> CameraCalibration:
    """Return a camera between two, whose matrices have the weight `share` for the second.

    Args:
      first: matrices of one camera.
      second: matrices of another, as many and under the same illuminants.
      share: 0 is the first camera and 1 the second.
    """
    matrices = (1 - share) * first.matrices + share * second.matrices
    return CameraCalibration(matrices, first.temperatures)
