"""Network of C5 and CCMNet, which generates a filter per histogram and a bias map.

Afifi et al. 2021 (C5) and Kim et al. 2025 (CCMNet). One encoder reads the histograms of the image,
others those of additional images; after each level the maximum over all images is merged into each
encoder. Two decoders with skip connections from the image's encoder give the filters and the bias
map.

Equal to the authors' code (mahmoudnafifi/C5 at dca9236, `src/c5.py`; DY112/CCMNet at 298275b,
`src/ccmnet/ccmnet.py`) in layers, cross-pooling, activations, normalization and circular
convolution. Differs in:

- Running variances of batch normalization divide by the number of values, in the official code by
  one less.
- The two dense layers on the fingerprint start like the convolutions, with the weights of He et al.
  and biases of 0. The code has PyTorch's uniform numbers, with 0.41 times that standard deviation.
- The fingerprint has a second channel, of daylight.
"""

from functools import reduce
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from everlight.color.camera_calibration import FINGERPRINT_WINDOW
from everlight.color.chroma_histogram import ChromaWindow, located_illuminant
from everlight.models.layers.convolution import HE_NORMAL, convolve


class GeneratorSettings(NamedTuple):
    """Size of the network; the defaults are C5's.

    Attributes:
      window: range and number of bins of the histograms; the number is a multiple of 2 to the power
        of the levels.
      channels: channels of each level.
      separate: whether each additional image has an encoder of its own, for a fixed number of them;
        otherwise they share one, and their order has no effect.
      fingerprint: channels of each level of the fingerprint's encoder; empty without a fingerprint.
      fingerprint_window: range and number of bins of the fingerprint.
      features: features of the fingerprint, in addition to the histograms.
    """

    window: ChromaWindow = ChromaWindow()
    channels: tuple[int, ...] = (8, 16, 32, 32)
    separate: bool = True
    fingerprint: tuple[int, ...] = ()
    fingerprint_window: ChromaWindow = FINGERPRINT_WINDOW
    features: int = 8


class Generated(NamedTuple):
    """Filters and bias map, laid out as the histograms."""

    filters: Float[Array, "*n b b 2"]
    bias: Float[Array, "*n b b"]


class PaddedConvolution(nn.Module):
    """Convolution of 3x3 that repeats the border, with a bias, initialized as by He et al."""

    features: int

    @nn.compact
    def __call__(self, inputs: Float[Array, "n h w c"]) -> Float[Array, "n h w f"]:
        """Return the convolved maps."""
        kernel = self.param("kernel", HE_NORMAL, (3, 3, inputs.shape[-1], self.features))
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        padded = jnp.pad(inputs, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")
        return convolve(padded, kernel, 1)[:, 1:-1, 1:-1] + bias


class Block(nn.Module):
    """Two convolutions with leaky rectifiers; a normalization may follow the second convolution.

    Attributes:
      middle: channels of the first convolution.
      features: channels of the second.
      norm: "batch" with statistics of the training, "instance" per map, or "" for none.
    """

    middle: int
    features: int
    norm: str = ""

    @nn.compact
    def __call__(self, inputs: Float[Array, "n h w c"], train: bool) -> Float[Array, "n h w f"]:
        """Return the maps; with `train` batch statistics are computed from these maps and kept."""
        maps = nn.leaky_relu(PaddedConvolution(self.middle, name="first")(inputs))
        maps = PaddedConvolution(self.features, name="second")(maps)
        if self.norm == "batch":
            maps = nn.BatchNorm(not train, momentum=0.9, epsilon=1e-5, name="norm")(maps)
        elif self.norm == "instance":
            mean = jnp.mean(maps, axis=(1, 2), keepdims=True)
            away = maps - mean
            variance = jnp.mean(away**2, axis=(1, 2), keepdims=True)
            maps = away * jax.lax.rsqrt(variance + 1e-5)
        return nn.leaky_relu(maps)


class GeneratorNet(nn.Module):
    """Network from histograms to filters and a bias map.

    Attributes:
      settings: its size.
    """

    settings: GeneratorSettings

    @nn.compact
    def __call__(
        self,
        histograms: Float[Array, "n b b 2"],
        others: Float[Array, "n k b b 2"] | None = None,
        fingerprint: Float[Array, "n f f 2"] | None = None,
        train: bool = False,
    ) -> Generated:
        """Return filters and bias maps for a batch of images.

        Args:
          histograms: histograms of each image.
          others: histograms of additional images by the same cameras; None for none.
          fingerprint: histograms of the camera's calibrated illuminants; None for none.
          train: whether batch normalization has the batch's statistics, and keeps them.
        """
        channels = self.settings.channels
        parts = [append_coordinates(histograms)[:, None]]
        if others is not None:
            parts.append(append_coordinates(others))
        images = jnp.concatenate(parts, axis=1)
        if fingerprint is not None:
            embedded = self._embed(fingerprint, train)[:, None, None, None]
            shape = (*images.shape[:-1], embedded.shape[-1])
            images = jnp.concatenate([images, jnp.broadcast_to(embedded, shape)], axis=-1)
        skipped = []
        for level, width in enumerate(channels):
            norm = "" if level % 2 else "batch"
            maps = self._apply(Block, f"encoder{level}", images, train, width, width, norm)
            skipped.append(maps[:, 0])
            images = max_pool_2x2(maps)
            if others is None:
                latent = images[:, 0]
                continue
            pooled = max_over_axis(images, 1)
            latent = pooled
            if level + 1 < len(channels):
                repeated = jnp.broadcast_to(pooled[:, None], images.shape)
                both = jnp.concatenate([images, repeated], axis=-1)
                images = nn.leaky_relu(self._apply(Merge, f"merge{level}", both, train, width))
        latent = Block(channels[-1], channels[-1], name="bottleneck")(latent, train)
        filters = self._decode("filters", latent, skipped, 2, train)
        return Generated(filters, self._decode("bias", latent, skipped, 1, train)[..., 0])

    def _apply(
        self,
        kind: type[nn.Module],
        name: str,
        images: Float[Array, "n k h w c"],
        train: bool,
        *size,
    ) -> Float[Array, "n k h2 w2 f"]:
        """Apply one module to the first image and another, or one each, to the others."""
        outputs = [kind(*size, name=f"{name}_own")(images[:, 0], train)[:, None]]
        count = images.shape[1] - 1
        if count and self.settings.separate:
            outputs += [
                kind(*size, name=f"{name}_other{position}")(images[:, position + 1], train)[:, None]
                for position in range(count)
            ]
        elif count:
            flat = images[:, 1:].reshape(-1, *images.shape[2:])
            maps = kind(*size, name=f"{name}_others")(flat, train)
            outputs.append(maps.reshape(-1, count, *maps.shape[1:]))
        return jnp.concatenate(outputs, axis=1)

    def _embed(
        self, fingerprint: Float[Array, "n f f 2"], train: bool
    ) -> Float[Array, "n features"]:
        maps = fingerprint
        for level, width in enumerate(self.settings.fingerprint):
            maps = Block(width, width, "batch", name=f"fingerprint{level}")(maps, train)
            maps = max_pool_2x2(maps[:, None])[:, 0]
        flat = maps.reshape(len(maps), -1)
        hidden = nn.leaky_relu(nn.Dense(flat.shape[1] // 2, name="fingerprint_hidden")(flat))
        return nn.Dense(self.settings.features, name="fingerprint_features")(hidden)

    def _decode(
        self, name: str, latent: Array, skipped: list[Array], outputs: int, train: bool
    ) -> Float[Array, "n b b outputs"]:
        channels = self.settings.channels
        for level in reversed(range(len(channels))):
            both = jnp.concatenate([skipped[level], upsample_2x(latent)], axis=-1)
            width = channels[level - 1] if level else channels[0] // 2
            block = Block(channels[level], width, "instance", name=f"{name}{level}")
            latent = block(both, train)
        return PaddedConvolution(outputs, name=f"{name}_last")(latent)


class Merge(nn.Module):
    """Convolution of 1x1 with a bias, initialized as by He et al.

    Attributes:
      features: output channels.
    """

    features: int

    @nn.compact
    def __call__(self, inputs: Float[Array, "n h w c"], train: bool) -> Float[Array, "n h w f"]:
        """Return the mixed channels; `train` has no effect."""
        return nn.Dense(self.features, kernel_init=HE_NORMAL, name="mixed")(inputs)


def append_coordinates(histograms: Float[Array, "*n b b 2"]) -> Float[Array, "*n b b 4"]:
    """Concatenate each bin's u and v, from 0 to 1, as channels."""
    line = jnp.linspace(0, 1, histograms.shape[-2])
    u, v = jnp.meshgrid(line, line[::-1])
    positions = jnp.stack([u, v], axis=-1)
    return jnp.concatenate([histograms, jnp.broadcast_to(positions, histograms.shape)], axis=-1)


def max_pool_2x2(maps: Float[Array, "n k h w c"]) -> Float[Array, "n k h2 w2 c"]:
    """Return the maximum of each 2x2 block."""
    *batch, height, width, channels = maps.shape
    blocks = maps.reshape(*batch, height // 2, 2, width // 2, 2, channels)
    return max_over_axis(max_over_axis(blocks, -4), -2)


def max_over_axis(maps: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
    """Return the maximum over an axis.

    The gradient of `jnp.max` divides by the number of elements equal to the maximum, which is 0
    where XLA computes them again with another rounding.
    """
    parts = jnp.split(maps, maps.shape[axis], axis)
    return jnp.squeeze(reduce(jnp.maximum, parts), axis)


def upsample_2x(maps: Float[Array, "n h w c"]) -> Float[Array, "n h2 w2 c"]:
    """Enlarge both sides by 2 with bilinear interpolation between the aligned corners."""
    for axis in (1, 2):
        matrix = _interpolation(maps.shape[axis])
        maps = jnp.moveaxis(jnp.tensordot(matrix, maps, axes=(1, axis)), 0, axis)
    return maps


def _interpolation(side: int) -> Float[np.ndarray, "double side"]:
    """Return the weights of a line's points for a line of twice as many."""
    positions = np.linspace(0, side - 1, 2 * side)[:, None]
    return np.maximum(0, 1 - np.abs(positions - np.arange(side))).astype(np.float32)


def filtered_illuminant(
    generated: Generated, histograms: Float[Array, "b b 2"], window: ChromaWindow
) -> Float[Array, "3"]:
    """Return the unit illuminant of one image by its filters and bias map (C5's equations 4 to 6).

    The convolution is circular.

    Args:
      generated: filters `[b, b, 2]` and bias map `[b, b]`.
      histograms: histograms of the image.
      window: range and number of bins.
    """
    axes = (0, 1)
    spectrum = jnp.fft.rfft2(histograms, axes=axes) * jnp.fft.rfft2(generated.filters, axes=axes)
    filtered = jnp.fft.irfft2(jnp.sum(spectrum, axis=-1), generated.bias.shape)
    return located_illuminant(filtered + generated.bias, window)


def roughness(maps: Float[Array, "n b b"]) -> Float[Array, ""]:
    """Return the mean squared responses of both Sobel filters, summed (C5's equation 8)."""
    smooth = maps[..., :-2] + 2 * maps[..., 1:-1] + maps[..., 2:]
    down = smooth[..., :-2, :] - smooth[..., 2:, :]
    smooth = maps[..., :-2, :] + 2 * maps[..., 1:-1, :] + maps[..., 2:, :]
    across = smooth[..., :-2] - smooth[..., 2:]
    return jnp.mean(down**2) + jnp.mean(across**2)
