"""Fast Fourier colour constancy (FFCC): a light is where a filtered histogram of log-chroma peaks.

Barron and Tsai 2017 (CVPR). Multiplying an image's channels by a light shifts the histogram of its
log-chroma, so finding the light is finding where a histogram lies: a filter is learnt, and a map of
which lights are likely. The histogram is small and its ends are joined; which of the lights that
fall into one bin is meant is told by where the training lights lie.

What differs from the authors' code: what lies beside the image counts as masked, where the code
repeats the border; the mean of the filters and of the map, on which nothing depends, stays 0; and
the line search of L-BFGS is optax's.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float

from everlight.checks import PositiveInt, checked
from everlight.color.estimators import Illuminant, Image, Mask, keep_observed, unit_illuminant

BINS = 64
BIN = 1 / 32
"""Width of a bin in log-chroma; the histogram spans a factor of e² in each ratio of channels."""
DARKEST = 1 / 256
"""Share of white below which a channel is not trusted."""

Histograms = Float[Array, "2 64 64"]


class FourierSettings(NamedTuple):
    """What is weighed against what in the training, the paper's equations 14 to 20.

    Attributes:
      crossentropy: weight of the first round's loss.
      likelihood: weight of the second round's loss, of the true light under the fitted Gaussian.
      filter_smoothness: weights of the total variation of both channels' filters.
      bias_smoothness: of the map of lights.
      filter_size: weights of the filters' own squares.
      bias_size: of the map's.
      spread: variance in bins² that is added to the fitted Gaussian.
    """

    crossentropy: float
    likelihood: float
    filter_smoothness: tuple[float, float]
    bias_smoothness: float
    filter_size: tuple[float, float]
    bias_size: float
    spread: float


def _powers(*exponents: float | int) -> FourierSettings:
    crossentropy, likelihood, first, second, bias, one, two, size, spread = (
        2.0**exponent for exponent in exponents
    )
    return FourierSettings(
        crossentropy, likelihood, (first, second), bias, (one, two), size, spread
    )


FOURIER_SETTINGS: dict[str, FourierSettings] = {
    "Canon1DsMkIII": _powers(-5.25, 2.5, -23.5, -22.5, -16, -40.25, -38, -37.75, 0.5),
    "Canon600D": _powers(-25.25, -1.5, -27.5, -24.5, -21.75, -39.25, -38.75, -44.75, 0),
    "FujifilmXM1": _powers(-11, -1.5, -23.75, -26.75, -21.5, -73.5, -33, -45, 0),
    "NikonD5200": _powers(-12.25, -2.25, -23, -29.5, -26, -59.25, -35.5, -51.5, 0),
    "OlympusEPL6": _powers(-14.25, -0.75, -24.75, -26.25, -20.75, -38, -38, -49.25, 0),
    "PanasonicGX1": _powers(-3.25, -2.25, -21.75, -26.5, -26.25, -43.5, -36, -46.75, 0),
    "SamsungNX2000": _powers(-7, -2, -25.25, -25, -22.5, -36.75, -32, -37.5, 0),
    "SonyA57": _powers(-13, -3, -27.75, -28, -23.5, -41.75, -42.25, -39.75, 0),
}
"""The authors' own settings for thumbnails of each camera of NUS-8, tuned by them on that camera's
folds, so that on the same camera they have seen the test images."""

ROUNDS = (16, 64)
"""L-BFGS steps on the convex loss, then on the likelihood."""


class FourierModel(NamedTuple):
    """Both channels' filters, the map of likely lights, and each axis's first of the 64 bins."""

    filters: Histograms
    bias: Float[Array, "64 64"]
    origin: Float[Array, "2"]


@checked
def log_chroma_histograms(image: Image, mask: Mask) -> Histograms:
    """Shares of an image's pixels by log-chroma (log G/R, log G/B), and of its edges' likewise.

    Edges are each pixel's mean absolute difference from its unmasked neighbours. Where a channel is
    below `DARKEST`, 1 being white, a pixel is left out. Bin i holds the log-chroma nearest to
    i * `BIN`, and all that differ from it by whole turns of `BINS` bins.

    Args:
      image: linear raw colours, 1 is white, `[h, w, 3]`.
      mask: `[h, w]`, 0 leaves a pixel out; or None.

    Returns:
      The two histograms, `[2, 64, 64]`, each of sum 1, or of 0 where nothing was left; NaN where an
      unmasked pixel is not finite.
    """
    observed = jnp.ones(image.shape[:2], bool) if mask is None else mask > 0
    image = keep_observed(image, mask)
    both = jnp.stack([_histogram(image, observed), _histogram(_edges(image, observed), observed)])
    return jnp.where(jnp.all(jnp.isfinite(image)), both, jnp.nan)


def _edges(image: Image, observed: Bool[Array, "h w"]) -> Image:
    padded = jnp.pad(image, ((1, 1), (1, 1), (0, 0)))
    seen = jnp.pad(observed, 1)
    height, width = observed.shape
    total, count = jnp.zeros_like(image), jnp.zeros(observed.shape, image.dtype)
    for row in range(3):
        for column in range(3):
            if (row, column) == (1, 1):
                continue
            there = seen[row : row + height, column : column + width] & observed
            other = padded[row : row + height, column : column + width]
            total += jnp.where(there[..., None], jnp.abs(other - image), 0)
            count += there
    return total / jnp.maximum(count, 1)[..., None]


def _histogram(colors: Image, observed: Bool[Array, "h w"]) -> Float[Array, "64 64"]:
    kept = observed & jnp.all(colors >= DARKEST, axis=-1)
    logs = jnp.log(jnp.where(kept[..., None], colors, 1))
    place = jnp.round((logs[..., 1:2] - logs[..., ::2]) / BIN).astype(int) % BINS
    counts = jnp.zeros((BINS, BINS), colors.dtype)
    counts = counts.at[place[..., 0], place[..., 1]].add(kept.astype(colors.dtype))
    return counts / jnp.maximum(jnp.sum(counts), 1)


@checked
def fit_fourier_constancy(
    histograms: Float[Array, "n 2 64 64"],
    illuminants: Float[Array, "n 3"],
    settings: FourierSettings = FOURIER_SETTINGS["NikonD5200"],
    crossentropy_steps: PositiveInt = ROUNDS[0],
    likelihood_steps: PositiveInt = ROUNDS[1],
) -> FourierModel:
    """Filters and map learnt from training images, in the authors' two rounds.

    First the cross-entropy of the softmax of the filtered histogram and the true light's bin, which
    is convex, then the likelihood of the true light under the Gaussian that has the softmax's
    moments on the torus. Both rounds penalise the filters' and the map's total variation and size,
    in the parameters that make the penalty a sum of squares (the paper's section 4).

    Args:
      histograms: from `log_chroma_histograms`, `[n, 2, 64, 64]`.
      illuminants: the true lights, any scale, `[n, 3]`.
      settings: weights of the losses and penalties.
      crossentropy_steps: L-BFGS steps of the first round.
      likelihood_steps: of the second.
    """
    places = light_places(illuminants)
    origin = first_bin(places)
    spectra = jnp.fft.rfft2(histograms)
    whitening = _whitening(settings)

    def scores(latent: Float[Array, "3 64 64"]) -> Float[Array, "n 64 64"]:
        parts = jnp.fft.rfft2(latent) * whitening
        filtered = jnp.fft.irfft2(jnp.sum(spectra * parts[:2], axis=1), (BINS, BINS))
        return filtered + jnp.fft.irfft2(parts[2], (BINS, BINS))

    def crossentropy(scored: Float[Array, "64 64"], place: Float[Array, "2"]) -> Array:
        row, column = jnp.round(place).astype(int) % BINS
        return jax.nn.logsumexp(scored) - scored[row, column]

    def likelihood(scored: Float[Array, "64 64"], place: Float[Array, "2"]) -> Array:
        mean, variance = _moments(scored, origin)
        variance = variance + settings.spread * jnp.eye(2)
        apart = place - mean
        determinant = variance[0, 0] * variance[1, 1] - variance[0, 1] ** 2
        other = jnp.array([[variance[1, 1], -variance[0, 1]], [-variance[0, 1], variance[0, 0]]])
        distance = apart @ other @ apart / determinant
        return 0.5 * (jnp.log(determinant) + distance) - jnp.log(settings.spread)

    latent = jnp.zeros((3, BINS, BINS), histograms.dtype)
    for loss, weight, steps in (
        (crossentropy, settings.crossentropy, crossentropy_steps),
        (likelihood, settings.likelihood, likelihood_steps),
    ):

        def objective(latent: Array, loss=loss, weight=weight) -> Float[Array, ""]:
            data = jnp.mean(jax.vmap(loss)(scores(latent), places))
            return weight * data + 0.5 * jnp.sum(latent * latent)

        latent = _minimize(objective, latent, steps)
    parts = jnp.fft.irfft2(jnp.fft.rfft2(latent) * whitening, (BINS, BINS))
    return FourierModel(parts[:2], parts[2], origin)


def _minimize(objective, start: Float[Array, "3 64 64"], steps: int) -> Float[Array, "3 64 64"]:
    optimizer = optax.lbfgs(memory_size=steps)
    value_and_grad = optax.value_and_grad_from_state(objective)

    def step(_: Array, carry: tuple) -> tuple:
        latent, state = carry
        value, gradient = value_and_grad(latent, state=state)
        updates, state = optimizer.update(
            gradient, state, latent, value=value, grad=gradient, value_fn=objective
        )
        return optax.apply_updates(latent, updates), state

    return jax.lax.fori_loop(0, steps, step, (start, optimizer.init(start)))[0]


def _whitening(settings: FourierSettings) -> Float[Array, "3 64 33"]:
    """What makes the penalty of filters and map a sum of squares of their parameters."""
    smooth = (2 - 2 * np.cos(2 * np.pi * np.arange(BINS) / BINS)) / 8
    variation = smooth[:, None] + smooth[None, : BINS // 2 + 1]
    multiples = jnp.array([*settings.filter_smoothness, settings.bias_smoothness])
    sizes = jnp.array([*settings.filter_size, settings.bias_size])
    penalty = multiples[:, None, None] * variation + sizes[:, None, None]
    # The mean shifts all scores alike, which no loss sees, but rounding would.
    return (1 / (BINS * jnp.sqrt(penalty))).at[:, 0, 0].set(0)


def light_places(illuminants: Float[Array, "*n 3"]) -> Float[Array, "*n 2"]:
    """Where lights lie, in bins."""
    logs = jnp.log(illuminants)
    return (logs[..., 1:2] - logs[..., ::2]) / BIN


def first_bin(places: Float[Array, "n 2"]) -> Float[Array, "2"]:
    """Of each axis the first of the `BINS` bins that have these places in their middle."""
    return jnp.round((jnp.min(places, axis=0) + jnp.max(places, axis=0)) / 2) - BINS // 2


def _moments(
    scores: Float[Array, "64 64"], origin: Float[Array, "2"]
) -> tuple[Float[Array, "2"], Float[Array, "2 2"]]:
    """Mean, from `origin` on, and variance of the scores' softmax on the torus, in bins."""
    shares = jax.nn.softmax(scores.ravel()).reshape(BINS, BINS)
    margins = jnp.stack([jnp.sum(shares, axis=1), jnp.sum(shares, axis=0)])
    bins = jnp.arange(BINS)
    turns = 2 * jnp.pi / BINS * bins
    angle = jnp.arctan2(jnp.sum(margins * jnp.sin(turns), 1), jnp.sum(margins * jnp.cos(turns), 1))
    mean = origin + (angle * BINS / (2 * jnp.pi) - origin) % BINS
    # From the mean's own bin the shorter way round; the bin itself is a step, without a gradient.
    nearest = jnp.round(jax.lax.stop_gradient(mean))[:, None]
    away = (bins - nearest + BINS // 2) % BINS - BINS // 2
    centre = jnp.sum(margins * away, axis=1)
    squares = jnp.sum(margins * away**2, axis=1) - centre**2
    product = jnp.sum(shares * away[0][:, None] * away[1][None, :]) - centre[0] * centre[1]
    return mean, jnp.array([[squares[0], product], [product, squares[1]]])


@checked
def fourier_estimate(model: FourierModel, histograms: Histograms) -> Illuminant:
    """The unit light of an image with these histograms; NaN where no pixel was left in them.

    Args:
      model: from `fit_fourier_constancy`.
      histograms: from `log_chroma_histograms`, `[2, 64, 64]`.
    """
    spectrum = jnp.sum(jnp.fft.rfft2(histograms) * jnp.fft.rfft2(model.filters), axis=0)
    scores = jnp.fft.irfft2(spectrum, (BINS, BINS)) + model.bias
    mean, _ = _moments(scores, model.origin)
    red, blue = -BIN * mean
    # A flat image has no edges, and a light nevertheless.
    told = jnp.sum(histograms[0]) > 0
    light = jnp.exp(jnp.stack([red, jnp.zeros_like(red), blue]))
    return unit_illuminant(jnp.where(told, light, jnp.nan))
