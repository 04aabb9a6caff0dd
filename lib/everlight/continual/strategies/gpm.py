"""Gradient projection memory (GPM; Saha, Garg and Roy 2021, ICLR).

A layer's gradient lies in the span of its inputs. Steps that are orthogonal to the inputs of
earlier tasks leave these tasks' outputs as they are. For every kernel W, `[i, o]`, memory holds the
projection P = M Mᵀ onto a basis M of the inputs that matter so far:

    R̂ = (I − P) R,   R̂ = U S Vᵀ,   M ← [M, u_1 .. u_k]        after a task
    k = least number with ‖P R‖² + Σ_{j ≤ k} s_j² ≥ ε ‖R‖²     ε grows from task to task
    ΔW ← (I − P) ΔW                                            at every step

The columns of R, `[i, n]`, are what the kernel multiplies for some of the task's samples; those of
a convolution are patches. P has i² entries whatever its rank. Biases and other parameters that are
no kernel stay as they are after the first task; the paper's networks have no biases.

Outputs of classes that no earlier task has are free in the head, kernel and bias, like the paper's
heads of single tasks. Outputs of known classes are projected, as in its single head for permuted
MNIST. Batch statistics are not protected.

The paper has ε = 0.97 + 0.003 per task on split CIFAR-100 with 125 samples, and on permuted MNIST
ε = 0.95 in the first layer and 0.99 in the others with 300 samples. The defaults are the first ε
and the second number of samples.

Equal to the official code (sahagobinda/GPM, `main_pmnist.py`, `main_cifar100.py`) at the number and
span of directions from the second task on, and at the projected step of gradient descent; differs
in:

- The whole change of the parameters is projected, so that momentum and weight decay cannot leave
  the subspace. That is the projected gradient where the optimizer is linear and restarts with the
  task.
- After the first task the same condition on k holds, as in the paper's equation 5. There k is one
  less.
- ε is the same for all layers, and ends at 1. A direction below 1e-10 of ‖R‖² is never added; there
  all directions are once ε exceeds 1.
- Networks may have running batch statistics, which change. There evaluation normalises by the
  statistics of its own batch.
- All patches of the samples are taken, there those of fewer samples for convolutions.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Proportion, Setup, StepInfo, Strategy, Task
from everlight.checks import NonNegativeFloat, PositiveInt, checked
from everlight.continual.engine.epochs import shuffle, take_batch
from everlight.continual.engine.evaluation import gathered
from everlight.continual.engine.named_arrays import names_of
from everlight.continual.method import Method, Source
from everlight.continual.strategies.naive import naive
from everlight.errors import ArgumentError
from everlight.precision import matrix_product

NEGLIGIBLE = 1e-10
"""Share of ‖R‖² below which a direction is rounding, which is not added at any threshold."""
Path = tuple[str, ...]
Projections = Mapping[Path, Float[Array, "i i"]]


class ProjectionMemory(NamedTuple):
    """Memory of GPM."""

    projections: Projections
    """Projection P onto the inputs of earlier tasks, by the path of the kernel."""
    tasks: Int[Array, ""]
    """Number of finished tasks."""
    known: Bool[Array, "c"]
    """Classes of the tasks before the current one."""


@checked
def gpm(
    setup: Setup,
    threshold: Proportion = 0.97,
    growth: NonNegativeFloat = 0.003,
    samples: PositiveInt = 300,
) -> Strategy:
    """Return gradient projection memory (GPM), whose memory is `ProjectionMemory`.

    Args:
      setup: network, objective, optimizer and data access, with `layer_inputs`.
      threshold: share ε of the inputs' squared length that the basis spans after the first task,
        at most 1.
      growth: increase of ε per task; ε ends at 1.
      samples: maximal number of a task's samples, drawn at random, whose inputs are taken.

    Raises:
      ValueError: `setup` has no `layer_inputs`; or, at `init`, these leave out a kernel.
    """
    if setup.layer_inputs is None:
        raise ArgumentError(
            "GPM needs the inputs of every layer; give a Setup with layer_inputs, as of flax_setup"
        )
    plain = naive(setup)

    def init(key: PRNGKeyArray, learner: Learner) -> ProjectionMemory:
        widths = input_widths(setup, learner, "GPM")
        none = {path: jnp.zeros((width, width)) for path, width in widths.items()}
        return ProjectionMemory(none, jnp.int32(0), jnp.zeros_like(learner.seen))

    def begin_task(
        memory: ProjectionMemory, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[ProjectionMemory, Learner]:
        return memory._replace(known=learner.seen & ~task.classes), learner

    def grads(
        memory: ProjectionMemory, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        gradient, info = plain.grads((), learner, batch, task, key)
        return gradient, info._replace(aux=learner.params)

    def after_step(
        memory: ProjectionMemory, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[ProjectionMemory, Learner]:
        change = projected(info.update, memory)
        return memory, learner._replace(params=jax.tree.map(jnp.add, info.aux, change))

    def end_task(
        memory: ProjectionMemory, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[ProjectionMemory, Learner]:
        rows = input_rows(setup, learner, drawn_samples(plain, task, key, samples))
        share = jnp.minimum(threshold + growth * memory.tasks, 1.0)
        projections = {
            path: with_inputs_of(projection, rows[path], share)
            for path, projection in memory.projections.items()
        }
        return memory._replace(projections=projections, tasks=memory.tasks + 1), learner

    return plain._replace(
        init=init,
        begin_task=begin_task,
        grads=grads,
        after_step=after_step,
        end_task=end_task,
        parameter_copies=copies_of(jax.eval_shape(setup.init, jax.random.key(0))[0]),
    )


def input_widths(setup: Setup, learner: Learner, strategy: str) -> dict[Path, int]:
    """Return the number of inputs of every kernel by its path.

    Raises:
      ValueError: the inputs of a kernel are unknown, or no layer is named head.
    """
    inputs = jax.eval_shape(
        lambda: setup.layer_inputs(
            learner.params, learner.batch_stats, gathered(setup, jnp.zeros(1, int), None)
        )
    )
    refuse_other_kernels(learner.params, set(inputs), strategy)
    return {path: rows.shape[-1] for path, rows in inputs.items()}


def drawn_samples(strategy: Strategy, task: Task, key: PRNGKeyArray, count: int) -> Batch:
    """Return at most `count` random samples of a task."""
    return take_batch(shuffle(strategy.epoch_data((), task), key), jnp.int32(0), count)


def input_rows(setup: Setup, learner: Learner, batch: Batch) -> dict[Path, Float[Array, "n i"]]:
    """Return what every kernel multiplies for a batch, by its path; 0 for samples of weight 0."""
    inputs = gathered(setup, batch.index, None)
    layer_rows = setup.layer_inputs(learner.params, learner.batch_stats, inputs)
    return {
        path: (rows * batch.weight[:, None, None]).reshape(-1, rows.shape[-1])
        for path, rows in layer_rows.items()
    }


def copies_of(params: PyTree, per_kernel: Callable[[Path], int] = lambda path: 1) -> int:
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
    projection: Float[Array, "i i"],
    rows: Float[Array, "n i"],
    share: Float[Array, ""] | float,
) -> Float[Array, "i i"]:
    """Return the projection with the fewest new directions that span a share of the inputs.

    Args:
      projection: projection P onto the inputs so far.
      rows: inputs of the new task; a row of zeros has no effect.
      share: least share ε of the inputs' squared length within the new projection.
    """
    total = jnp.sum(rows**2)
    rest = rows - matrix_product(rows, projection)
    if rest.shape[0] > rest.shape[1]:
        # The triangular factor has the same singular values and right singular vectors.
        rest = jnp.linalg.qr(rest, mode="r")
    _, lengths, directions = jnp.linalg.svd(rest, full_matrices=False)
    squares = lengths**2
    before = total - jnp.sum(squares) + jnp.cumsum(squares) - squares
    new = (before < share * total) & (squares > NEGLIGIBLE * total)
    basis = directions * new[:, None]
    return projection + matrix_product(basis.T, basis)


def projected(update: PyTree, memory: ProjectionMemory) -> PyTree:
    """Return a change of the parameters without what would change outputs of earlier tasks.

    Args:
      update: change of the parameters; nested dictionaries whose head is under "head".
      memory: memory of GPM.
    """

    def free(path: tuple, change: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        path = names_of(path)
        if path in memory.projections:
            matrix = change.reshape(-1, change.shape[-1])
            within = matrix_product(memory.projections[path], matrix)
            remainder = (matrix - within).reshape(change.shape)
        else:
            remainder = jnp.where(memory.tasks > 0, 0, change)
        return jnp.where(memory.known, remainder, change) if path[0] == "head" else remainder

    return jax.tree_util.tree_map_with_path(free, update)


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
            "and everlight.convolution.Convolution"
        )
    if "head" not in params:
        raise ArgumentError(f"the layers are {', '.join(params)}; {strategy} needs one named head")


METHODS = (
    Method(
        "GPM",
        gpm,
        Source("Saha et al.", 2021, "ICLR", ("statistics",)),
        "gradient projection memory (GPM)",
        tunes="threshold",
        hyperparameters=(0.9, 0.95, 0.97, 0.99),
        published=0.97,
        demands=("named head", "hidden layers", "layer inputs"),
        authors={"threshold": 0.97, "growth": 0.003, "samples": 125},
    ),
)
