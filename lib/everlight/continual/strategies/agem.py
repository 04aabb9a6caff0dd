"""Averaged gradient episodic memory (Chaudhry et al. 2019, ICLR).

g is the gradient of the task's batch and g_ref that of a batch from the memory. If g·g_ref < 0,

    g̃ = g − (g·g_ref / g_ref·g_ref) g_ref,

so that the step does not raise the memory's average loss. The reference batch is redrawn at every
step without replacement. It has `replay_batch_size` samples: 128 or 256 in the authors' code, with
batches of 10 to 16, and 256 in the registry. Without this argument it is as large as the task's, as
in IIRC's code. A memory of fewer samples is drawn as a whole: its samples fill the batch up in
turn, at weight 0 in the loss; IIRC's code takes a smaller batch. The authors' code holds 5 samples
per class on CUB, 13 on CIFAR-100, 20 on AWA and 25 on MNIST. The paper does not mention batch
statistics. In everlight the reference pass runs in training mode and changes them before the task's
pass, in IIRC's code after it.

Equal to the official code (facebookresearch/agem) at the projected gradient, the reference being
the mean over a random batch without replacement; differs in two points. Exemplars are a random
choice of each class; in IIRC's code they are its last samples. One loss runs over all seen classes;
in IIRC's code it runs over those of each sample's task.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveInt, checked
from everlight.continual.methods.method import Method, Publication, StrategyArguments
from everlight.continual.strategies.balanced_replay import Exemplars, balanced_replay
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.memory import draw_batch
from everlight.continual.strategies.parts.passes import task_gradient
from everlight.continual.strategies.parts.replayed import replayed_loss


def project(gradient: PyTree, reference: PyTree) -> PyTree:
    """Return the gradient without its component against the reference, if it has one."""
    along, squared = _dot(gradient, reference), _dot(reference, reference)
    factor = jnp.where((along < 0) & (squared > 0), along / jnp.where(squared > 0, squared, 1), 0)
    return jax.tree.map(lambda g, r: g - factor * r, gradient, reference)


@checked
def agem(
    setup: Setup,
    exemplars_per_class: PositiveInt = 20,
    labels: PositiveInt = 1,
    separate_classes: bool = False,
    replay_batch_size: PositiveInt | None = None,
    buffer_size: PositiveInt | None = None,
) -> Strategy:
    """Return averaged gradient episodic memory (A-GEM), whose memory is `Exemplars`.

    Exemplars do not join epochs.

    Args:
      setup: network, objective, optimizer and data access.
      exemplars_per_class: exemplars per class, used without `buffer_size`.
      labels: labels per sample in the sequence.
      separate_classes: compute the task's loss over only its own classes and the reference's over
        earlier classes, as in IIRC; otherwise both run over all seen classes. Samples of a task
        must then have labels of its new classes alone.
      replay_batch_size: samples of the reference batch, at most the stored ones; None is the size
        of the task's batch.
      buffer_size: exemplars of all classes together, shared equally by the classes seen so far.
    """

    def draw(memory: Exemplars, batch: Batch, task: Task, key: PRNGKeyArray) -> Batch:
        return draw_batch(memory.buffer, replay_batch_size or batch.index.shape[0], key)

    def grads(
        memory: Exemplars, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        key_task, key_reference = jax.random.split(key)
        new, known = learner.seen, learner.seen
        if separate_classes:
            new, known = task.classes, learner.seen & ~task.classes

        def reference_loss(params: PyTree) -> tuple[Float[Array, ""], PyTree]:
            reference_learner = learner._replace(seen=known)
            return replayed_loss(setup, params, reference_learner, batch.replay, key_reference)

        reference, batch_stats = jax.grad(reference_loss, has_aux=True)(learner.params)
        now = learner._replace(seen=new, batch_stats=batch_stats)
        gradient, info = task_gradient(setup, now, batch, key_task)
        return project(gradient, reference), info

    replay = balanced_replay(setup, exemplars_per_class, labels, buffer_size)
    return replay._replace(epoch_data=naive(setup).epoch_data, draw=draw, grads=grads)


def _dot(first: PyTree, second: PyTree) -> Float[Array, ""]:
    products = jax.tree.map(lambda a, b: jnp.sum(a * b), first, second)
    return sum(jax.tree.leaves(products))


def _reference(arguments: StrategyArguments) -> dict[str, Any]:
    """Return the form of the reference batch: the authors' 256 samples, or IIRC's.

    With several labels, as in IIRC, the batch is as large as the task's, and classes are separate.
    """
    several_labels = arguments.labels > 1
    size = arguments.replay_batch_size or (None if several_labels else 256)
    return {"replay_batch_size": size, "separate_classes": several_labels}


METHODS = (
    Method(
        "A-GEM",
        agem,
        Publication("Chaudhry et al.", 2019, "ICLR", ("samples",)),
        "averaged gradient episodic memory (A-GEM)",
        derived=_reference,
        select="last",
        authors={"replay_batch_size": 256, "batch size": 10, "epochs per task": 1},
    ),
)
