"""Interference-free low-rank adaptation (InfLoRA; Liang and Li 2024, CVPR, arXiv 2404.00228).

    C = Σ x xᵀ over inputs x of a kernel for the task's samples, by the network before the task
    A = first r left singular vectors of (I − P) C, divided by √3;   B = 0
    minimize over B and the head   CE over the task's own classes;   then W ← W + s A B
    after the task   C again,  (I − P) C = U S Vᵀ,   P ← P + Σ_{j ≤ k} u_j u_jᵀ
    k = least number with ‖P C‖² + Σ_{j ≤ k} s_j² ≥ ε_t ‖C‖²,   ε_t = ε + (1 − ε) t / T

The columns of A are the largest part of the task's inputs that is orthogonal to the inputs P of
earlier tasks. W changes only within them, which leaves the outputs of earlier tasks nearly as they
are. The paper writes B for A, A for B, and adapts keys and values of all blocks with r = 10 and
ε = 0.95 on CIFAR-100. t counts tasks from 0, and T is their number.

P has i² entries. The paper's DualGPM keeps a basis of P, or of I − P where that is smaller, which
gives the same projection.

Equal to the official code (liangyanshuo/InfLoRA, `methods/inflora.py`) at A, at the steps of a
task, and at the projections from the second task on; differs in:

- After the first task the same condition on k holds. In the official code k is one less, but at
  least 1. A first basis of half of the inputs counts as the free directions in the official code, a
  larger one stops it.
- A direction without inputs, where fewer than r are left, is 0. In the official code it is any
  vector.
- The head is the network's. In the official code each task has its own, drawn by its layer's rule.
- Sums are over at most `max_samples` samples, without augmentation. In the official code they are
  over all samples of the task, augmented.
- A kernel with other inputs than keys and values has its own A, and so has each of the two, which
  are equal.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Proportion, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveInt, checked
from everlight.continual.engine.setups.named_arrays import Path
from everlight.continual.methods.method import (
    SINGLE_LABEL_SCORES,
    Method,
    Publication,
    StrategyArguments,
)
from everlight.continual.strategies.naive import naive_on_task_classes
from everlight.continual.strategies.parts.layer_inputs import (
    NEGLIGIBLE,
    drawn_samples,
    input_rows,
    require_layer_inputs,
    with_inputs_of,
)
from everlight.errors import ArgumentError
from everlight.models.heads import head_layer
from everlight.models.lora import lora_products, with_merged_lora
from everlight.models.vit import VisionTransformer
from everlight.precision import matrix_product

BLOCK = 32
"""Samples per pass in which inputs are summed."""


class Interference(NamedTuple):
    """Memory of InfLoRA."""

    projections: Mapping[Path, Float[Array, "i i"]]
    """Projection P onto the inputs of earlier tasks, by the path of the kernel."""
    learning: Bool[Array, "c"]
    """Classes of the task."""


@checked
def inflora(
    setup: Setup, tasks: PositiveInt, threshold: Proportion = 0.95, max_samples: PositiveInt = 1024
) -> Strategy:
    """Return interference-free low-rank adaptation (InfLoRA), whose memory is `Interference`.

    Tasks must have disjoint classes.

    Args:
      setup: setup of `models.with_merged_lora` with `layer_inputs`, as of a linen network.
      tasks: number T of tasks.
      threshold: share ε of the inputs that P spans after the first task, at most 1.
      max_samples: maximal number of a task's samples, drawn at random, whose inputs are summed.

    Raises:
      ValueError: `setup` has no `layer_inputs`; or, at `init`, no merged additions, or no layer
        named head.
    """
    require_layer_inputs(setup, "InfLoRA")
    plain = naive_on_task_classes(setup)

    def init(key: PRNGKeyArray, learner: Learner) -> Interference:
        if "merged" not in learner.params:
            raise ArgumentError(
                f"the parameters are {', '.join(learner.params)}; InfLoRA needs merged additions; "
                "make the setup by models.with_merged_lora"
            )
        head_layer(learner.params)
        sizes = {path: len(leaf) for path, leaf in flatten_dict(learner.params["merged"]).items()}
        none = {path: jnp.zeros((size, size)) for path, size in sizes.items()}
        return Interference(none, jnp.zeros_like(learner.seen))

    def begin_task(
        memory: Interference, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Interference, Learner]:
        sums = input_products(setup, learner, drawn_samples(plain, task, key, max_samples))
        additions = flatten_dict(learner.params["lora"])
        for path, projection in memory.projections.items():
            a, b = additions[*path, "a"], additions[*path, "b"]
            additions[*path, "a"] = free_directions(projection, sums[path], a.shape[1]).astype(
                a.dtype
            )
            additions[*path, "b"] = jnp.zeros_like(b)
        params = {**learner.params, "lora": unflatten_dict(additions)}
        return memory._replace(learning=task.classes), learner._replace(params=params)

    def after_step(
        memory: Interference, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[Interference, Learner]:
        # Momentum and weight decay would move weights of other classes, which have no gradient.
        head = jax.tree.map(
            lambda old, new: jnp.where(memory.learning, new, old),
            info.aux["head"],
            learner.params["head"],
        )
        return memory, learner._replace(params={**learner.params, "head": head})

    def end_task(
        memory: Interference, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Interference, Learner]:
        sums = input_products(setup, learner, drawn_samples(plain, task, key, max_samples))
        share = jnp.minimum(threshold + (1 - threshold) * task.id / tasks, 1.0)
        projections = {
            path: with_inputs_of(projection, sums[path], share)
            for path, projection in memory.projections.items()
        }
        return memory._replace(projections=projections), with_products_merged(learner)

    return plain._replace(
        init=init,
        begin_task=begin_task,
        after_step=after_step,
        end_task=end_task,
        tasks=tasks,
        parameter_copies=1,
    )


def input_products(setup: Setup, learner: Learner, batch: Batch) -> dict[Path, Float[Array, "i i"]]:
    """Return the sum of x xᵀ over the inputs x of every adapted kernel, by its path.

    Args:
      setup: setup with `layer_inputs`.
      learner: learner whose network has the inputs.
      batch: samples; those of weight 0 do not count.
    """
    count = batch.index.shape[0]
    size = min(BLOCK, count)
    order = jnp.pad(jnp.arange(count), (0, -count % size)).reshape(-1, size)
    # The padding repeats the first sample, with weight 0.
    mask = (jnp.arange(order.size) < count).reshape(order.shape)

    def block_products(block: tuple[Array, Array]) -> dict[Path, Float[Array, "i i"]]:
        slots, counts = block
        block_batch = batch._replace(
            index=batch.index[slots],
            labels=batch.labels[slots],
            weight=batch.weight[slots] * counts,
            memory_mask=batch.memory_mask[slots],
        )
        rows = input_rows(setup, learner, block_batch)
        return {path: matrix_product(inputs.T, inputs) for path, inputs in rows.items()}

    return jax.tree.map(
        lambda leaf: jnp.sum(leaf, axis=0), jax.lax.map(block_products, (order, mask))
    )


def free_directions(
    projection: Float[Array, "i i"], products: Float[Array, "i i"], rank: int
) -> Float[Array, "i r"]:
    """Return A: the first directions of the inputs that are orthogonal to earlier ones, over √3.

    Args:
      projection: projection P onto the inputs of earlier tasks.
      products: sum C of x xᵀ.
      rank: number of directions; those without inputs are 0, and so are those beyond i.
    """
    rest = products - matrix_product(products, projection)
    _, lengths, directions = jnp.linalg.svd(rest, full_matrices=False)
    mask = lengths**2 > NEGLIGIBLE * jnp.sum(products**2)
    chosen = jnp.where(mask[:, None], directions, 0)[:rank].T / 3**0.5
    return jnp.pad(chosen, ((0, 0), (0, rank - chosen.shape[1])))


def with_products_merged(learner: Learner) -> Learner:
    """Return the learner whose additions are in `merged`, with B = 0."""
    additions, merged = (flatten_dict(learner.params[name]) for name in ("lora", "merged"))
    products = lora_products(learner.params["lora"])
    merged = {path: leaf + products[path] for path, leaf in merged.items()}
    additions |= {path: jnp.zeros_like(leaf) for path, leaf in additions.items() if path[-1] == "b"}
    params = {**learner.params, "lora": unflatten_dict(additions), "merged": unflatten_dict(merged)}
    return learner._replace(params=params)


def with_low_rank(
    setup: Setup, net: VisionTransformer, layers: Mapping[str, PyTree], arguments: StrategyArguments
) -> Setup:
    """Return the setup with additions of rank 10 for keys and values of all blocks."""
    return with_merged_lora(setup, layers, ("key", "value"), rank=10)


METHODS = (
    Method(
        "InfLoRA",
        inflora,
        Publication("Liang and Li", 2024, "CVPR", ("statistics",)),
        "interference-free low-rank adaptation (InfLoRA)",
        adapt=with_low_rank,
        requirements=("pretrained transformer", *SINGLE_LABEL_SCORES, "disjoint classes"),
        authors={
            "threshold": 0.95,
            "max_samples": "all",
            "batch size": 128,
            "epochs per task": 20,
            "optimizer": "adam",
            "learning rate": 0.0005,
        },
        planned_total="tasks",
    ),
)
