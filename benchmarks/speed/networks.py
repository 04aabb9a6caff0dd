"""A ResNet-18 of linen, NNX, Equinox and PyTorch beside everlight's, trained on one task of noise.

The slim one of 20 filters takes batches of 20 as one pass with replay does, the one of 64 filters
batches of 64. The frameworks' convolutions and batch norms are written as their users would. In JAX
every contestant is one compiled program of all steps.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array

from benchmarks.speed.sequences import noise_images
from benchmarks.speed.timing import HAS_TORCH, Case, Machine
from everlight.continual import (
    Outputs,
    Protocol,
    Run,
    StoredImages,
    naive,
    network_setup,
    run_sequence,
    softmax_objective,
)
from everlight.models import ResNet18
from everlight.scenarios import class_incremental

CLASSES, RATE = 10, 0.03


class Sizes(NamedTuple):
    """Filters of the first stage, images of a batch, steps and pixels of a side."""

    filters: int
    batch: int
    steps: int
    side: int = 32


SIZES = (Sizes(20, 20, 20), Sizes(64, 64, 5))
LEAST = (Sizes(2, 10, 2, 8),)


class Block(NamedTuple):
    """Channels and stride of a basic block."""

    before: int
    width: int
    stride: int


def blocks_of(filters: int) -> list[Block]:
    """Return ResNet-18's eight blocks."""
    widths = [filters * 2**stage for stage in range(4) for _ in range(2)]
    strides = (1, 1, 2, 1, 2, 1, 2, 1)
    return [Block(*block) for block in zip([filters, *widths], widths, strides, strict=False)]


def networks(machine: Machine, small: bool) -> list[Case]:
    """Return the training steps of both sizes; the floor is that of the convolutions."""
    return [_case(machine, sizes) for sizes in (LEAST if small else SIZES)]


def _case(machine: Machine, sizes: Sizes) -> Case:
    labels = np.resize(np.arange(CLASSES), sizes.batch * sizes.steps)
    stored = noise_images(len(labels) + CLASSES, sizes.side)
    filters = sizes.filters
    nets = {
        "everlight": ResNet18(CLASSES, filters),
        "linen": LinenNet(filters),
        "NNX": partial(NnxNet, filters),
        "Equinox": lambda key: eqx.nn.make_with_state(EquinoxNet)(filters, key),
    }
    contestants = {
        name: partial(jax_training(net, sizes, labels), stored) for name, net in nets.items()
    }
    if HAS_TORCH:
        from benchmarks.speed.torch_networks import torch_training

        contestants["PyTorch"] = torch_training(sizes, np.asarray(stored.images), labels)
    name = f"ResNet-18 of {filters} filters, {sizes.steps} steps of {sizes.batch} images"
    return Case(name, contestants, machine.floor(0, 3 * sizes.steps * _operations(sizes)), rounds=3)


def jax_training(
    net: object, sizes: Sizes, labels: np.ndarray
) -> Callable[[StoredImages], jax.Array]:
    """Return a compiled function of the images that trains once and returns the last loss."""
    tested = np.arange(CLASSES)
    sequence = class_incremental(
        labels, tested, [list(range(CLASSES))], CLASSES, 0.0, test_offset=len(labels)
    )
    protocol = Protocol(epochs=1, batch_size=sizes.batch, select="last")

    def build(stored: StoredImages):
        setup = network_setup(net, stored, softmax_objective(), optax.sgd(RATE))
        return setup, naive(setup)

    @jax.jit
    def train(stored: StoredImages) -> jax.Array:
        return run_sequence(Run(build, protocol, stored, sequence, jax.random.key(0))).losses

    return train


def _operations(sizes: Sizes) -> float:
    """Return the floating-point operations of one batch forward."""
    side, total = sizes.side, 3 * 9 * sizes.filters * sizes.side**2
    for before, width, stride in blocks_of(sizes.filters):
        side = -(-side // stride)
        shortcut = before * width if before != width else 0
        total += side**2 * (9 * before * width + 9 * width**2 + shortcut)
    return 2.0 * sizes.batch * total


class LinenNet(nn.Module):
    """Flax linen, as its users write it."""

    filters: int

    @nn.compact
    def __call__(self, images: Array, train: bool) -> Outputs:
        """Return logits and features."""

        def normalized(inputs: Array, width: int, size: int = 3, stride: int = 1) -> Array:
            padding = [(size // 2, size // 2)] * 2
            convolution = nn.Conv(width, (size, size), stride, padding, use_bias=False)
            return nn.BatchNorm(not train, momentum=0.9)(convolution(inputs))

        hidden = nn.relu(normalized(images, self.filters))
        for before, width, stride in blocks_of(self.filters):
            inner = nn.relu(normalized(hidden, width, 3, stride))
            shortcut = hidden if before == width else normalized(hidden, width, 1, stride)
            hidden = nn.relu(normalized(inner, width) + shortcut)
        features = hidden.mean((1, 2))
        return Outputs(nn.Dense(CLASSES, name="head")(features), features)


class NnxConvolution(nnx.Module):
    """Convolution and batch norm of Flax NNX."""

    def __init__(self, before: int, width: int, size: int, stride: int, rngs: nnx.Rngs):
        padding = [(size // 2, size // 2)] * 2
        self.convolution = nnx.Conv(
            before, width, (size, size), stride, padding=padding, use_bias=False, rngs=rngs
        )
        self.norm = nnx.BatchNorm(width, momentum=0.9, rngs=rngs)

    def __call__(self, images: Array) -> Array:
        """Return the normalized maps."""
        return self.norm(self.convolution(images))


class NnxBlock(nnx.Module):
    """Basic block of Flax NNX."""

    def __init__(self, block: Block, rngs: nnx.Rngs):
        before, width, stride = block
        self.first = NnxConvolution(before, width, 3, stride, rngs)
        self.second = NnxConvolution(width, width, 3, 1, rngs)
        changes = before != width
        self.shortcut = NnxConvolution(before, width, 1, stride, rngs) if changes else None

    def __call__(self, images: Array) -> Array:
        """Return the block's maps after their ReLU."""
        inner = self.second(nnx.relu(self.first(images)))
        return nnx.relu(inner + (self.shortcut(images) if self.shortcut else images))


class NnxNet(nnx.Module):
    """Flax NNX, as its users write it."""

    def __init__(self, filters: int, rngs: nnx.Rngs):
        self.stem = NnxConvolution(3, filters, 3, 1, rngs)
        self.blocks = nnx.List([NnxBlock(block, rngs) for block in blocks_of(filters)])
        self.head = nnx.Linear(8 * filters, CLASSES, rngs=rngs)

    def __call__(self, images: Array) -> Outputs:
        """Return logits and features."""
        hidden = nnx.relu(self.stem(images))
        for block in self.blocks:
            hidden = block(hidden)
        features = hidden.mean((1, 2))
        return Outputs(self.head(features), features)


class EquinoxConvolution(eqx.Module):
    """Convolution and batch norm of Equinox, for one image of channels first."""

    convolution: eqx.nn.Conv2d
    norm: eqx.nn.BatchNorm

    def __init__(self, before: int, width: int, size: int, stride: int, key: Array):
        self.convolution = eqx.nn.Conv2d(
            before, width, size, stride, size // 2, use_bias=False, key=key
        )
        self.norm = eqx.nn.BatchNorm(width, axis_name="batch", mode="batch")

    def __call__(self, image: Array, state: eqx.nn.State) -> tuple[Array, eqx.nn.State]:
        """Return the normalized maps and the state."""
        return self.norm(self.convolution(image), state)


class EquinoxBlock(eqx.Module):
    """Basic block of Equinox."""

    first: EquinoxConvolution
    second: EquinoxConvolution
    shortcut: EquinoxConvolution | None

    def __init__(self, block: Block, key: Array):
        before, width, stride = block
        keys = jax.random.split(key, 3)
        self.first = EquinoxConvolution(before, width, 3, stride, keys[0])
        self.second = EquinoxConvolution(width, width, 3, 1, keys[1])
        changes = before != width
        self.shortcut = EquinoxConvolution(before, width, 1, stride, keys[2]) if changes else None

    def __call__(self, image: Array, state: eqx.nn.State) -> tuple[Array, eqx.nn.State]:
        """Return the block's maps after their ReLU, and the state."""
        inner, state = self.first(image, state)
        inner, state = self.second(jax.nn.relu(inner), state)
        if self.shortcut is not None:
            image, state = self.shortcut(image, state)
        return jax.nn.relu(inner + image), state


class EquinoxNet(eqx.Module):
    """Equinox, as its users write it."""

    stem: EquinoxConvolution
    blocks: list[EquinoxBlock]
    head: eqx.nn.Linear

    def __init__(self, filters: int, key: Array):
        first, last, *keys = jax.random.split(key, 10)
        self.stem = EquinoxConvolution(3, filters, 3, 1, first)
        blocks = zip(blocks_of(filters), keys, strict=True)
        self.blocks = [EquinoxBlock(block, block_key) for block, block_key in blocks]
        self.head = eqx.nn.Linear(8 * filters, CLASSES, key=last)

    def __call__(self, image: Array, state: eqx.nn.State) -> tuple[Outputs, eqx.nn.State]:
        """Return logits and features of one image `[h, w, c]`, and the state."""
        hidden, state = self.stem(jnp.moveaxis(image, -1, 0), state)
        hidden = jax.nn.relu(hidden)
        for block in self.blocks:
            hidden, state = block(hidden, state)
        features = hidden.mean((1, 2))
        return Outputs(self.head(features), features), state
