"""Trust region gradient projection (TRGP; Lin et al. 2022, ICLR), on top of `gpm`.

GPM keeps every step away from the inputs of earlier tasks. A task that resembles an earlier one
cannot use what matters for both. TRGP lets it scale the weights within that task's subspace, for
itself alone. For a kernel W and orthonormal bases U_j of the inputs of tasks j,

    W_t = W + Σ_{j in J_t} U_j (S_tj − I) U_jᵀ W                    for the samples of task t
    J_t: the two tasks j with the greatest ‖U_jᵀ G‖, of those with ‖U_jᵀ G‖ > ε₁ ‖G‖
    ΔW ← (I − U Uᵀ) ΔW,   S_tj ← S_tj + ΔS_tj                       at every step

G is the gradient of the task's loss by W at its start, for some samples in evaluation mode, and U
the basis of all tasks. Every matrix S starts as I with the task and is kept for its predictions.
Steps on W change W_j of no earlier task j on its own inputs, since U_jᵀ ΔW = 0.

At the end of a task its inputs R to each kernel choose its basis: directions of U, with the energy
u_iᵀ R Rᵀ u_i, and left singular vectors of (I − U Uᵀ) R, with the energy s_i², are taken in the
order of their energies until these add up to ε ‖R‖². The singular vectors taken enter U.

The loss runs over the task's own classes. The head has no S: outputs of the task's classes are free
in it, as in the authors' heads of single tasks. Biases and others that are not kernels stay
as they are after the first task. The authors have ε₁ = 0.5, and on split CIFAR-100 ε = 0.97 + 0.003
per task and 125 samples.

Equal to the official code (LYang-666/TRGP, `main_cifar100.py`) at the scaled weights, the chosen
tasks, a step of gradient descent and the energies that choose a basis; differs in:

- Inputs of a task's layers are those of its scaled network, in the official code those of W alone.
- The greatest of the new directions enters U as the others do; in the official code not.
- After the first task the same condition on the energies holds; the official code takes one less.
- The whole change is projected, all patches are taken, and batch statistics are running (`gpm`).
- The optimizer of S is the setup's, in the official code gradient descent without weight decay.
- In the official code no layer is scaled where the first one has no chosen task, and the scales and
  shifts of batch norm learn in every task. In `main_pmnist.py` the one head has matrices S, ε₁ is
  0.2, and the third task can choose the second alone.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax.traverse_util import flatten_dict
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Proportion, Setup, StepInfo, Strategy, Task
from everlight.checks import NonNegativeFloat, PositiveInt, UnitInterval, checked
from everlight.continual.engine.evaluation import gather_inputs
from everlight.continual.engine.setups.named_arrays import Path, names_of
from everlight.continual.engine.updates import optimizer_step
from everlight.continual.methods.method import PER_TASK_WEIGHTS, Method, Publication
from everlight.continual.strategies.gpm import ProjectionMemory, project_gradient
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.layer_inputs import (
    NEGLIGIBLE,
    Projections,
    drawn_samples,
    input_rows,
    input_widths,
    principal_directions,
    product_copies,
    require_layer_inputs,
)
from everlight.continual.strategies.parts.passes import (
    batch_loss,
    evaluation_gradient,
    mask_other_classes,
)
from everlight.precision import matrix_product

REGIONS = 2
"""Greatest number of earlier tasks whose subspace a task scales."""


class Region(NamedTuple):
    """Subspaces of a kernel's inputs."""

    basis: Float[Array, "i i"]
    """Orthonormal directions as columns, the filled ones first; 0 in the others."""
    member: Bool[Array, "t i"]
    """True for the columns that are the basis of each task."""
    chosen: Int[Array, "t 2"]
    """Earlier tasks whose subspace each task scales; -1 for none."""
    scale: Float[Array, "t 2 i i"] | None
    """Matrices S of each task. Entries of columns that are not in the subspace have no effect. None
    for the head, which has none."""


class TrustMemory(NamedTuple):
    """Memory of TRGP."""

    regions: Mapping[Path, Region]
    """Subspaces by the path of the kernel."""
    projections: Projections
    """Projection onto the inputs of all tasks so far, U Uᵀ, by the path of the kernel."""
    tasks: Int[Array, ""]
    """Number of finished tasks."""
    current: Int[Array, ""]
    """Number of the latest task."""
    known: Bool[Array, "c"]
    """Classes of the tasks before the current one."""
    classes: Bool[Array, "c"]
    """Classes of the current task; none between tasks."""
    opt_state: optax.OptState
    """State of the optimizer for the current task's matrices S."""


@checked
def trgp(
    setup: Setup,
    tasks: PositiveInt,
    threshold: Proportion = 0.97,
    growth: NonNegativeFloat = 0.003,
    max_samples: PositiveInt = 125,
    trust: UnitInterval = 0.5,
) -> Strategy:
    """Return trust region gradient projection (TRGP), whose memory is `TrustMemory`.

    Tasks have disjoint classes. `predict` takes the network of the latest task and all seen
    classes. During a task it scores the task's classes alone, on which the best epoch is chosen.

    Args:
      setup: network, objective, optimizer and data access, with `layer_inputs`.
      tasks: number of tasks in the sequence.
      threshold: share ε of the inputs' squared length that a basis spans after the first task.
      growth: increase of ε per task; ε ends at 1.
      max_samples: maximal number of a task's samples, drawn at random, for G and R.
      trust: share ε₁ of the gradient's length within a subspace above which it is scaled.

    Raises:
      ValueError: `setup` has no `layer_inputs`; or, at `init`, these leave out a kernel.
    """
    require_layer_inputs(setup, "TRGP")
    plain = naive(setup)

    def init(key: PRNGKeyArray, learner: Learner) -> TrustMemory:
        widths = input_widths(setup, learner, "TRGP")
        regions = {
            path: empty_region(width, tasks, scaled=path[0] != "head")
            for path, width in widths.items()
        }
        first, none = jnp.int32(0), jnp.zeros_like(learner.seen)
        state = setup.optimizer.init(_scales(regions, first))
        projections = {path: jnp.zeros_like(region.basis) for path, region in regions.items()}
        return TrustMemory(regions, projections, first, first, none, none, state)

    def begin_task(
        memory: TrustMemory, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[TrustMemory, Learner]:
        batch = drawn_samples(plain, task, key, max_samples)
        batch = batch._replace(inputs=gather_inputs(setup, batch.index, None))
        task_learner = learner._replace(seen=task.classes)
        gradient = flatten_dict(evaluation_gradient(setup, task_learner, batch))
        regions = with_chosen_tasks(memory, gradient, task.id, trust)
        return memory._replace(
            regions=regions,
            current=task.id.astype(jnp.int32),
            known=learner.seen & ~task.classes,
            classes=task.classes,
            opt_state=setup.optimizer.init(_scales(regions, task.id)),
        ), learner

    def grads(
        memory: TrustMemory, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        return scaled_gradient(setup, memory, learner, batch, task, key)

    def after_step(
        memory: TrustMemory, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[TrustMemory, Learner]:
        before, gradient = info.aux
        held = ProjectionMemory(memory.projections, memory.tasks, memory.known)
        change = project_gradient(info.update, held)
        memory = with_moved_scales(setup, memory, learner, gradient)
        return memory, learner._replace(params=jax.tree.map(jnp.add, before, change))

    def end_task(
        memory: TrustMemory, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[TrustMemory, Learner]:
        scaled = scaled_network(memory, learner, task.id)
        rows = input_rows(setup, scaled, drawn_samples(plain, task, key, max_samples))
        share = jnp.minimum(threshold + growth * memory.tasks, 1.0)
        return with_finished_task(memory, rows, share, task.id), learner

    def predict_task(
        memory: TrustMemory,
        learner: Learner,
        inputs: Float[Array, "b *shape"],
        task: Int[Array, ""],
    ) -> Float[Array, "b c"]:
        return plain.predict((), scaled_network(memory, learner, task), inputs)

    def predict(
        memory: TrustMemory, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        scores = predict_task(memory, learner, inputs, memory.current)
        return mask_other_classes(memory.classes, scores)

    params = jax.eval_shape(setup.init, jax.random.key(0))[0]
    return plain._replace(
        init=init,
        begin_task=begin_task,
        grads=grads,
        after_step=after_step,
        end_task=end_task,
        predict=predict,
        predict_task=predict_task,
        tasks=tasks,
        # A basis and a projection; below the head, matrices S too.
        parameter_copies=product_copies(
            params, lambda path: 2 if path[0] == "head" else 2 + REGIONS * tasks
        ),
    )


def scaled_gradient(
    setup: Setup, memory: TrustMemory, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
) -> tuple[PyTree, StepInfo]:
    """Return the gradient of the loss by W; the aux are W before it and the gradient by S."""
    task_learner = learner._replace(seen=task.classes)

    def loss(params: PyTree, scales: Mapping) -> tuple[Float[Array, ""], PyTree]:
        scaled = scaled_params(params, memory.regions, scales, task.id)
        value, (_, batch_stats) = batch_loss(setup, scaled, task_learner, batch, key)
        return value, batch_stats

    scales = _scales(memory.regions, task.id)
    differentiate = jax.value_and_grad(loss, (0, 1), has_aux=True)
    (value, batch_stats), (gradient, scales_gradient) = differentiate(learner.params, scales)
    return gradient, StepInfo(gradient, batch_stats, value, (learner.params, scales_gradient))


def scaled_network(memory: TrustMemory, learner: Learner, task: Int[Array, ""]) -> Learner:
    """Return the learner with the scaled kernels of a task."""
    scales = _scales(memory.regions, task)
    return learner._replace(params=scaled_params(learner.params, memory.regions, scales, task))


def with_moved_scales(
    setup: Setup, memory: TrustMemory, learner: Learner, gradient: Mapping
) -> TrustMemory:
    """Return the memory after a step of the optimizer on the current task's matrices S."""
    scales = _scales(memory.regions, memory.current)
    scale_learner = learner._replace(params=scales, opt_state=memory.opt_state)
    after = optimizer_step(setup._replace(trainable=None), scale_learner, gradient)
    regions = {**memory.regions}
    for path, scale in after.params.items():
        region = regions[path]
        regions[path] = region._replace(scale=region.scale.at[memory.current].set(scale))
    return memory._replace(regions=regions, opt_state=after.opt_state)


def with_finished_task(
    memory: TrustMemory,
    rows: Mapping[Path, Float[Array, "n i"]],
    share: Float[Array, ""],
    task: Int[Array, ""],
) -> TrustMemory:
    """Return the memory with the bases of a task that ends, which span a share of its inputs."""
    regions = {
        path: with_task(region, rows[path], share, task) for path, region in memory.regions.items()
    }
    projections = {
        path: matrix_product(region.basis, region.basis.T) for path, region in regions.items()
    }
    return memory._replace(
        regions=regions,
        projections=projections,
        tasks=memory.tasks + 1,
        classes=jnp.zeros_like(memory.classes),
    )


def empty_region(width: int, tasks: int, scaled: bool = True) -> Region:
    """Return a kernel's subspaces before the first task; without matrices S unless `scaled`."""
    return Region(
        jnp.zeros((width, width)),
        jnp.zeros((tasks, width), bool),
        jnp.full((tasks, REGIONS), -1),
        jnp.broadcast_to(jnp.eye(width), (tasks, REGIONS, width, width)) if scaled else None,
    )


def with_chosen_tasks(
    memory: TrustMemory, gradient: Mapping[Path, Array], task: Int[Array, ""], trust: float
) -> dict[Path, Region]:
    """Return the subspaces with those that a task scales, chosen by its gradient."""
    regions = {}
    for path, region in memory.regions.items():
        chosen = chosen_tasks(region, _matrix(gradient[path]), memory.tasks, trust)
        regions[path] = region._replace(chosen=region.chosen.at[task].set(chosen))
    return regions


def chosen_tasks(
    region: Region, gradient: Float[Array, "i o"], finished: Int[Array, ""], trust: float
) -> Int[Array, "2"]:
    """Return the tasks whose subspaces hold most of a gradient; -1 where there is none.

    Args:
      region: subspaces of the kernel.
      gradient: gradient G by the kernel.
      finished: number of finished tasks, which come first.
      trust: share ε₁ of the gradient's length that is too little.
    """
    along = jnp.sum(matrix_product(region.basis.T, gradient) ** 2, axis=1)
    within = jnp.sqrt(jnp.sum(jnp.where(region.member, along, 0), axis=1))
    count = within.shape[0]
    enough = within > trust * jnp.linalg.norm(gradient)
    possible = jnp.where(enough & (jnp.arange(count) < finished), within, -1.0)
    length, task = jax.lax.top_k(possible, min(REGIONS, count))
    chosen = jnp.where(length >= 0, task, -1)
    return jnp.pad(chosen, (0, REGIONS - chosen.shape[0]), constant_values=-1)


def scaled_params(
    params: PyTree,
    regions: Mapping[Path, Region],
    scales: Mapping[Path, Float[Array, "2 i i"]],
    task: Int[Array, ""],
) -> PyTree:
    """Return the parameters with the scaled kernels W_t of a task.

    Args:
      params: parameters with the kernels W.
      regions: subspaces by the path of the kernel.
      scales: matrices S of the task, by the path of a scaled kernel.
      task: number t of the task.
    """

    def scaled(path: tuple, leaf: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        path = names_of(path)
        if path not in scales:
            return leaf
        region, matrix = regions[path], _matrix(leaf)
        change = jnp.zeros_like(matrix)
        for index in range(REGIONS):
            chosen = region.chosen[task, index]
            columns = region.basis * (region.member[chosen] & (chosen >= 0))
            within = matrix_product(columns.T, matrix)
            change += matrix_product(columns, matrix_product(scales[path][index], within) - within)
        return leaf + change.reshape(leaf.shape)

    return jax.tree_util.tree_map_with_path(scaled, params)


def with_task(
    region: Region, rows: Float[Array, "n i"], share: Float[Array, ""] | float, task: Int[Array, ""]
) -> Region:
    """Return the subspaces with the basis of a task that spans a share of its inputs.

    Args:
      region: subspaces so far.
      rows: inputs of the task; a row of zeros has no effect.
      share: least share ε of the inputs' squared length within the task's basis.
      task: number of the task.
    """
    width = region.basis.shape[0]
    total = jnp.sum(rows**2)
    along = matrix_product(rows, region.basis)
    squares, directions = principal_directions(rows - matrix_product(along, region.basis.T))
    energy = jnp.concatenate([jnp.sum(along**2, axis=0), squares])
    order = jnp.argsort(-energy)
    sorted_ = energy[order]
    before = jnp.cumsum(sorted_) - sorted_
    taken = (before < share * total) & (sorted_ > NEGLIGIBLE * total)
    taken = jnp.zeros_like(taken).at[order].set(taken)
    old, new = taken[:width], taken[width:]
    filled = jnp.sum(jnp.any(region.basis != 0, axis=0))
    index = jnp.where(new, filled + jnp.cumsum(new) - 1, width)
    basis = region.basis.at[:, index].set(directions.T, mode="drop")
    member = old.at[index].set(True, mode="drop")
    return region._replace(basis=basis, member=region.member.at[task].set(member))


def _matrix(kernel: Float[Array, "*shape o"]) -> Float[Array, "i o"]:
    return kernel.reshape(-1, kernel.shape[-1])


def _scales(regions: Mapping[Path, Region], task: Int[Array, ""]) -> dict[Path, Array]:
    """Return the matrices S of a task by the path of a kernel below the head."""
    return {
        path: region.scale[task] for path, region in regions.items() if region.scale is not None
    }


METHODS = (
    Method(
        "TRGP",
        trgp,
        Publication("Lin et al.", 2022, "ICLR", ("statistics",)),
        "trust region gradient projection (TRGP)",
        tunes="threshold",
        hyperparameters=(0.9, 0.95, 0.97, 0.99),
        published=0.97,
        requirements=(*PER_TASK_WEIGHTS, "layer inputs"),
        authors={"threshold": 0.97, "growth": 0.003, "max_samples": 125, "trust": 0.5},
        planned_total="tasks",
    ),
)
