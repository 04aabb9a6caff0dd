"""Plot of illuminants as chromaticities, with black bodies as the same sensor records them."""

from collections.abc import Mapping
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from everlight.checks import FINITE, POSITIVE, Between, checked
from everlight.color.radiometry import blackbody_power, illuminant_response
from everlight.plots.style import COLORS, Numbers, axes_or_new

Wavelengths = Annotated[Float[Numbers, "w"], POSITIVE]
Sensitivity = Annotated[Float[Numbers, "3 w"], FINITE]

MARKERS = "o^sDv*PX"
KELVIN = (2000, 3000, 4000, 6500, 10000)
"""Temperatures marked on the Planckian locus."""


@checked
def plot_chromaticity(
    illuminants: Mapping[str, Annotated[Float[Numbers, "_ 3"], Between(0, or_nan=True)]],
    sensor: tuple[Wavelengths, Sensitivity] | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Plot illuminants at R / (R+G+B) and G / (R+G+B), and the Planckian locus of their sensor.

    Args:
      illuminants: responses to white of any scale, by name; all of one sensor if there is a locus.
      sensor: wavelengths in nm, evenly spaced, and the sensor's sensitivities; colour matching
        functions give x and y. None draws no locus.
      axes: Axes to draw on; None creates a figure.
    """
    drawn = axes_or_new(axes)
    for index, (name, values) in enumerate(illuminants.items()):
        red, green = _shares(np.asarray(values))
        # There are as many markers as colours: each round of colours starts at the next marker.
        place = index + index // len(COLORS)
        style = {"marker": MARKERS[place % len(MARKERS)], "color": COLORS[index % len(COLORS)]}
        drawn.scatter(red, green, s=14, alpha=0.55, label=name, **style)
    if sensor is not None:
        _draw_locus(drawn, *map(jnp.asarray, sensor))
    drawn.set(xlabel="R / (R+G+B)", ylabel="G / (R+G+B)")
    if axes is None:
        drawn.legend()
    return drawn


def _draw_locus(
    axes: Axes, wavelengths: Float[jax.Array, "w"], sensitivity: Float[jax.Array, "3 w"]
) -> None:
    def xy(kelvin: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        power = jax.vmap(blackbody_power, (0, None))(jnp.asarray(kelvin, jnp.float32), wavelengths)
        return _shares(np.asarray(jax.vmap(illuminant_response, (0, None))(power, sensitivity)))

    # Evenly spaced in reciprocal temperature, which spaces chromaticities almost evenly.
    axes.plot(*xy(1e6 / np.linspace(1e6 / 1500, 1e6 / 25000, 200)), color="black", lw=1, zorder=1)
    red, green = xy(np.array(KELVIN))
    axes.plot(red, green, ".", color="black", markersize=5)
    for kelvin, x, y in zip(KELVIN, red, green, strict=True):
        axes.annotate(
            f"{kelvin:,} K", (x, y), xytext=(6, -8), textcoords="offset points", fontsize=8
        )


def _shares(illuminants: Float[np.ndarray, "n 3"]) -> tuple[np.ndarray, np.ndarray]:
    share = illuminants / illuminants.sum(axis=1, keepdims=True)
    return share[:, 0], share[:, 1]
