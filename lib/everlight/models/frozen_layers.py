"""A frozen transformer with a trained part beside its layers, such as prompts or adapters."""

from collections.abc import Callable, Mapping

import jax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.base import Outputs, Setup
from everlight.errors import ArgumentError
from everlight.models.initialization import refuse_other_layers

Forward = Callable[[PyTree, PyTree, Float[Array, "b h w c"], bool, PRNGKeyArray | None], Outputs]
"""Function from the network's variables, the part, inputs, `train` and the key to the outputs."""


def with_trained_part(
    setup: Setup,
    layers: Mapping[str, PyTree],
    part: str,
    init_part: Callable[[PRNGKeyArray], PyTree],
    forward: Forward,
) -> Setup:
    """Return the setup whose parameters are the part and the layers that are not given.

    Args:
      setup: setup of the network.
      layers: parameters by layer, which are frozen.
      part: name of the part among the parameters.
      init_part: function that returns the part's first parameters.
      forward: pass of the network with the part.

    Raises:
      ValueError: the setup has frozen parameters; in `init`, if the network has no such layer, or
        one of other shapes.
    """
    if setup.trainable is not None:
        raise ArgumentError(
            f"setup has frozen parameters; set trainable of the setup that trains {part}"
        )

    def init(key: PRNGKeyArray) -> tuple[PyTree, PyTree]:
        key_network, key_part = jax.random.split(key)
        params, batch_stats = setup.init(key_network)
        refuse_other_layers("layers", layers, params)
        trained = {name: layer for name, layer in params.items() if name not in layers}
        return {**trained, part: init_part(key_part)}, batch_stats

    def network_params(params: PyTree) -> PyTree:
        return {**{name: layer for name, layer in params.items() if name != part}, **layers}

    def apply(
        params: PyTree,
        batch_stats: PyTree,
        inputs: Float[Array, "b h w c"],
        train: bool,
        key: PRNGKeyArray | None,
    ) -> tuple[Outputs, PyTree]:
        variables = {"params": network_params(params)}
        return forward(variables, params[part], inputs, train, key), batch_stats

    def measure(params: PyTree, outputs: Outputs) -> PyTree:
        return setup.measure(network_params(params), outputs)

    return setup._replace(
        init=init,
        apply=apply,
        layer_inputs=None,
        measure=None if setup.measure is None else measure,
        split_at=None,
    )
