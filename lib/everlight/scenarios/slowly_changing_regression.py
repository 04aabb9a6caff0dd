"""Slowly changing regression, or bit flipping (Dohare et al. 2024, Nature 632).

Inputs are m bits. The first f of them, the slow ones, stay during a task; the others are drawn for
every sample. Before a task, one slow bit is chosen and flipped. The target is the output of a fixed
network of n linear threshold units with weights of ±1:

    y = Σ_i v_i [w_i · x + b_i > θ_i] + c,   θ_i = β (m + 1) − S_i,   S_i = (m − Σ_j w_ij + b_i) / 2

A learner with few units cannot represent it, so it tracks the part of the inputs that it sees, and
has to learn again in every task. The paper has m = 20, f = 15, n = 100, β = 0.7, tasks of 10,000
samples, and a learner of five hidden units that takes one sample per step.

An input is stored as its number, whose binary digits are the bits, the lowest one first.

Equal to the official code (shibhansh/loss-of-plasticity, `slowly_changing_regression.py` with
`flip_one`, `fix_ltu_net.py`) at targets and inputs. Without `flip_one`, its default, that code
redraws all slow bits for every task (`flips="all"`).
"""

from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from everlight.base import Samples
from everlight.checks import Between, NotEmpty, PositiveFloat, PositiveInt, checked
from everlight.errors import ArgumentError
from everlight.precision import matrix_product


class TargetNetwork(NamedTuple):
    """Fixed network of linear threshold units; all weights are 1 or -1."""

    weights: Float[Array, "m n"]
    bias: Float[Array, "n"]
    outputs: Float[Array, "n"]
    offset: Float[Array, ""]
    beta: float = 0.7
    """Factor β of the thresholds: the greater, the fewer units respond."""


@checked
def draw_target_network(
    key: PRNGKeyArray, inputs: PositiveInt = 20, units: PositiveInt = 100, beta: PositiveFloat = 0.7
) -> TargetNetwork:
    """Return a target network with random weights.

    Args:
      key: random key.
      inputs: number m of bits.
      units: number n of threshold units.
      beta: factor β of the thresholds.
    """
    keys = jax.random.split(key, 4)
    shapes = ((inputs, units), (units,), (units,), ())
    drawn = (
        jax.random.rademacher(weight_key, shape, jnp.float32)
        for weight_key, shape in zip(keys, shapes, strict=True)
    )
    return TargetNetwork(*drawn, beta)


@checked
def target_values(
    network: TargetNetwork, inputs: Annotated[Float[Array, "b m"], Between(0, 1), NotEmpty]
) -> Float[Array, "b"]:
    """Return the target of each input.

    Args:
      network: target network.
      inputs: bits, 0 or 1, `[b, m]`.
    """
    size = inputs.shape[1]
    # Sums of up to m + 1 signs and bits, exact in any precision that holds whole numbers.
    negative = (size - jnp.sum(network.weights, axis=0) + network.bias) / 2
    threshold = network.beta * (size + 1) - negative
    drive = matrix_product(inputs, network.weights) + network.bias
    responds = (drive > threshold).astype(jnp.float32)
    return matrix_product(responds, network.outputs) + network.offset


@checked
def change_slow_bits(
    bits: Bool[Array, "f"], key: PRNGKeyArray, flips: Literal["one", "all"] = "one"
) -> Bool[Array, "f"]:
    """Return the slow bits of the next task.

    Args:
      bits: slow bits of a task, `[f]`.
      key: random key.
      flips: "one" flips a random one of them, "all" redraws all.
    """
    if flips == "all":
        return jax.random.bernoulli(key, shape=bits.shape)
    return bits ^ (jnp.arange(bits.shape[0]) == jax.random.randint(key, (), 0, bits.shape[0]))


@checked
def draw_numbers(
    bits: Annotated[Bool[Array, "f"], NotEmpty],
    count: PositiveInt,
    inputs: PositiveInt,
    key: PRNGKeyArray,
) -> Int[Array, "b"]:
    """Return the numbers of random inputs of a task.

    Args:
      bits: slow bits of the task, `[f]`.
      count: number b of inputs.
      inputs: number m of bits, at most 31.
      key: random key.

    Raises:
      ValueError: m is below f or above 31.
    """
    slow = bits.shape[0]
    if not slow <= inputs <= 31:
        raise ArgumentError(f"inputs is {inputs}; give {slow} (the slow bits) to 31")
    fast = jax.random.randint(key, (count,), 0, 2 ** (inputs - slow), jnp.int32)
    return (fast << slow) + jnp.sum(bits.astype(jnp.int32) << jnp.arange(slow, dtype=jnp.int32))


@checked
def binary_digits(
    numbers: Annotated[Int[Array, "b"], Between(0)], inputs: PositiveInt = 20
) -> Float[Array, "b m"]:
    """Return the binary digits of numbers, 0 or 1, the lowest one first.

    Args:
      numbers: numbers of inputs, `[b]`.
      inputs: number m of bits.
    """
    return ((numbers[:, None] >> jnp.arange(inputs, dtype=numbers.dtype)) & 1).astype(jnp.float32)


@checked
def draw_samples(
    bits: Annotated[Bool[Array, "f"], NotEmpty],
    count: PositiveInt,
    inputs: PositiveInt,
    key: PRNGKeyArray,
) -> Samples:
    """Return random samples of a task, whose index and label are the number of the input.

    Args:
      bits: slow bits of the task, `[f]`.
      count: number of samples.
      inputs: number m of bits, at most 31.
      key: random key.
    """
    numbers = draw_numbers(bits, count, inputs, key)
    return Samples(numbers, numbers[:, None], jnp.ones(count, bool))
