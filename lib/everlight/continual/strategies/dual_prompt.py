"""DualPrompt: general and expert prompts (Wang et al. 2022, ECCV, arXiv 2204.04799).

    minimize over G, E_t, k_t and the head   CE over the task's own classes − λ cos(q, k_t)
    at test   the expert is argmax over t of cos(q, k_t), of the tasks so far

The network stays as it was pretrained. All images attend to the general prompt G in the first
blocks, and those of task t to its expert prompt E_t in the blocks after them. E_t starts from
E_(t−1), as in the authors' code. `models.dual_prompts` has the prompts and the second term, which
the loss of the setup contains (`models.with_prompts`). Memory holds the number of the task.

The registry has the values of the official configuration of split CIFAR-100
(`configs/cifar100_dualprompt.py`): prompts of five tokens, G in blocks 0 and 1, E in blocks 2 to 4,
and λ = 1. A prompt of L tokens is L keys and L values, as in that code. Its configuration of
ImageNet-R has 20 tokens in E, 50 epochs and a rate of 0.005. The learning rates are multiplied by
the batch size over 256.

Equal to the official code (google-research/l2p, `models/prompt.py`, `models/prefix_attention.py`,
`train_continual.py`) at the prompts of an image, the attention, the loss, and the start of an
expert. Its network and its loss, run on the same tensors in float32, differ by 5e-7 at most,
relative to the largest value, and after 12 Adam steps of three tasks by 8.1e-7. Differs in:

- At test every image has the expert of its own nearest key. In that code all images of a batch
  share the expert that most of them would have (`batchwise_prompt`; not for ImageNet-R), and a
  batch has images of one task, since it tests each task by itself: the task has a part in the
  choice.
- Keys of later tasks are not candidates, as in the paper. In that code all keys are, also those
  that no task has trained.
- There are as many experts as tasks. In that code tasks beyond the pool choose by their keys.
- Experts of other tasks stay. In that code weight decay, which is 0, would shrink them.
- Images, clipping of gradients, the initial head and unseen classes are as of `l2p`.

The PyTorch version in PILOT and, without its option `use_permute_fix`, Mammoth reshapes the
experts of a batch across keys and values: the first half of the images has the expert's keys in
place of its values, and the second half its values in place of its keys. The official code reshapes
them correctly, as here. PILOT has λ = 0.1, and both have initial values within ±1.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Outputs, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveInt, checked
from everlight.continual.methods.method import (
    SINGLE_LABEL_SCORES,
    Method,
    Publication,
    StrategyArguments,
)
from everlight.continual.strategies.l2p import refuse_without_prompts
from everlight.continual.strategies.naive import naive, naive_on_task_classes
from everlight.continual.strategies.parts.kept_parameters import keep_frozen, keep_rows
from everlight.errors import ArgumentError
from everlight.models.prompts import dual_prompts, with_prompts
from everlight.models.vit import VisionTransformer


class Experts(NamedTuple):
    """Memory of DualPrompt."""

    current: Int[Array, ""]
    """Number of the last task that has begun; 0 before the first."""


@checked
def dual_prompt(setup: Setup, tasks: PositiveInt) -> Strategy:
    """Return DualPrompt (general and expert prompts), whose memory is `Experts`.

    Tasks must have disjoint classes.

    Args:
      setup: setup of `models.with_prompts` with `models.dual_prompts`, an expert per task or more.
      tasks: number of tasks in the sequence.

    Raises:
      ValueError: at `init`, the setup trains no expert prompts, or has fewer than tasks.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> Experts:
        refuse_without_prompts(learner.params, "DualPrompt")
        prompts = learner.params["prompts"]
        if "expert" not in prompts:
            raise ArgumentError(
                f"the prompts are {', '.join(prompts)}; make those of DualPrompt by "
                "models.dual_prompts"
            )
        if len(prompts["key"]) < tasks:
            raise ArgumentError(
                f"{len(prompts['key'])} experts for {tasks} tasks; give {tasks} or more"
            )
        return Experts(jnp.int32(0))

    def begin_task(
        memory: Experts, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Experts, Learner]:
        current, prompts = task.id.astype(jnp.int32), learner.params["prompts"]
        before = jnp.maximum(current - 1, 0)
        expert = jax.tree.map(lambda rows: rows.at[current].set(rows[before]), prompts["expert"])
        params = {**learner.params, "prompts": {**prompts, "expert": expert}}
        return Experts(current), learner._replace(params=keep_frozen(setup, learner, params))

    def grads(
        memory: Experts, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        task_setup = with_experts(setup, memory.current, memory.current)
        return naive_on_task_classes(task_setup).grads((), learner, batch, task, key)

    def after_step(
        memory: Experts, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[Experts, Learner]:
        before, after = info.aux["prompts"], learner.params["prompts"]
        rows = {
            name: keep_rows(before[name], after[name], lambda number: number == memory.current)
            for name in ("expert", "key")
        }
        params = {**learner.params, "prompts": {**after, **rows}}
        return memory, learner._replace(params=params)

    def predict(
        memory: Experts, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        met = with_experts(setup, jnp.int32(0), memory.current)
        return naive(met).predict((), learner, inputs)

    return naive(setup)._replace(
        init=init,
        begin_task=begin_task,
        grads=grads,
        after_step=after_step,
        predict=predict,
        tasks=tasks,
    )


def with_experts(setup: Setup, first: Int[Array, ""], last: Int[Array, ""]) -> Setup:
    """Return the setup in which images choose among some of the experts.

    In place of an expert before the first or after the last, it has the nearest of these.

    Args:
      setup: setup with DualPrompt's prompts.
      first: number of the first expert.
      last: number of the last one.
    """

    def apply(
        params: PyTree,
        batch_stats: PyTree,
        inputs: Float[Array, "b *shape"],
        train: bool,
        key: PRNGKeyArray | None,
    ) -> tuple[Outputs, PyTree]:
        prompts = params["prompts"]
        number = jnp.clip(jnp.arange(len(prompts["key"])), first, last)
        rows = jax.tree.map(
            lambda leaf: leaf[number], {name: prompts[name] for name in ("expert", "key")}
        )
        params = {**params, "prompts": {**prompts, **rows}}
        return setup.apply(params, batch_stats, inputs, train, key)

    return setup._replace(apply=apply)


def with_dual_prompts(
    setup: Setup, net: VisionTransformer, layers: Mapping[str, PyTree], arguments: StrategyArguments
) -> Setup:
    """Return the setup with the code's values and an expert per task.

    A network of fewer than five blocks has fewer blocks with prompts, the last ones for experts.
    """
    general = min(2, net.depth - 1)
    expert = min(3, net.depth - general)
    prompting = dual_prompts(
        net.width, arguments.tasks, general_blocks=general, expert_blocks=expert
    )
    return with_prompts(setup, net, layers, prompting)


METHODS = (
    Method(
        "DualPrompt",
        dual_prompt,
        Publication("Wang et al.", 2022, "ECCV"),
        "DualPrompt: general prompts of all tasks, and an expert prompt per task",
        adapt=with_dual_prompts,
        requirements=("pretrained transformer", *SINGLE_LABEL_SCORES, "disjoint classes"),
        authors={
            "batch size": "24 per device",
            "epochs per task": 5,
            "optimizer": "adam",
            "learning rate": "0.03 times the batch size over 256",
        },
        planned_total="tasks",
    ),
)
