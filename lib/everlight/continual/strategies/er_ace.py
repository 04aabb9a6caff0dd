"""Experience replay with an asymmetric cross-entropy (ER-ACE; Caccia et al. 2022, ICLR).

    L = CE(incoming batch; classes of that batch) + CE(replayed batch; all seen classes)

The incoming batch's softmax runs over the classes in that batch. Samples of new classes therefore
do not push down the logits of old ones, whose representations would change abruptly. The replayed
batch alone separates old from new classes. Each term is a mean, and both have equal weight for all
batch sizes. The replayed batch has a separate pass after the incoming one. Memory and draws are
those of `experience_replay`. With one head per task, where the label alone determines the classes
of the softmax, it has the losses of plain replay with other weights: L is twice ER's loss for
batches of equal size.

Equal to the official code (pclucas14/AML, `er_ace.py`) at the gradient of a step with
`loss_over="all"`, if classes are numbered in order of arrival and the batch holds the newest one;
differs in:

- The code's incoming softmax also has the newest class if it is absent from the batch.
- In the official code a class is seen once a sample of it arrived, in everlight once its task
  begins.
- The code's reservoir counts the arrivals before a batch for all of the batch.
- The head is the network's. The code has a cosine classifier whose cosines are multiplied by 10.
- By default unseen classes are in neither softmax in everlight.

Mammoth's `er_ace.py` differs further: by default its first task has no mask and no replay.
"""

from typing import Literal

import jax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveInt, checked
from everlight.continual.methods.method import Method, Publication
from everlight.continual.strategies.experience_replay import Reservoir, experience_replay
from everlight.continual.strategies.parts.memory import arrivals, carried_classes
from everlight.continual.strategies.parts.passes import batch_loss
from everlight.continual.strategies.parts.replayed import replayed_loss, with_all_seen


@checked
def er_ace(
    setup: Setup,
    buffer_size: PositiveInt = 200,
    labels: PositiveInt = 1,
    replay_batch_size: PositiveInt | None = None,
    loss_over: Literal["seen", "all"] = "seen",
) -> Strategy:
    """Return experience replay with asymmetric cross-entropy (ER-ACE); its memory is `Reservoir`.

    Args:
      setup: network, objective, optimizer and data access.
      buffer_size: number of stored samples; the paper has 20 to 100 per class.
      labels: labels per sample in the sequence.
      replay_batch_size: samples drawn per step, at most the stored ones; None is the size of the
        incoming batch.
      loss_over: "all" adds unseen classes to both softmaxes, as in the authors' code. The replayed
        batch's softmax then runs over all outputs of the head.
    """

    def grads(
        memory: Reservoir, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        key_batch, key_replay = jax.random.split(key)
        present = carried_classes(arrivals(batch), learner.seen.shape[0])
        incoming_learner, replay_learner = learner._replace(seen=present), learner
        if loss_over == "all":
            incoming_learner = learner._replace(seen=present | ~learner.seen)
            replay_learner = with_all_seen(learner)

        def loss(params: PyTree) -> tuple[Float[Array, ""], tuple]:
            task_loss, (_, batch_stats) = batch_loss(
                setup, params, incoming_learner, batch, key_batch
            )
            after = replay_learner._replace(batch_stats=batch_stats)
            replay_loss, batch_stats = replayed_loss(setup, params, after, batch.replay, key_replay)
            return task_loss + replay_loss, (task_loss, batch_stats)

        gradient, (task_loss, batch_stats) = jax.grad(loss, has_aux=True)(learner.params)
        return gradient, StepInfo(gradient, batch_stats, task_loss)

    replay = experience_replay(setup, buffer_size, labels, replay_batch_size)
    return replay._replace(grads=grads)


METHODS = (
    Method(
        "ER-ACE",
        er_ace,
        Publication("Caccia et al.", 2022, "ICLR", ("samples",)),
        "experience replay with asymmetric cross-entropy (ER-ACE)",
        requirements=("class scores", "chosen classes"),
        authors={
            "replay_batch_size": 10,
            "loss_over": "all",
            "batch size": 10,
            "epochs per task": 1,
        },
    ),
)
