"""Log-chroma histograms of C5 and CCMNet: weighted by brightness, over a window without wrapping.

Afifi et al. 2021, "Cross-camera convolutional color constancy" (ICCV), equation 3. A colour has the
log-chroma u = log(G/R) and v = log(G/B). Unlike FFCC's (`fourier_constancy`), colours outside the
window are left out.

Equal to the authors' code (mahmoudnafifi/C5 at dca9236, `src/ops.py`) in bins, weights, square
root, edges and locator. Differs in:

- In edges a pixel's masked neighbours, and those outside the image, count as equal to the pixel.
  The code reflects the image and has no mask; its masked pixels are black and have edges.
- A colour whose log-chroma is exactly a bin's centre counts in that bin and the next one. The code
  counts it in the bins before and after that one.
- The code adds 1e-9 to each channel before the logarithm.
"""

import itertools
from typing import Annotated, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from everlight.checks import FINITE, NOT_NEGATIVE, PositiveInt, checked
from everlight.color.illuminants import Illuminant, Image, Mask, keep_observed, unit_illuminant

MIN_SUM = 1e-9
"""Added to a histogram's sum before it is divided by it."""


class ChromaWindow(NamedTuple):
    """Range of log-chroma that a histogram covers on both axes; the defaults are C5's.

    Attributes:
      bins: number of bins per axis.
      low: log-chroma of the first bin's centre.
      high: log-chroma of the last bin's centre.
    """

    bins: PositiveInt = 64
    low: float = -2.85
    high: float = 2.85


CHROMA_WINDOW = ChromaWindow(32, -0.65, 2.25)
"""Window about the illuminants of real cameras, with bins as wide as the authors'. About 1% of the
brightness of NUS-8's and Cube+'s images lies outside."""


@checked
def weighted_chroma_histogram(
    colors: Float[Array, "n 3"],
    weights: Annotated[Float[Array, "n"], NOT_NEGATIVE],
    window: ChromaWindow = ChromaWindow(),  # noqa: B008
) -> Float[Array, "b b"]:
    """Return the square roots of the bins' shares of all weight (equation 3).

    A colour counts in every bin whose centre is at most one bin width away on both axes, so in up
    to four bins.

    Args:
      colors: linear colours, `[n, 3]`; those with a channel of at most 0, or NaN, are left out.
      weights: weight of each colour, `[n]`; 0 leaves it out.
      window: range and number of bins, static.

    Returns:
      The histogram, `[bins, bins]`: rows are v from high to low, columns u from low to high. It is
        0 without any colour in the window.
    """
    usable = jnp.all(colors > 0, axis=1) & (weights > 0)
    logs = jnp.log(jnp.where(usable[:, None], colors, 1))
    chroma = logs[:, 1:2] - logs[:, ::2]
    width = (window.high - window.low) / (window.bins - 1)
    # Cell i lies between the centres of bins i - 1 and i, and counts in both.
    cells = jnp.floor((chroma - window.low) / width).astype(int) + 1
    inside = jnp.all((cells >= 0) & (cells <= window.bins), axis=1) & usable
    cells = jnp.where(inside[:, None], cells, 0)
    counts = jnp.zeros((window.bins + 1,) * 2, colors.dtype)
    counts = counts.at[cells[:, 1], cells[:, 0]].add(jnp.where(inside, weights, 0))
    rows = counts[1:] + counts[:-1]
    total = (rows[:, 1:] + rows[:, :-1])[::-1]
    share = total / (jnp.sum(total) + MIN_SUM)
    # The square root's gradient at 0 is infinite.
    return jnp.where(share > 0, jnp.sqrt(jnp.where(share > 0, share, 1)), 0)


@checked
def chroma_histograms(
    image: Image,
    mask: Mask,
    window: ChromaWindow = ChromaWindow(),  # noqa: B008
) -> Float[Array, "b b 2"]:
    """Return the histograms of an image's pixels and of its edges, weighted by their norms.

    Edges are each pixel's mean absolute difference from its eight neighbours.

    Args:
      image: linear raw colours, `[h, w, 3]`, of any scale at which the norms of edges add up to
        1e-6 or more. Below it, squares add up to visibly less than 1, by `MIN_SUM`.
      mask: validity mask, `[h, w]`, 0 excludes a pixel; or None.
      window: range and number of bins, static.

    Returns:
      The histograms, `[bins, bins, 2]`, 0 without usable pixels; NaN where an unmasked pixel is not
        finite.
    """
    seen = jnp.ones(image.shape[:2], bool) if mask is None else mask > 0
    image = keep_observed(image, mask)
    finite = jnp.all(jnp.isfinite(image))
    image = jnp.where(finite, image, 0)
    both = []
    for colors in (image, neighbor_differences(image, seen)[0] / 8):
        flat = colors.reshape(-1, 3)
        # The norm's gradient at 0 is NaN.
        lit = jnp.sum(flat**2, axis=1)
        norm = jnp.where(lit > 0, jnp.sqrt(jnp.where(lit > 0, lit, 1)), 0)
        both.append(weighted_chroma_histogram(flat, norm * seen.ravel(), window))
    return jnp.where(finite, jnp.stack(both, axis=-1), jnp.nan)


def neighbor_differences(
    image: Image, seen: Bool[Array, "h w"]
) -> tuple[Image, Float[Array, "h w"]]:
    """Return the sum of each pixel's absolute differences from seen neighbours, and their number.

    Pixels that are not seen have neither.
    """
    padded = jnp.pad(image, ((1, 1), (1, 1), (0, 0)))
    known = jnp.pad(seen, 1)
    height, width = seen.shape
    total, count = jnp.zeros_like(image), jnp.zeros(seen.shape, image.dtype)
    for row, column in itertools.product(range(3), range(3)):
        other = padded[row : row + height, column : column + width]
        both = known[row : row + height, column : column + width] & seen
        total += jnp.where(both[..., None], jnp.abs(other - image), 0)
        count += both
    # The pixel itself is among the nine.
    return total, count - seen


@checked
def located_illuminant(
    scores: Annotated[Float[Array, "b b"], FINITE],
    window: ChromaWindow = ChromaWindow(),  # noqa: B008
) -> Illuminant:
    """Return the unit illuminant at the mean of the scores' softmax (equations 4 to 6).

    As in the authors' code, scores are clipped to -100 and 100, and a bin's width is the range
    divided by the number of bins, where the histogram divides by one less.

    Args:
      scores: filtered histogram plus bias map, laid out as `weighted_chroma_histogram`.
      window: range and number of bins, static.
    """
    scores = jnp.clip(scores, -100, 100)
    shares = jnp.exp(scores - jnp.max(scores))
    shares = shares / jnp.sum(shares)
    line = jnp.arange(window.bins) - (window.bins - 1) / 2
    width = (window.high - window.low) / window.bins
    middle = (window.high + window.low) / 2
    u = middle + width * jnp.sum(jnp.sum(shares, axis=0) * line)
    v = middle + width * jnp.sum(jnp.sum(shares, axis=1) * line[::-1])
    return unit_illuminant(jnp.exp(jnp.stack([-u, jnp.zeros_like(u), -v])))


def has_pixels(histograms: Float[Array, "*n b b 2"]) -> Bool[Array, "*n"]:
    """Return True if an image has usable pixels and no NaN."""
    return jnp.sum(histograms[..., 0], axis=(-2, -1)) > 0


def without_spoilt(histograms: Float[Array, "*n b b 2"]) -> Float[Array, "*n b b 2"]:
    """Set the histograms of images without usable pixels to 0."""
    return jnp.where(has_pixels(histograms)[..., None, None, None], histograms, 0)
