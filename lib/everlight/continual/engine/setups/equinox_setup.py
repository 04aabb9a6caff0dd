"""A `Setup` from a module of Equinox, which is an optional package (`everlight[equinox]`)."""

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.base import Objective, Outputs, Setup
from everlight.checks import checked
from everlight.continual.engine.setups.named_arrays import NamedArrays, Path, as_outputs, names_of
from everlight.continual.engine.sources import Augment, InputSource, setup_from
from everlight.errors import ArgumentError

_AXIS = "batch"
"""Name of the axis over the batch where no batch norm gives its own."""


class _Template(NamedTuple):
    """A module and its state of shapes without values, and the places of their arrays."""

    leaves: tuple
    """Leaves of the module and its state: shapes for arrays, and what is not an array itself."""
    tree: Any
    params: dict[int, Path]
    """Names of the parameters by their place among the leaves."""
    batch_stats: dict[int, Path]
    """Names of the state's arrays by their place among the leaves."""
    kernels: frozenset[int]
    """Places of weights that are stored transposed, as kernels."""
    axis: str
    """Name of the axis over the batch that batch norm takes its means over."""


@checked
def equinox_setup(
    make: Callable[[PRNGKeyArray], Any],
    source: InputSource,
    objective: Objective,
    optimizer: optax.GradientTransformation,
    augment: Augment | None = None,
) -> Setup:
    """Return the setup of an Equinox module that is called with one image, as `net(image)`.

    Its call may have an argument `key`, which gets a random key in training and None in evaluation.
    A module with state, such as batch norm's, is called as `net(image, state)` and returns its
    output and the new state. Images are vmapped over an axis with the name that the module's batch
    norms have, or "batch". Evaluation calls `equinox.nn.inference_mode(net)`.

    Parameters are floating-point arrays, in nested dictionaries by the names of attributes; entries
    of a list have their number as text. Weights of linear layers and convolutions are stored as
    kernels `[..., inputs, outputs]` with the name `kernel`, as linen has them. `layer_inputs` is
    None.

    Args:
      make: function from a random key to the module, which returns logits or `Outputs` of one
        image, or to module and state, as `equinox.nn.make_with_state` returns them. It is called
        for every new network, such as once per seed. One with given weights ignores its argument.
      source: stored or streamed images or computed inputs, which the step normalizes.
      objective: loss, scores and metrics of the outputs.
      optimizer: optimizer, reset at every task.
      augment: random function of one training image, applied before normalization.

    Raises:
      ImportError: Equinox is not installed.
      ValueError: `make` returns no Equinox module, or one with arrays that are not parameters.
    """
    template = equinox_template(make)
    eqx = import_equinox()
    params_names, stats_names = (
        NamedArrays(tuple(places.values())) for places in (template.params, template.batch_stats)
    )

    def init(key: PRNGKeyArray) -> tuple[PyTree, PyTree]:
        leaves = jax.tree.leaves(make(key))
        params = [
            _as_kernel(leaves[index]) if index in template.kernels else leaves[index]
            for index in template.params
        ]
        stats = [leaves[index] for index in template.batch_stats]
        return params_names.pack(params), stats_names.pack(stats)

    def merge(params: PyTree, batch_stats: PyTree) -> Any:
        leaves = list(template.leaves)
        for index, value in zip(template.params, params_names.unpack(params), strict=True):
            leaves[index] = _as_weight(value) if index in template.kernels else value
        for index, value in zip(template.batch_stats, stats_names.unpack(batch_stats), strict=True):
            leaves[index] = value
        return template.tree.unflatten(leaves)

    def apply(
        params: PyTree,
        batch_stats: PyTree,
        inputs: Float[Array, "b *shape"],
        train: bool,
        key: PRNGKeyArray | None,
    ) -> tuple[Outputs, PyTree]:
        merged = merge(params, batch_stats)
        net, state = merged if isinstance(merged, tuple) else (merged, None)
        net = eqx.nn.inference_mode(net, not train)
        keyed = "key" in inspect.signature(type(net).__call__).parameters
        keys = jax.random.split(key, len(inputs)) if keyed and train else None

        def call(image: Float[Array, "*shape"], key: PRNGKeyArray | None) -> tuple:
            options = {"key": key} if keyed else {}
            return (net(image, **options), 0) if state is None else net(image, state, **options)

        # The state is the same for all images, since batch norm takes its means over their axis.
        over_images = jax.vmap(
            call, (0, None if keys is None else 0), (0, None), axis_name=template.axis
        )
        returned, after = over_images(inputs, keys)
        if not train or state is None:
            return as_outputs(returned), batch_stats
        leaves = jax.tree.leaves((net, after))
        return as_outputs(returned), stats_names.pack(
            [leaves[index] for index in template.batch_stats]
        )

    return setup_from(init, apply, source, objective, optimizer, augment)


def import_equinox() -> ModuleType:
    """Return the package Equinox.

    Raises:
      ImportError: Equinox is not installed.
    """
    try:
        import equinox
    except ImportError as error:
        raise ImportError(
            "Equinox is not installed; install the extra, pip install 'everlight[equinox]'"
        ) from error
    return equinox


def equinox_template(make: Callable[[PRNGKeyArray], Any]) -> _Template:
    """Return the module that a function makes, with shapes in place of arrays.

    Raises:
      ImportError: Equinox is not installed.
      ValueError: `make` returns no Equinox module, or one with arrays that are not parameters.
    """
    eqx = import_equinox()
    result = eqx.filter_eval_shape(make, jax.random.key(0))
    net, state = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    if not isinstance(net, eqx.Module) or not isinstance(state, eqx.nn.State | None):
        raise ArgumentError(
            f"the function of key returned {type(result).__name__}; give one that returns an "
            "equinox.Module, or module and state as of equinox.nn.make_with_state"
        )
    weights = _kernel_paths(eqx, net)
    flat, tree = jax.tree_util.tree_flatten_with_path(result)
    params, stats, kernels = {}, {}, set()
    for index, (path, leaf) in enumerate(flat):
        names = names_of(path if state is None else path[1:])
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            continue
        if state is not None and path[0].idx == 1:
            stats[index] = names
        elif not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise ArgumentError(
                f"the module's {'.'.join(names)} is {leaf.dtype}{list(leaf.shape)}, which cannot "
                "be trained; give floating-point arrays, or a NumPy array for a constant"
            )
        elif names in weights:
            params[index] = (*names[:-1], "kernel")
            kernels.add(index)
        else:
            params[index] = names
    leaves = tuple(leaf for _, leaf in flat)
    return _Template(leaves, tree, params, stats, frozenset(kernels), _batch_axis(eqx, net))


def _kernel_paths(eqx: ModuleType, net: Any) -> set[Path]:
    """Return the names of the weights of linear layers and convolutions."""

    def is_layer(part: Any) -> bool:
        return isinstance(part, eqx.nn.Linear | eqx.nn.Conv)

    parts = jax.tree_util.tree_flatten_with_path(net, is_leaf=is_layer)[0]
    return {(*names_of(path), "weight") for path, part in parts if is_layer(part)}


def _batch_axis(eqx: ModuleType, net: Any) -> str:
    """Return the name of the axis that the module's batch norms take their means over."""

    def is_norm(part: Any) -> bool:
        return isinstance(part, eqx.nn.BatchNorm)

    norms = [part for part in jax.tree.leaves(net, is_leaf=is_norm) if is_norm(part)]
    axes = {norm.axis_name for norm in norms} or {_AXIS}
    if len(axes) > 1 or not all(isinstance(axis, str) for axis in axes):
        raise ArgumentError(
            f"the module's batch norms have the axes {', '.join(sorted(map(str, axes)))}; give all "
            'one name, as in axis_name="batch"'
        )
    return axes.pop()


def _as_kernel(weight: Float[Array, "o i *k"]) -> Float[Array, "*k i o"]:
    """Return weights `[outputs, inputs, ...]` as a kernel, `[..., inputs, outputs]`."""
    return jnp.moveaxis(weight, (1, 0), (-2, -1))


def _as_weight(kernel: Float[Array, "*k i o"]) -> Float[Array, "o i *k"]:
    """Return a kernel, `[..., inputs, outputs]`, as weights `[outputs, inputs, ...]`."""
    return jnp.moveaxis(kernel, (-2, -1), (1, 0))
