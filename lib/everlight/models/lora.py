"""Low-rank adaptation (LoRA; Hu et al. 2022, ICLR, arXiv 2106.09685) of given weights.

    W = W₀ + s A B,   A [i, r] drawn, B [r, o] 0 at first,   s = α / r

W₀ is the frozen kernel as a matrix [i, o]; i is the product of its first axes, so that A of a
convolution is one of r channels and B one of a single tap. The network begins as the given one.
The paper writes B A for kernels of transposed matrices.

Equal to the official code (microsoft/LoRA, `loralib/layers.py`) at the adapted weights of a linear
layer and the distribution of A, uniform in ±1 / √i; differs in:

- A convolution has rank r over all of its taps, there r per side of the kernel.
- There is no dropout before A.
- Biases of given layers stay frozen, there an option trains them.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict
from jaxtyping import PRNGKeyArray, PyTree

from everlight.base import Outputs, Setup
from everlight.checks import PositiveFloat, PositiveInt, checked
from everlight.models.heads import uniform_weights


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
        layers is named lora.
    """
    given = flatten_dict(dict(layers))
    adapted = [
        path for path, leaf in given.items() if jnp.ndim(leaf) > 1 and set(path) & set(kernels)
    ]
    unknown = [name for name in kernels if not any(name in path for path in adapted)]
    if unknown or not kernels:
        raise ValueError(
            f"no kernel of the layers {', '.join(layers)} belongs to "
            f"{', '.join(unknown) or 'no name'}; name layers that have kernels"
        )
    if setup.trainable is not None:
        raise ValueError("setup has frozen parameters; set trainable of what with_lora returns")

    def init(key: PRNGKeyArray) -> tuple[PyTree, PyTree]:
        key_network, key_additions = jax.random.split(key)
        params, batch_stats = setup.init(key_network)
        if "lora" in params:
            raise ValueError("a layer of the network is named lora; give it another name")
        keys = jax.random.split(key_additions, len(adapted))
        additions = {}
        for own, path in zip(keys, adapted, strict=True):
            outputs = given[path].shape[-1]
            inputs = given[path].size // outputs
            a = uniform_weights(own, (inputs, rank), given[path].dtype)
            b = jnp.zeros((rank, outputs), given[path].dtype)
            additions |= {(*path, "a"): a, (*path, "b"): b}
        trained = {name: layer for name, layer in params.items() if name not in layers}
        return {**trained, "lora": unflatten_dict(additions)}, batch_stats

    def merged(params: PyTree) -> PyTree:
        trained = {name: layer for name, layer in params.items() if name != "lora"}
        additions, whole = flatten_dict(params["lora"]), dict(given)
        for path in adapted:
            change = scale * additions[*path, "a"] @ additions[*path, "b"]
            whole[path] = given[path] + change.reshape(given[path].shape)
        return {**trained, **unflatten_dict(whole)}

    def apply(params: PyTree, *others: PyTree) -> tuple[Outputs, PyTree]:
        return setup.apply(merged(params), *others)

    def measure(params: PyTree, outputs: Outputs) -> PyTree:
        return setup.measure(merged(params), outputs)

    return setup._replace(
        init=init,
        apply=apply,
        layer_inputs=None,
        measure=None if setup.measure is None else measure,
    )
