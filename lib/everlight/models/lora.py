"""Low-rank adaptation (LoRA; Hu et al. 2022, ICLR, arXiv 2106.09685) of given weights.

    W = W₀ + s A B,   A [i, r] drawn, B [r, o] 0 at first,   s = α / r

W₀ is the frozen kernel as a matrix [i, o]; i is the product of its first axes, so that A of a
convolution is one of r channels and B one of a single tap. The network begins as the given one.
The paper writes B A for kernels of transposed matrices.

Equal to the official code (microsoft/LoRA, `loralib/layers.py`) at the adapted weights of a linear
layer and the distribution of A, uniform in ±1 / √i; differs in:

- A convolution has rank r over all of its taps, in the official code r per side of the kernel.
- There is no dropout before A.
- Biases of given layers stay frozen, in the official code an option trains them.

`with_merged_lora` has W = W₀ + s (M + A B), where a strategy sets A and M, the sum of earlier A B,
and steps train B alone (InfLoRA).
"""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.base import Outputs, Setup
from everlight.checks import PositiveFloat, PositiveInt, checked
from everlight.errors import ArgumentError
from everlight.models.heads import uniform_weights
from everlight.models.initialization import refuse_other_layers


@checked
def with_lora(
    setup: Setup,
    layers: Mapping[str, PyTree],
    kernels: tuple[str, ...],
    rank: PositiveInt = 4,
    scale: PositiveFloat = 1.0,
) -> Setup:
    """Return the setup that trains low-rank additions to given, frozen layers.

    Its parameters are `params["lora"]`, with `a` and `b` of every adapted kernel, and the layers
    that are not given, such as the head. Any strategy trains them; those that act on the units of
    named layers (HAT, CBP, ReDo) refuse them, and GPM does for lack of `layer_inputs`. To freeze
    parameters of these too, set `trainable` of the result.

    Args:
      setup: network of any kind whose parameters are nested dictionaries.
      layers: parameters by layer, such as pretrained ones. They are constants of a program that
        closes over them; give them with the data of the run instead.
      kernels: names of layers, or of parts of them, whose kernels are adapted, such as "query" and
        "value" in all blocks.
      rank: rank r of the additions.
      scale: factor s of the additions.

    Raises:
      ValueError: no kernel has one of the names, the setup has frozen parameters, or one of its
        layers is named lora; in `init`, if the network has no such layer, or one of other shapes.
    """
    leaves = flatten_dict(dict(layers))
    adapted = [
        path for path, leaf in leaves.items() if jnp.ndim(leaf) > 1 and set(path) & set(kernels)
    ]
    unknown = [name for name in kernels if not any(name in path for path in adapted)]
    if unknown or not kernels:
        raise ArgumentError(
            f"no kernel of the layers {', '.join(layers)} belongs to "
            f"{', '.join(unknown) or 'no name'}; name layers that have kernels"
        )
    if setup.trainable is not None:
        raise ArgumentError("setup has frozen parameters; set trainable of what with_lora returns")

    def init(key: PRNGKeyArray) -> tuple[PyTree, PyTree]:
        key_network, key_additions = jax.random.split(key)
        params, batch_stats = setup.init(key_network)
        if "lora" in params:
            raise ArgumentError("a layer of the network is named lora; give it another name")
        refuse_other_layers("layers", layers, params)
        keys = jax.random.split(key_additions, len(adapted))
        additions = {}
        for kernel_key, path in zip(keys, adapted, strict=True):
            outputs = leaves[path].shape[-1]
            inputs = leaves[path].size // outputs
            a = uniform_weights(kernel_key, (inputs, rank), leaves[path].dtype)
            b = jnp.zeros((rank, outputs), leaves[path].dtype)
            additions |= {(*path, "a"): a, (*path, "b"): b}
        trained = {name: layer for name, layer in params.items() if name not in layers}
        return {**trained, "lora": unflatten_dict(additions)}, batch_stats

    def merged(params: PyTree) -> PyTree:
        trained = {name: layer for name, layer in params.items() if name != "lora"}
        return {**trained, **_add_to_kernels(layers, lora_products(params["lora"]), scale)}

    return _with_parameters(setup, merged)._replace(init=init, layer_inputs=None)


@checked
def with_merged_lora(
    setup: Setup,
    layers: Mapping[str, PyTree],
    kernels: tuple[str, ...],
    rank: PositiveInt = 4,
    scale: PositiveFloat = 1.0,
) -> Setup:
    """Return the setup of `with_lora` for strategies that merge additions into the layers.

    Its parameters have `params["merged"]` too, the sum of merged products A B by the path of the
    kernel, which is 0 at first. Of these and the additions, steps train only `b`. Its
    `layer_inputs` has the inputs of the adapted kernels. The arguments are those of `with_lora`.

    Raises:
      ValueError: as of `with_lora`, or a layer is named merged.
    """
    plain = with_lora(setup, layers, kernels, rank, scale)

    def init(key: PRNGKeyArray) -> tuple[PyTree, PyTree]:
        params, batch_stats = plain.init(key)
        if "merged" in params:
            raise ArgumentError("a layer of the network is named merged; give it another name")
        products = lora_products(params["lora"])
        return {**params, "merged": unflatten_dict(jax.tree.map(jnp.zeros_like, products))}, (
            batch_stats
        )

    def network_params(params: PyTree) -> PyTree:
        trained = {name: layer for name, layer in params.items() if name not in ("lora", "merged")}
        merged, now = flatten_dict(params["merged"]), lora_products(params["lora"])
        sums = {path: merged[path] + now[path] for path in merged}
        return {**trained, **_add_to_kernels(layers, sums, scale)}

    def layer_inputs(
        params: PyTree, batch_stats: PyTree, inputs: Float[Array, "b *shape"]
    ) -> dict[tuple[str, ...], Float[Array, "b p i"]]:
        by_path = setup.layer_inputs(network_params(params), batch_stats, inputs)
        return {path: by_path[path] for path in flatten_dict(params["merged"])}

    def trainable(params: PyTree) -> PyTree:
        trained = flatten_dict(jax.tree.map(lambda _: True, params))
        return unflatten_dict(
            {
                path: path[0] != "merged" and (path[0] != "lora" or path[-1] != "a")
                for path in trained
            }
        )

    return _with_parameters(setup, network_params)._replace(
        init=init,
        trainable=trainable,
        layer_inputs=None if setup.layer_inputs is None else layer_inputs,
    )


def _with_parameters(setup: Setup, network_params: Callable[[PyTree], PyTree]) -> Setup:
    """Return the setup whose network has parameters that a function makes of the trained ones."""

    def apply(params: PyTree, *others: PyTree) -> tuple[Outputs, PyTree]:
        return setup.apply(network_params(params), *others)

    def measure(params: PyTree, outputs: Outputs) -> PyTree:
        return setup.measure(network_params(params), outputs)

    return setup._replace(
        apply=apply, measure=None if setup.measure is None else measure, split_at=None
    )


def lora_products(additions: PyTree) -> dict[tuple[str, ...], Float[Array, "i o"]]:
    """Return the products A B of low-rank additions by the path of the kernel."""
    factors = flatten_dict(additions)
    pairs = sorted({path[:-1] for path in factors})
    return {path: factors[*path, "a"] @ factors[*path, "b"] for path in pairs}


def _add_to_kernels(
    layers: Mapping[str, PyTree],
    changes: Mapping[tuple[str, ...], Float[Array, "i o"]],
    scale: float,
) -> dict[str, PyTree]:
    """Return layers whose kernels have multiples of these matrices added."""
    flat = flatten_dict(dict(layers))
    for path, change in changes.items():
        flat[path] = flat[path] + (scale * change).reshape(flat[path].shape)
    return unflatten_dict(flat)
