"""CODA-Prompt (continual decomposed attention; Smith et al. 2023, CVPR, arXiv 2211.13218).

    at the start of task t   M / T new components, orthogonal to those before; later ones are 0
    minimize over them and the head   CE over the task's own classes + λ penalty

M is the number of components and T that of tasks. The network stays as it was pretrained, and so do
the components of earlier tasks. `models.prompt_components` has the prompts and the penalty, which
the loss of the setup contains (`models.with_prompts`).

Equal to the official code (GT-RIPL/CODA-Prompt, `models/zoo.py`, `learners/prompt.py`) at the new
components of given draws and at the steps of a task; differs in:

- The head has the setup's initial values. In the official code they are uniform, as of PyTorch's
  linear layers.
- Components with squared lengths below 1e-8 are like others. In the official code the next draw
  never ends.
- In the official code the penalty is added once per GPU, and weight decay shrinks components of
  earlier tasks.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from everlight.base import Learner, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveInt, checked
from everlight.continual.methods.method import (
    SINGLE_LABEL_SCORES,
    Method,
    Publication,
    StrategyArguments,
)
from everlight.continual.strategies.l2p import refuse_without_prompts
from everlight.continual.strategies.naive import naive_on_task_classes
from everlight.continual.strategies.parts.kept_parameters import keep_frozen, keep_rows
from everlight.errors import ArgumentError
from everlight.models.prompts import new_components, prompt_components, with_prompts
from everlight.models.vit import VisionTransformer


class Components(NamedTuple):
    """Memory of CODA-Prompt."""

    fixed: Int[Array, ""]
    """Number of components of earlier tasks."""


@checked
def coda_prompt(setup: Setup, tasks: PositiveInt) -> Strategy:
    """Return CODA-Prompt (attended prompt components), whose memory is `Components`.

    Tasks must have disjoint classes.

    Args:
      setup: setup of `models.with_prompts` with `models.prompt_components`, at least one per task.
      tasks: number T of tasks among which the components are divided, rounded down.

    Raises:
      ValueError: at `init`, the setup trains no prompts, or has fewer components than tasks.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> Components:
        refuse_without_prompts(learner.params, "CODA-Prompt")
        components_per_task(learner.params)
        return Components(jnp.int32(0))

    def components_per_task(params: PyTree) -> int:
        least = min(len(leaf) for leaf in jax.tree.leaves(params["prompts"]))
        if least < tasks:
            raise ArgumentError(f"{least} components for {tasks} tasks; give {tasks} or more")
        return least // tasks

    def begin_task(
        memory: Components, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Components, Learner]:
        count = components_per_task(learner.params)
        first = (task.id * count).astype(jnp.int32)
        leaves, tree = jax.tree.flatten(learner.params["prompts"])
        keys = jax.random.split(key, len(leaves))
        drawn = [
            new_components(leaf, first, first + count, leaf_key)
            for leaf, leaf_key in zip(leaves, keys, strict=True)
        ]
        params = {**learner.params, "prompts": jax.tree.unflatten(tree, drawn)}
        return Components(first), learner._replace(params=keep_frozen(setup, learner, params))

    def after_step(
        memory: Components, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[Components, Learner]:
        prompts = keep_rows(
            info.aux["prompts"], learner.params["prompts"], lambda number: number >= memory.fixed
        )
        return memory, learner._replace(params={**learner.params, "prompts": prompts})

    return naive_on_task_classes(setup)._replace(
        init=init, begin_task=begin_task, after_step=after_step, tasks=tasks
    )


def with_components(
    setup: Setup, net: VisionTransformer, layers: Mapping[str, PyTree], arguments: StrategyArguments
) -> Setup:
    """Return the setup with at most 100 components of eight tokens in five blocks.

    The paper has 100 on ten tasks of CIFAR-100; there are fewer where the network is narrow.
    """
    count = min(100, net.width)
    return with_prompts(
        setup, net, layers, prompt_components(net.width, count, 8, min(5, net.depth))
    )


METHODS = (
    Method(
        "CODA-Prompt",
        coda_prompt,
        Publication("Smith et al.", 2023, "CVPR"),
        "CODA-Prompt (attended prompt components)",
        adapt=with_components,
        requirements=("pretrained transformer", *SINGLE_LABEL_SCORES, "disjoint classes"),
        authors={
            "batch size": 128,
            "epochs per task": 20,
            "optimizer": "adam",
            "learning rate": 0.001,
        },
        planned_total="tasks",
    ),
)
