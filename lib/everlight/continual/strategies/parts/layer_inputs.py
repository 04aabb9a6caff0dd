"""Inputs of a network's kernels, and projections onto the space that they span."""

import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Setup, Strategy, Task
from everlight.continual.engine.epochs import shuffle, take_batch
from everlight.continual.engine.evaluation import gather_inputs
from everlight.continual.engine.setups.named_arrays import Path
from everlight.errors import ArgumentError
from everlight.precision import matrix_product

NEGLIGIBLE = 1e-10
"""Share of ‖R‖² below which a direction is rounding, which is not added at any threshold."""
Projections = Mapping[Path, Float[Array, "i i"]]


def require_layer_inputs(setup: Setup, strategy: str) -> None:
    """Raise an error for a setup without `layer_inputs`, which a strategy of this name needs."""
    if setup.layer_inputs is None:
        raise ArgumentError(
            f"{strategy} needs the inputs of every layer, but the setup has no layer_inputs; "
            "make it by flax_setup"
        )


def input_widths(setup: Setup, learner: Learner, strategy: str) -> dict[Path, int]:
    """Return the number of inputs of every kernel by its path.

    Raises:
      ValueError: the inputs of a kernel are unknown, or no layer is named head.
    """
    inputs = jax.eval_shape(
        lambda: setup.layer_inputs(
            learner.params, learner.batch_stats, gather_inputs(setup, jnp.zeros(1, int), None)
        )
    )
    refuse_other_kernels(learner.params, set(inputs), strategy)
    return {path: rows.shape[-1] for path, rows in inputs.items()}


def drawn_samples(strategy: Strategy, task: Task, key: PRNGKeyArray, count: int) -> Batch:
    """Return at most `count` random samples of a task."""
    return take_batch(shuffle(strategy.epoch_data((), task), key), jnp.int32(0), count)


def input_rows(setup: Setup, learner: Learner, batch: Batch) -> dict[Path, Float[Array, "n i"]]:
    """Return what every kernel multiplies for a batch, by its path; 0 for samples of weight 0."""
    inputs = gather_inputs(setup, batch.index, None)
    layer_rows = setup.layer_inputs(learner.params, learner.batch_stats, inputs)
    return {
        path: (rows * batch.weight[:, None, None]).reshape(-1, rows.shape[-1])
        for path, rows in layer_rows.items()
    }


def product_copies(params: PyTree, per_kernel: Callable[[Path], int] = lambda path: 1) -> int:
    """Return the size of square matrices of the kernels' inputs in copies of the parameters.

    Args:
      params: parameters of the network, or their shapes.
      per_kernel: function from a kernel's path to its number of matrices `[i, i]`.

    Returns:
      The number of copies, rounded up.
    """
    leaves = flatten_dict(params)
    entries = sum(
        per_kernel(path) * math.prod(leaf.shape[:-1]) ** 2
        for path, leaf in leaves.items()
        if len(leaf.shape) > 1
    )
    return -(-entries // max(1, sum(leaf.size for leaf in leaves.values())))


def with_inputs_of(
    projection: Float[Array, "i i"], rows: Float[Array, "n i"], share: Float[Array, ""] | float
) -> Float[Array, "i i"]:
    """Return the projection with the fewest new directions that span a share of the inputs.

    Args:
      projection: projection P onto the inputs so far.
      rows: inputs of the new task; a row of zeros has no effect.
      share: least share ε of the inputs' squared length within the new projection.
    """
    total = jnp.sum(rows**2)
    squares, directions = principal_directions(rows - matrix_product(rows, projection))
    before = total - jnp.sum(squares) + jnp.cumsum(squares) - squares
    new = (before < share * total) & (squares > NEGLIGIBLE * total)
    basis = directions * new[:, None]
    return projection + matrix_product(basis.T, basis)


def principal_directions(
    rows: Float[Array, "n i"],
) -> tuple[Float[Array, "r"], Float[Array, "r i"]]:
    """Return the squared singular values of some rows, greatest first, and their directions."""
    if rows.shape[0] > rows.shape[1]:
        # The triangular factor has the same singular values and right singular vectors.
        rows = jnp.linalg.qr(rows, mode="r")
    _, lengths, directions = jnp.linalg.svd(rows, full_matrices=False)
    return lengths**2, directions


def refuse_other_kernels(params: PyTree, known: set[Path], strategy: str) -> None:
    """Refuse networks with a kernel whose inputs are unknown.

    Args:
      params: parameters of the network.
      known: paths of the kernels whose inputs are known.
      strategy: name of the strategy that needs them.

    Raises:
      ValueError: there is such a kernel, or no layer is named head.
    """
    leaves = flatten_dict(params)
    others = [".".join(path) for path in leaves if leaves[path].ndim > 1 and path not in known]
    if others:
        raise ArgumentError(
            f"the inputs of {', '.join(others)} are unknown; {strategy} needs networks of nn.Dense "
            "and everlight.models.layers.convolution.Convolution"
        )
    if "head" not in params:
        raise ArgumentError(f"the layers are {', '.join(params)}; {strategy} needs one named head")
