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
- After the first task the same condition on k holds, as in the paper's equation 5. In the official
  code k is one less.
- ε is the same for all layers, and ends at 1. A direction below 1e-10 of ‖R‖² is never added; in
  the official code all directions are once ε exceeds 1.
- Networks may have running batch statistics, which change. In the official code evaluation
  normalizes by the statistics of its own batch.
- All patches of the samples are taken, in the official code those of fewer samples for
  convolutions.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Proportion, Setup, StepInfo, Strategy, Task
from everlight.checks import NonNegativeFloat, PositiveInt, checked
from everlight.continual.engine.setups.named_arrays import names_of
from everlight.continual.methods.method import Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.layer_inputs import (
    Projections,
    drawn_samples,
    input_rows,
    input_widths,
    product_copies,
    require_layer_inputs,
    with_inputs_of,
)
from everlight.precision import matrix_product


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
    max_samples: PositiveInt = 300,
) -> Strategy:
    """Return gradient projection memory (GPM), whose memory is `ProjectionMemory`.

    Args:
      setup: network, objective, optimizer and data access, with `layer_inputs`.
      threshold: share ε of the inputs' squared length that the basis spans after the first task,
        at most 1.
      growth: increase of ε per task; ε ends at 1.
      max_samples: maximal number of a task's samples, drawn at random, whose inputs are taken.

    Raises:
      ValueError: `setup` has no `layer_inputs`; or, at `init`, these leave out a kernel.
    """
    require_layer_inputs(setup, "GPM")
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
        change = project_gradient(info.update, memory)
        return memory, learner._replace(params=jax.tree.map(jnp.add, info.aux, change))

    def end_task(
        memory: ProjectionMemory, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[ProjectionMemory, Learner]:
        rows = input_rows(setup, learner, drawn_samples(plain, task, key, max_samples))
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
        parameter_copies=product_copies(jax.eval_shape(setup.init, jax.random.key(0))[0]),
    )


def project_gradient(update: PyTree, memory: ProjectionMemory) -> PyTree:
    """Return a change of the parameters without what would change outputs of earlier tasks.

    Args:
      update: change of the parameters; nested dictionaries whose head is under "head".
      memory: memory of GPM.
    """

    def free_part(path: tuple, change: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        path = names_of(path)
        if path in memory.projections:
            matrix = change.reshape(-1, change.shape[-1])
            within = matrix_product(memory.projections[path], matrix)
            remainder = (matrix - within).reshape(change.shape)
        else:
            remainder = jnp.where(memory.tasks > 0, 0, change)
        return jnp.where(memory.known, remainder, change) if path[0] == "head" else remainder

    return jax.tree_util.tree_map_with_path(free_part, update)


METHODS = (
    Method(
        "GPM",
        gpm,
        Publication("Saha et al.", 2021, "ICLR", ("statistics",)),
        "gradient projection memory (GPM)",
        tunes="threshold",
        hyperparameters=(0.9, 0.95, 0.97, 0.99),
        published=0.97,
        requirements=("named head", "hidden layers", "layer inputs"),
        authors={"threshold": 0.97, "growth": 0.003, "max_samples": 125},
    ),
)
