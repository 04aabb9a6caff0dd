"""One photograph before and after: under a lamp, and corrected by estimators without training."""

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from everlight.color.illuminant_registry import ESTIMATORS
from everlight.color.rendering import encode_srgb, render
from everlight.color.thumbnails import below_saturation
from everlight_data.color.photographs.sample_photograph import (
    INCANDESCENT,
    illuminant_in_srgb,
    load_sample_photograph,
)
from everlight_experiments.illuminant.core.experiment import angular_errors
from everlight_experiments.illuminant.core.report import SPELLED
from everlight_experiments.report.plots import new_canvas, save
from everlight_experiments.report.writer import Column, Figure, Section, Table

UNCORRECTED = "uncorrected"
SHOWN = "SoG"
"""Method of the picture and the summary: that of README, not the one with the lowest error."""
NOTE = (
    "The photograph is by Daniel Büchele (CC BY 2.0) and part of scikit-learn. Its linear colours "
    "are multiplied by those of an incandescent lamp, CIE illuminant A: a simulation, in which "
    "the photograph itself is the truth and its own white balance counts as exact. Real cameras "
    "and rooms are harder; `everlight illuminant dataset` measures on photographs. Pixels that the "
    "photograph has clipped are left out of the estimates."
)


class RelitPhotograph(NamedTuple):
    """A photograph under a known illuminant, and the illuminants that methods estimate.

    Attributes:
      original: photograph in linear sRGB, `[h, w, 3]`.
      illuminant: the illuminant that multiplies it, with a largest channel of 1.
      estimates: estimated illuminants by method; `UNCORRECTED` estimates white.
    """

    original: Float[np.ndarray, "h w 3"]
    illuminant: Float[np.ndarray, "3"]
    estimates: dict[str, Float[np.ndarray, "3"]]

    @property
    def errors(self) -> dict[str, float]:
        """Angular errors in degrees by method, the smallest first."""
        errors = np.asarray(angular_errors(np.stack([*self.estimates.values()]), self.illuminant))
        by_name = zip(self.estimates, errors.tolist(), strict=True)
        return dict(sorted(by_name, key=lambda item: item[1]))

    @property
    def in_words(self) -> str:
        """Error of the shown method beside that of no correction."""
        return (
            f"Illuminant of a photograph under a lamp: the estimate of {SPELLED[SHOWN]} is "
            f"{self.errors[SHOWN]:.1f} degrees off, that of no correction "
            f"{self.errors[UNCORRECTED]:.1f}."
        )


def relight_sample_photograph() -> RelitPhotograph:
    """Return the photograph of scikit-learn under an incandescent lamp, and all estimates."""
    original, lamp = load_sample_photograph(), illuminant_in_srgb(INCANDESCENT)
    estimates = _estimate_all(jnp.asarray(original * lamp), below_saturation(jnp.asarray(original)))
    named = {name: np.asarray(estimate) for name, estimate in estimates.items()}
    return RelitPhotograph(original, lamp, {UNCORRECTED: np.ones(3, np.float32), **named})


@jax.jit
def _estimate_all(
    image: Float[Array, "h w 3"], mask: Float[Array, "h w"]
) -> dict[str, Float[Array, "3"]]:
    return {name: method(image, mask) for name, method in ESTIMATORS.items()}


def relit_section(folder: Path, photograph: RelitPhotograph) -> Section:
    """Return the photograph before and after, and every method's error; the picture is written."""
    rows = [[SPELLED.get(name, name), f"{error:.1f}"] for name, error in photograph.errors.items()]
    caption = (
        "Angular error of the estimated illuminant. One photograph ranks no methods: the sky of "
        "this file is white, which is what White Patch (WP) looks for."
    )
    figure = Figure(
        "Left: the photograph under the lamp. Right: divided by the illuminant that "
        f"{SPELLED[SHOWN]} estimates from the left one's pixels.",
        _plot(folder / "before_and_after.png", photograph),
    )
    table = Table(caption, [Column("Method"), Column("degrees")], rows)
    return Section("Before and after", [NOTE], [figure, table])


def _plot(path: Path, photograph: RelitPhotograph) -> Path:
    """Plot the photograph under the lamp, and corrected by the shown method."""
    relit, errors = jnp.asarray(photograph.original * photograph.illuminant), photograph.errors
    pictures = {
        f"under a lamp: {errors[UNCORRECTED]:.1f}° off": encode_srgb(relit),
        f"corrected by {SHOWN}: {errors[SHOWN]:.1f}° off": render(
            relit, jnp.asarray(photograph.estimates[SHOWN])
        ),
    }
    height, width, _ = relit.shape
    canvas, axes = new_canvas(len(pictures), 3.6, 3.6 * height / width + 0.35)
    for axis, (title, picture) in zip(axes, pictures.items(), strict=True):
        axis.imshow(np.asarray(picture))
        axis.set(xticks=[], yticks=[])
        axis.set_title(title, fontsize=13)
        axis.set_frame_on(False)
    return save(canvas, path)
