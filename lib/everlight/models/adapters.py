"""Adapters of a frozen vision transformer, parallel to the MLP of every block.

    x ← x + MLP(norm(x)) + s (relu(x D + d) U + u),   D [w, r] drawn, U, d and u 0 at first

AdaptFormer (Chen et al. 2022, NeurIPS, arXiv 2205.13535); r is the bottleneck. The network begins
as the given one. In training a share of the r hidden values is dropped.

Equal to LAMDA-CL/LAMDA-PILOT (`backbone/vit_ease.py`) at an adapter of given parameters and at the
distribution of D, uniform in ±1 / √w. The first d is 0, and dropped values are drawn from the key
of the step.
"""

from collections.abc import Callable, Mapping
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.base import Outputs, Setup
from everlight.checks import PositiveFloat, PositiveInt, UnitInterval, checked
from everlight.errors import ArgumentError
from everlight.models.frozen_layers import with_trained_part
from everlight.models.heads import uniform_weights
from everlight.models.vit import VisionTransformer


@checked
def with_adapters(
    setup: Setup,
    net: VisionTransformer,
    layers: Mapping[str, PyTree],
    bottleneck: PositiveInt = 64,
    scale: PositiveFloat = 0.1,
    dropout: UnitInterval = 0.1,
) -> Setup:
    """Return the setup that trains an adapter per block of a frozen transformer.

    Its parameters are `params["adapters"]`, by the block's name, and the layers that are not given,
    such as the head. Any strategy trains them.

    Args:
      setup: setup of the transformer.
      net: the transformer.
      layers: parameters by layer, such as pretrained ones. They are constants of a program that
        closes over them; give them with the data of the run instead.
      bottleneck: hidden values r of an adapter.
      scale: factor s of the adapters' outputs.
      dropout: share of hidden values that are dropped in training, below 1.

    Raises:
      ValueError: the setup has frozen parameters; set `trainable` of the result instead. Or
        `dropout` is 1.
    """
    if dropout == 1:
        raise ArgumentError("dropout is 1.0, which drops every hidden value; give a share below 1")

    def init(key: PRNGKeyArray) -> PyTree:
        keys = jax.random.split(key, net.depth)
        return {
            f"block{number}": {
                "down": {
                    "kernel": uniform_weights(block_key, (net.width, bottleneck)),
                    "bias": jnp.zeros(bottleneck),
                },
                "up": {
                    "kernel": jnp.zeros((bottleneck, net.width)),
                    "bias": jnp.zeros(net.width),
                },
            }
            for number, block_key in enumerate(keys)
        }

    def forward(
        variables: PyTree,
        adapters: PyTree,
        inputs: Float[Array, "b h w c"],
        train: bool,
        key: PRNGKeyArray | None,
    ) -> Outputs:
        drops = train and key is not None and dropout > 0
        keys = jax.random.split(key, len(adapters)) if drops else [None] * len(adapters)
        parallel: dict[str, Callable[[Array], Array]] = {
            name: partial(adapter_output, adapters[name], scale, dropout, block_key)
            for name, block_key in zip(sorted(adapters), keys, strict=True)
        }
        return net.apply(variables, inputs, train, parallel=parallel)

    return with_trained_part(setup, layers, "adapters", init, forward)


def adapter_output(
    adapter: PyTree,
    scale: float,
    dropout: float,
    key: PRNGKeyArray | None,
    tokens: Float[Array, "b t w"],
) -> Float[Array, "b t w"]:
    """Return an adapter's output.

    Args:
      adapter: its two layers, down and up.
      scale: factor of the output.
      dropout: share of hidden values that are dropped.
      key: random key of the dropped values; None drops none.
      tokens: the block's tokens after its attention.
    """
    down, up = (
        jax.tree.map(lambda leaf: leaf.astype(tokens.dtype), adapter[name])
        for name in ("down", "up")
    )
    hidden = jax.nn.relu(tokens @ down["kernel"] + down["bias"])
    if key is not None:
        mask = jax.random.bernoulli(key, 1 - dropout, hidden.shape)
        hidden = jnp.where(mask, hidden / (1 - dropout), 0).astype(tokens.dtype)
    return scale * (hidden @ up["kernel"] + up["bias"])
