"""Batch norm and ReLU in a form that XLA for CPU computes once, and not once for every use."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

EPSILON = 1e-5
MOMENTUM = 0.9


def relu(inputs: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """The positive part; its slope at 0 is 0, and NaN stays NaN.

    XLA for CPU stores a choice between arrays that a convolution or a sum reads. A maximum it
    recomputes for every reader, with all that was added up since the beginning of the residual
    stage: a training step of ResNet-32 took 1.6 times as long (BUILD_NOTES.md).
    """
    return jnp.where(inputs <= 0, 0, inputs)


class BatchNorm(nn.Module):
    """Batch norm over all axes but the last (Ioffe and Szegedy 2015), as PyTorch keeps it.

    In training the batch's mean and population variance normalise, and the running statistics move
    by a tenth towards the mean and the sample variance (divisor n - 1); in evaluation the running
    ones normalise. The statistics carry no gradient, and there is no forward-mode derivative.
    Inputs of fewer bits are normalised in float32, and given back as they came.
    """

    @nn.compact
    def __call__(self, inputs: Float[Array, "*b c"], train: bool) -> Float[Array, "*b c"]:
        """The normalised inputs, times the learnt scale, plus the learnt bias."""
        channels = inputs.shape[-1]
        scale = self.param("scale", nn.initializers.ones, (channels,))
        bias = self.param("bias", nn.initializers.zeros, (channels,))
        mean = self.variable("batch_stats", "mean", jnp.zeros, channels)
        variance = self.variable("batch_stats", "var", jnp.ones, channels)
        if not train:
            wide = (inputs - mean.value) * (scale * _inverse(variance.value)) + bias
            return wide.astype(inputs.dtype)
        outputs, of_batch = normalize(inputs, scale, bias)
        if not self.is_initializing():
            count = inputs.size // channels
            sample_variance = of_batch[1] * (count / max(count - 1, 1))
            mean.value = MOMENTUM * mean.value + (1 - MOMENTUM) * of_batch[0]
            variance.value = MOMENTUM * variance.value + (1 - MOMENTUM) * sample_variance
        return outputs


@jax.custom_vjp
def normalize(
    inputs: Float[Array, "*b c"], scale: Float[Array, "c"], bias: Float[Array, "c"]
) -> tuple[Float[Array, "*b c"], tuple[Float[Array, "c"], Float[Array, "c"]]]:
    """Inputs normalised by their own mean and variance a channel, and those two (no gradient)."""
    return _forward(inputs, scale, bias)[0]


def _forward(inputs: Array, scale: Array, bias: Array) -> tuple:
    axes = tuple(range(inputs.ndim - 1))
    mean = jnp.mean(inputs, axes, dtype=scale.dtype)
    # Two passes: the mean of squares less the mean's square loses digits and saves no time.
    variance = jnp.mean((inputs - mean) ** 2, axes)
    inverse = _inverse(variance)
    outputs = ((inputs - mean) * (scale * inverse) + bias).astype(inputs.dtype)
    return (outputs, (mean, variance)), (inputs, scale, mean, inverse)


def _backward(saved: tuple, gradients: tuple) -> tuple[Array, Array, Array]:
    inputs, scale, mean, inverse = saved
    gradient, _ = gradients
    axes = tuple(range(inputs.ndim - 1))
    of_bias = jnp.sum(gradient, axes, dtype=scale.dtype)
    product = gradient.astype(scale.dtype) * inputs
    of_scale = (jnp.sum(product, axes) - mean * of_bias) * inverse
    # scale * inverse * (gradient - mean of it - unit inputs * their mean product with it), with
    # all that is per channel gathered into three factors: one pass over two arrays.
    count = inputs.size // inputs.shape[-1]
    of_gradient = scale * inverse
    of_inputs = -of_gradient * inverse * of_scale / count
    constant = -of_gradient * of_bias / count - of_inputs * mean
    wide = of_gradient * gradient + (of_inputs * inputs + constant)
    return wide.astype(inputs.dtype), of_scale, of_bias


def _inverse(variance: Array) -> Array:
    return jax.lax.rsqrt(variance + EPSILON)


normalize.defvjp(_forward, _backward)
