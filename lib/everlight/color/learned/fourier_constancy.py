"""Fast Fourier colour constancy (FFCC): localization of a filtered log-chroma histogram.

Barron and Tsai 2017 (CVPR). An illuminant that multiplies an image's channels shifts the histogram
of its log-chroma, so estimating it is localizing the histogram. A filter and a bias map of likely
illuminants are learned. The histogram is small and wraps around (a torus). The range of the
training illuminants resolves which of the aliased illuminants of a bin is meant.

Differences from the authors' code: pixels outside the image count as masked, where the code repeats
the border; the means of the filters and of the bias map, which have no effect, stay 0; and the line
search of L-BFGS is optax's.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float

from everlight.checks import FRACTION, POSITIVE, Between, NotEmpty, PositiveInt, checked
from everlight.color.chroma_histogram import neighbor_differences
from everlight.color.illuminant_method import IlluminantMethod, LabelledImages, SideInformation
from everlight.color.illuminants import Illuminant, Image, Mask, keep_observed, unit_illuminant
from everlight.precision import full_precision

BINS = 64
BIN_WIDTH = 1 / 32
"""Width of a bin in log-chroma; the histogram spans a factor of e² in each channel ratio."""
DARK_THRESHOLD = 1 / 256
"""Fraction of white; pixels with a darker channel are excluded."""

Histograms = Float[Array, "2 64 64"]


class FourierSettings(NamedTuple):
    """Weights of losses and penalties, the paper's equations 14 to 20.

    Attributes:
      crossentropy: weight of the first round's loss.
      likelihood: weight of the second round's loss, the negative log-likelihood of the true
        illuminant under the fitted Gaussian.
      filter_smoothness: weights of the total variation of the two filters.
      bias_smoothness: weight of the total variation of the bias map.
      filter_size: weights of the squared norms of the two filters.
      bias_size: weight of the squared norm of the bias map.
      spread: variance in bins² added to the fitted Gaussian.
    """

    crossentropy: float
    likelihood: float
    filter_smoothness: tuple[float, float]
    bias_smoothness: float
    filter_size: tuple[float, float]
    bias_size: float
    spread: float


_EXPONENTS = {
    "Canon1DsMkIII": FourierSettings(-5.25, 2.5, (-23.5, -22.5), -16, (-40.25, -38), -37.75, 0.5),
    "Canon600D": FourierSettings(-25.25, -1.5, (-27.5, -24.5), -21.75, (-39.25, -38.75), -44.75, 0),
    "FujifilmXM1": FourierSettings(-11, -1.5, (-23.75, -26.75), -21.5, (-73.5, -33), -45, 0),
    "NikonD5200": FourierSettings(-12.25, -2.25, (-23, -29.5), -26, (-59.25, -35.5), -51.5, 0),
    "OlympusEPL6": FourierSettings(-14.25, -0.75, (-24.75, -26.25), -20.75, (-38, -38), -49.25, 0),
    "PanasonicGX1": FourierSettings(-3.25, -2.25, (-21.75, -26.5), -26.25, (-43.5, -36), -46.75, 0),
    "SamsungNX2000": FourierSettings(-7, -2, (-25.25, -25), -22.5, (-36.75, -32), -37.5, 0),
    "SonyA57": FourierSettings(-13, -3, (-27.75, -28), -23.5, (-41.75, -42.25), -39.75, 0),
}
"""Base-2 logarithms of the settings, in the order of their fields."""
FOURIER_SETTINGS: dict[str, FourierSettings] = {
    camera: jax.tree.map(lambda exponent: 2.0**exponent, exponents)
    for camera, exponents in _EXPONENTS.items()
}
"""The authors' settings for thumbnails of each camera of NUS-8. They were tuned on that camera's
folds, so on the same camera they have seen the test images."""


class FourierModel(NamedTuple):
    """Filters of pixels and edges, the bias map, and the first of the 64 bins on each axis."""

    filters: Histograms
    bias: Float[Array, "64 64"]
    origin: Float[Array, "2"]


@checked
def log_chroma_histograms(image: Image, mask: Mask) -> Histograms:
    """Return histograms of log-chroma (log G/R, log G/B) of an image's pixels and of its edges.

    Edges are each pixel's mean absolute difference from its unmasked neighbours. A pixel with a
    channel below `DARK_THRESHOLD`, where 1 is white, is excluded. Bin i holds the log-chroma
    nearest to i * `BIN_WIDTH`, modulo `BINS` bins.

    Args:
      image: linear raw colours, 1 is white, `[h, w, 3]`.
      mask: validity mask, `[h, w]`, 0 excludes a pixel; or None.

    Returns:
      The two histograms, `[2, 64, 64]`, each with sum 1, or 0 without usable pixels; NaN where an
        unmasked pixel is not finite.
    """
    observed = jnp.ones(image.shape[:2], bool) if mask is None else mask > 0
    image = keep_observed(image, mask)
    total, count = neighbor_differences(image, observed)
    edges = total / jnp.maximum(count, 1)[..., None]
    both = jnp.stack([_histogram(image, observed), _histogram(edges, observed)])
    return jnp.where(jnp.all(jnp.isfinite(image)), both, jnp.nan)


def _histogram(colors: Image, observed: Bool[Array, "h w"]) -> Float[Array, "64 64"]:
    usable = observed & jnp.all(colors >= DARK_THRESHOLD, axis=-1)
    logs = jnp.log(jnp.where(usable[..., None], colors, 1))
    position = jnp.round((logs[..., 1:2] - logs[..., ::2]) / BIN_WIDTH).astype(int) % BINS
    counts = jnp.zeros((BINS, BINS), colors.dtype)
    counts = counts.at[position[..., 0], position[..., 1]].add(usable.astype(colors.dtype))
    return counts / jnp.maximum(jnp.sum(counts), 1)


@checked
@partial(jax.jit, static_argnames=("crossentropy_steps", "likelihood_steps"))
def fit_fourier_constancy(
    histograms: Annotated[Float[Array, "n 2 64 64"], Between(0, 1), NotEmpty],
    illuminants: Annotated[Float[Array, "n 3"], POSITIVE],
    *,
    crossentropy_steps: PositiveInt = 16,
    likelihood_steps: PositiveInt = 64,
    settings: FourierSettings = FOURIER_SETTINGS["NikonD5200"],
) -> FourierModel:
    """Fit filters and bias map to training images, in the authors' two rounds.

    The first loss is convex: the cross-entropy of the softmax of the filtered histogram and the
    true illuminant's bin. The second is the likelihood of the true illuminant under the Gaussian
    with the softmax's moments on the torus. Both rounds penalize the total variation and size of
    the filters and the bias map. They optimize in the parameters that make the penalty a sum of
    squares (the paper's section 4).

    Args:
      histograms: histograms from `log_chroma_histograms`, `[n, 2, 64, 64]`.
      illuminants: true illuminants, any scale, `[n, 3]`.
      crossentropy_steps: L-BFGS steps of the first round, static.
      likelihood_steps: L-BFGS steps of the second round, static.
      settings: weights of the losses and penalties.
    """
    bins = illuminant_bins(illuminants)
    origin = first_bin(bins)
    spectra = jnp.fft.rfft2(histograms)
    whitening = _whitening(settings)

    def scores(latent: Float[Array, "3 64 64"]) -> Float[Array, "n 64 64"]:
        parts = jnp.fft.rfft2(latent) * whitening
        filtered = jnp.fft.irfft2(jnp.sum(spectra * parts[:2], axis=1), (BINS, BINS))
        return filtered + jnp.fft.irfft2(parts[2], (BINS, BINS))

    def crossentropy(scored: Float[Array, "64 64"], position: Float[Array, "2"]) -> Array:
        row, column = jnp.round(position).astype(int) % BINS
        return jax.nn.logsumexp(scored) - scored[row, column]

    @full_precision
    def likelihood(scored: Float[Array, "64 64"], position: Float[Array, "2"]) -> Array:
        mean, variance = _moments(scored, origin)
        variance = variance + settings.spread * jnp.eye(2)
        apart = position - mean
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
            data = jnp.mean(jax.vmap(loss)(scores(latent), bins))
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
    """Return factors that turn the penalty into a sum of squares of the parameters."""
    smooth = (2 - 2 * np.cos(2 * np.pi * np.arange(BINS) / BINS)) / 8
    variation = smooth[:, None] + smooth[None, : BINS // 2 + 1]
    multiples = jnp.array([*settings.filter_smoothness, settings.bias_smoothness])
    sizes = jnp.array([*settings.filter_size, settings.bias_size])
    penalty = multiples[:, None, None] * variation + sizes[:, None, None]
    # The mean shifts all scores equally; no loss depends on it, but rounding errors would.
    return (1 / (BINS * jnp.sqrt(penalty))).at[:, 0, 0].set(0)


def illuminant_bins(illuminants: Float[Array, "*n 3"]) -> Float[Array, "*n 2"]:
    """Return the positions of illuminants on the histogram's axes, in bins."""
    logs = jnp.log(illuminants)
    return (logs[..., 1:2] - logs[..., ::2]) / BIN_WIDTH


def first_bin(bins: Float[Array, "n 2"]) -> Float[Array, "2"]:
    """Return, on each axis, the first of the `BINS` bins that are centred on these positions."""
    return jnp.round((jnp.min(bins, axis=0) + jnp.max(bins, axis=0)) / 2) - BINS // 2


def _moments(
    scores: Float[Array, "64 64"], origin: Float[Array, "2"]
) -> tuple[Float[Array, "2"], Float[Array, "2 2"]]:
    """Return mean, from `origin` on, and variance of the scores' softmax on the torus, in bins."""
    shares = jax.nn.softmax(scores.ravel()).reshape(BINS, BINS)
    margins = jnp.stack([jnp.sum(shares, axis=1), jnp.sum(shares, axis=0)])
    bins = jnp.arange(BINS)
    turns = 2 * jnp.pi / BINS * bins
    angle = jnp.arctan2(jnp.sum(margins * jnp.sin(turns), 1), jnp.sum(margins * jnp.cos(turns), 1))
    mean = origin + (angle * BINS / (2 * jnp.pi) - origin) % BINS
    # Signed distance from the mean's bin, the shorter way round. Rounding has no gradient.
    nearest = jnp.round(jax.lax.stop_gradient(mean))[:, None]
    away = (bins - nearest + BINS // 2) % BINS - BINS // 2
    center = jnp.sum(margins * away, axis=1)
    squares = jnp.sum(margins * away**2, axis=1) - center**2
    product = jnp.sum(shares * away[0][:, None] * away[1][None, :]) - center[0] * center[1]
    return mean, jnp.array([[squares[0], product], [product, squares[1]]])


@checked
def fourier_estimate(
    model: FourierModel, histograms: Annotated[Histograms, FRACTION]
) -> Illuminant:
    """Return the unit illuminant of an image with these histograms; NaN without usable pixels.

    Args:
      model: model from `fit_fourier_constancy`.
      histograms: histograms from `log_chroma_histograms`, `[2, 64, 64]`.
    """
    spectrum = jnp.sum(jnp.fft.rfft2(histograms) * jnp.fft.rfft2(model.filters), axis=0)
    scores = jnp.fft.irfft2(spectrum, (BINS, BINS)) + model.bias
    mean, _ = _moments(scores, model.origin)
    red, blue = -BIN_WIDTH * mean
    # An image without edges still has an illuminant.
    has_pixels = jnp.sum(histograms[0]) > 0
    illuminant = jnp.exp(jnp.stack([red, jnp.zeros_like(red), blue]))
    return unit_illuminant(jnp.where(has_pixels, illuminant, jnp.nan))


TUNED_HERE = "FFCC, its settings tuned by its authors on this camera's folds"


def _histograms(image: Image, mask: Mask) -> Histograms:
    """Return histograms of an image scaled to its maximum, as FFCC's thumbnails are."""
    peak = jnp.max(keep_observed(image, mask))
    return log_chroma_histograms(image / jnp.where(peak > 0, peak, 1), mask)


def _fit(
    images: LabelledImages,
    side: SideInformation,
    settings: Callable[[str], FourierSettings],
    **training: Any,
) -> FourierModel:
    tuned = settings(side.camera)
    return fit_fourier_constancy(images.features, images.illuminants, settings=tuned, **training)


def _other_camera_settings(camera: str) -> FourierSettings:
    """Return settings that the authors tuned on another camera than this one."""
    return FOURIER_SETTINGS["NikonD5200" if camera == "SonyA57" else "SonyA57"]


METHODS = (
    IlluminantMethod(
        "FFCC", _histograms, partial(_fit, settings=_other_camera_settings), fourier_estimate
    ),
    IlluminantMethod(
        TUNED_HERE,
        _histograms,
        partial(_fit, settings=FOURIER_SETTINGS.__getitem__),
        fourier_estimate,
        is_camera_specific=True,
        applies=lambda side: side.camera in FOURIER_SETTINGS,
    ),
)
